"""Where work may run: as requested and as shown again; the impossible is refused with a sentence."""

from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.stage import IMAGE, until

WORKLOADS = "/api/v1/workloads"


def post(api: Api, status: int, kind: str = "trainings", **spec: Any) -> Any:
    body = {"name": "a", "projectName": "default", "spec": {"image": IMAGE, **spec}}
    return api.call("POST", f"{WORKLOADS}/{kind}", status, json=body)


def expression(key: str, operator: str, *values: str) -> Any:
    return {"key": key, "operator": operator, "values": list(values)}


ASKED = {
    "nodeAffinityRequired": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    expression("gpu", "In", "h100", "a100"),
                    expression("old", "DoesNotExist"),
                ]
            },
            {"matchExpressions": [expression("memory", "Gt", "40")]},
        ]
    },
    "nodeAffinityPreferred": [{"weight": 50, "matchExpressions": [expression("fast", "Exists")]}],
    "tolerations": [
        {"operator": "Equal", "key": "spot", "value": "yes", "effect": "NoSchedule", "seconds": None},
        {"operator": "Exists", "key": None, "value": None, "effect": "NoExecute", "seconds": 60},
    ],
    "podAntiAffinity": {"type": "Required", "key": "rack"},
    "topology": {"name": "room", "requiredPlacement": "zone", "preferredPlacement": "rack"},
    "staleGraceSeconds": -1,
    "preemptionDelaySeconds": 90.0,
    "maxRuntimeSeconds": 7200.0,
}


def test_all_that_can_be_asked_for_is_told_again(api: Api) -> None:
    topology = {"name": "room", "levels": ["zone", "rack"]}
    api.call("POST", "/api/v1/network-topologies", 201, json=topology)
    made = post(api, 202, **ASKED)
    assert {name: made["spec"][name] for name in ASKED} == ASKED
    assert made["notices"] == []


def test_a_key_that_no_topology_has_makes_one(api: Api) -> None:
    near = {"type": "Preferred", "key": "example.com/rack"}
    made = post(api, 202, podAffinity=near)
    topology = {"name": "by-example-com-rack", "requiredPlacement": None, "preferredPlacement": near["key"]}
    assert made["spec"]["topology"] == topology
    [found] = api.get("/api/v1/network-topologies")["networkTopologies"]
    assert (found["name"], found["levels"]) == ("by-example-com-rack", ["example.com/rack"])
    refused = api.call("DELETE", "/api/v1/network-topologies/by-example-com-rack", 409)
    assert refused["message"] == "Workloads mean topology by-example-com-rack: a."


def test_distributed_work_lies_together_where_its_pool_has_a_topology(api: Api) -> None:
    api.call("POST", "/api/v1/network-topologies", 201, json={"name": "room", "levels": ["zone", "rack"]})
    api.call("PATCH", "/api/v1/node-pools/default", json={"networkTopologyName": "room"})
    made = post(api, 202, kind="distributed", numWorkers=2)
    assert made["spec"]["topology"] == {
        "name": "room",
        "requiredPlacement": None,
        "preferredPlacement": "rack",
    }


def test_a_master_has_nodes_and_a_priority_of_its_own(api: Api) -> None:
    body = {
        "name": "d",
        "projectName": "default",
        "spec": {"image": IMAGE, "numWorkers": 1},
        "masterSpec": {
            "priorityClass": "high",
            "tolerations": [{"operator": "Exists", "key": "spot"}],
            "nodeAffinityRequired": {
                "nodeSelectorTerms": [{"matchExpressions": [expression("a", "Exists")]}]
            },
        },
    }
    identity = api.call("POST", f"{WORKLOADS}/distributed", 202, json=body)["workloadId"]
    master, worker = api.stage.service.workload(identity).workload.groups
    assert (master.priority, worker.priority) == (125, None)
    assert master.affinity is not None
    assert (master.tolerations[0].key, worker.affinity, worker.tolerations) == ("spot", None, ())


def test_a_job_goes_to_nodes_that_it_may_use_only(api: Api) -> None:
    only = {"nodeSelectorTerms": [{"matchExpressions": [expression("gpu", "In", "h100")]}]}
    identity = post(api, 202, nodeAffinityRequired=only)["workloadId"]
    until(lambda: api.item(identity)["reason"] is not None)
    assert api.item(identity)["phase"] == "Pending"
    api.call("PATCH", "/api/v1/nodes/node-0", json={"labels": {"gpu": "h100"}})
    api.running(identity)


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        (
            {"nodeAffinityRequired": {"nodeSelectorTerms": [{}]}},
            400,
            "The node affinity has no expressions.",
        ),
        (
            {"nodeAffinityPreferred": [{"weight": 0, "matchExpressions": [expression("a", "Exists")]}]},
            400,
            "Invalid preference weight 0.",
        ),
        *(
            ({"nodeAffinityPreferred": [{"weight": 1, "matchExpressions": [wrong]}]}, 400, message)
            for wrong, message in (
                (expression("a b", "Exists"), "'a b' cannot be the key of a label."),
                (expression("a", "Exists", "b"), "a Exists takes no values."),
                (expression("a", "In"), "a In needs values."),
                (expression("a", "In", "x y"), "'x y' cannot be the value of a label."),
                (expression("a", "Gt", "much"), "a Gt takes one whole number."),
            )
        ),
        ({"tolerations": [{"value": "x"}]}, 400, "A toleration without a key needs the operator Exists."),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            400,
            "The toleration of a has a value, but its operator is Exists.",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "NoSchedule", "seconds": 5}]},
            400,
            "Only a taint with the effect NoExecute can be tolerated for some seconds.",
        ),
        (
            {"nodeAffinityRequired": {"gpu": "h100"}},
            400,
            "spec.nodeAffinityRequired: there is no field 'gpu' here; the fields are nodeSelectorTerms.",
        ),
        ({"podAntiAffinity": {"type": "Preferred"}}, 400, "spec.podAntiAffinity cannot be Preferred."),
        (
            {"podAffinity": {"key": "zone"}, "topology": {"requiredPlacement": "zone"}},
            400,
            "spec.podAffinity and spec.topology exclude each other.",
        ),
        ({"topology": {"name": "moon", "requiredPlacement": "zone"}}, 404, "There is no topology 'moon'."),
        ({"topology": {"name": "moon"}}, 400, "Topology moon is given without a level."),
        (
            {"topology": {"requiredPlacement": "zone", "preferredPlacement": "rack"}},
            400,
            "No topology has the levels zone and rack.",
        ),
        ({"maxRuntimeSeconds": 0.5}, 400, "The maximum runtime is below 1 s."),
    ],
)
def test_refused(quiet: Api, spec: Any, status: int, message: str) -> None:
    assert post(quiet, status, **spec)["message"] == message
    assert quiet.get(WORKLOADS) == {"workloads": []}


def test_levels_the_wrong_way_round(api: Api) -> None:
    api.call("POST", "/api/v1/network-topologies", 201, json={"name": "room", "levels": ["zone", "rack"]})
    found = post(api, 400, topology={"requiredPlacement": "rack", "preferredPlacement": "zone"})
    assert found["message"].startswith("Level rack of topology room is narrower than zone:")
    found = post(api, 400, topology={"name": "room", "requiredPlacement": "spine"})
    assert found["message"] == "Topology room has no level spine."
    used = post(api, 202, topology={"name": "room", "requiredPlacement": "rack"})
    refused = api.call("PUT", "/api/v1/network-topologies/room", 409, json={"levels": ["zone"]})
    assert refused["message"] == "a asks for level rack of topology room."
    api.call("DELETE", f"{WORKLOADS}/{used['workloadId']}", 202)


def test_together_and_apart(api: Api) -> None:
    api.call("POST", "/api/v1/network-topologies", 201, json={"name": "room", "levels": ["zone", "rack"]})
    whole = {"minReplicas": 2, "numWorkers": 2, "topology": {"requiredPlacement": "rack"}}
    for label in ("rack", "zone"):
        anti = {"podAntiAffinity": {"type": "Required", "key": label}}
        found = grouped(api, 400, **whole, **anti)
        assert found["message"] == (
            f"All 3 tasks must lie in one domain of rack, and no two of them on nodes of equal {label}."
        )
    grouped(api, 202, **whole, podAntiAffinity={"type": "Required", "key": "kubernetes.io/hostname"})


# -- groups that are named one by one ---------------------------------------------------------------


def test_what_a_group_says_in_vain(api: Api) -> None:
    made = grouped(api, 202, taskGroups=[{"name": "a", "spec": {"probes": {"x": 1}}}])
    assert made["notices"] == ["These fields have no effect here: spec.taskGroups[0].spec.probes."]


def grouped(api: Api, status: int, **spec: Any) -> Any:
    compute = {"gpuDevicesRequest": 1}
    body = {"name": "g", "projectName": "default", "spec": {"image": IMAGE, "compute": compute, **spec}}
    return api.call("POST", f"{WORKLOADS}/distributed", status, json=body)


def test_groups_and_their_levels(api: Api) -> None:
    made = grouped(
        api,
        202,
        taskGroups=[
            {"name": "encoder", "parent": "replica"},
            {"name": "decoder", "replicas": 2, "minReplicas": 1, "parent": "replica"},
            {"name": "router", "spec": {"compute": {}, "priorityClass": "high"}},
        ],
        subGroups=[{"name": "replica", "minGroups": 1}],
        minGroups=2,
    )
    spec = made["spec"]
    assert [(group["name"], group["parent"], group["priority"]) for group in spec["taskGroups"]] == [
        ("encoder", "replica", None),
        ("decoder", "replica", None),
        ("router", "", 125),
    ]
    assert [group["minReplicas"] for group in spec["taskGroups"]] == [1, 1, 1]
    assert (spec["subGroups"], spec["minGroups"]) == (
        [{"name": "replica", "parent": "", "minGroups": 1}],
        2,
    )
    identity = made["workloadId"]
    api.running(identity)
    until(lambda: api.item(identity)["allocatedResources"]["gpu"] == 2.0)
    assert api.item(identity)["distributedFramework"] is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minGroups": 1}, "spec.subGroups and spec.minGroups need taskGroups."),
        (
            {"taskGroups": [{"name": "a"}], "numWorkers": 2},
            "spec.taskGroups excludes numWorkers, minReplicas, maxReplicas and masterSpec.",
        ),
        (
            {"taskGroups": [{"name": "a", "replicaz": 2}]},
            "spec.taskGroups[0]: there is no field 'replicaz' here; did you mean replicas?",
        ),
        (
            {"taskGroups": [{"name": "a", "parent": "r"}], "subGroups": [{"name": "r", "min": 2}]},
            "spec.subGroups[0]: there is no field 'min' here;"
            " the fields are name, parent, minGroups, topology.",
        ),
        ({"taskGroups": [{"name": "a", "parent": "x"}]}, "a belongs to 'x', which is not a level."),
        (
            {"taskGroups": [{"name": "a"}], "minGroups": 1, "preemptibility": "semi-preemptible"},
            "A job with levels of groups cannot be semi-preemptible: it has no single minimum to guarantee.",
        ),
    ],
)
def test_groups_that_are_refused(quiet: Api, spec: Any, message: str) -> None:
    assert grouped(quiet, 400, **spec)["message"] == message
