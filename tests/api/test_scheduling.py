"""Settings, topologies, labels and taints, history of things other than workloads, and past use."""

from typing import Any

import pytest

from pliant.api.identity.auth import attempt_token
from pliant.model.affinity import HOST
from pliant.wire.cluster import NodeItem, SettingList, TopologyItem
from pliant.wire.events import EventList
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import CLUSTER, SECRET, until

SETTINGS = "/api/v1/scheduling-settings"
TOPOLOGIES = "/api/v1/network-topologies"
NODE = "/api/v1/nodes/node-0"


def values(found: Any) -> dict[str, str]:
    conform(SettingList, found)
    return {entry["name"]: entry["value"] for entry in found["settings"] if not entry["isDefault"]}


def messages(api: Api, subject: str) -> list[str]:
    found = api.get("/api/v1/events", subject=subject)
    conform(EventList, found)
    return [event["message"] for event in found["events"]]


# -- settings ---------------------------------------------------------------------------------------


def test_settings_are_read_set_and_audited(api: Api) -> None:
    assert values(api.get(SETTINGS)) == {}
    body = {"stale-grace": "5m", "past-use": 1.5, "churn-budget": 3, "reservation": "8", "ageing": 600}
    assert values(api.call("PATCH", SETTINGS, json=body)) == {
        "stale-grace": "5m0s",
        "past-use": "1.500",
        "churn-budget": "3",
        "reservation": "8 GPUs",
        "ageing": "10m0s",
    }
    assert values(api.call("PATCH", SETTINGS, json={"past-use": None, "ageing": "off"})) == {
        "stale-grace": "5m0s",
        "churn-budget": "3",
        "reservation": "8 GPUs",
    }
    told = messages(api, "cluster")
    assert len(told) == 2
    assert told[1].endswith("set past-use off (was 1.500), ageing off (was 10m0s).")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "No settings were given."),
        ({"stale-grase": "5m"}, "There is no scheduling setting 'stale-grase'."),
        ({"stale-grace": "soon"}, "stale-grace cannot be 'soon'."),
        ({"victims": "oldest"}, "victims cannot be 'oldest'."),
        ({"stale-grace": True}, "stale-grace cannot be true."),
        ({"past-use-window": "1s"}, "past-use-window cannot be 1s."),
        ({"past-use-window": "1h"}, "past-use-half-life 24h0m0s is longer than past-use-window 1h0m0s."),
        ({"victims": "youngest", "churn-budget": -2}, "churn-budget cannot be -2."),
    ],
)
def test_settings_that_are_refused_change_nothing(quiet: Api, body: Any, message: str) -> None:
    assert quiet.call("PATCH", SETTINGS, 400, json=body)["message"] == message
    assert values(quiet.get(SETTINGS)) == {}


def test_a_job_may_not_change_them(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    token = attempt_token(f"{identity}/task-0/1", SECRET)
    headers = {"Authorization": f"Bearer {token}"}
    api.call("PATCH", SETTINGS, 403, json={"victims": "youngest"}, headers=headers)
    api.call("PATCH", NODE, 403, json={"labels": {"a": "b"}}, headers=headers)


# -- topologies -------------------------------------------------------------------------------------


def test_a_topology_from_its_making_to_its_end(api: Api) -> None:
    body = {"name": "room", "levels": ["zone", "example.com/rack"], "clusterId": CLUSTER}
    made = api.call("POST", TOPOLOGIES, 201, json=body)
    conform(TopologyItem, made)
    assert (made["levels"], made["nodes"], made["nodePools"]) == (["zone", "example.com/rack"], 0, [])
    api.call("PATCH", NODE, json={"labels": {"zone": "z1", "example.com/rack": "r1"}})
    pool = api.call("PATCH", "/api/v1/node-pools/default", json={"networkTopologyId": made["id"]})
    assert pool["networkTopologyName"] == "room"
    [found] = api.get(TOPOLOGIES)["networkTopologies"]
    assert (found["nodes"], found["nodePools"]) == (1, ["default"])
    assert api.get(f"{TOPOLOGIES}/{made['id']}") == api.get(f"{TOPOLOGIES}/room") == found
    assert api.call("PUT", f"{TOPOLOGIES}/room", json={"levels": ["zone"]})["levels"] == ["zone"]
    refused = api.call("DELETE", f"{TOPOLOGIES}/room", 409)
    assert refused["message"] == "Node pools have topology room: default."
    api.call("PATCH", "/api/v1/node-pools/default", json={"networkTopologyName": ""})
    api.call("DELETE", f"{TOPOLOGIES}/room", 204)
    api.get(f"{TOPOLOGIES}/room", 404)
    assert len(messages(api, "topology/room")) == 3


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"levels": ["zone"]}, 400, "name must be given."),
        ({"name": "Room", "levels": ["zone"]}, 400, "'Room' cannot be the name of a topology."),
        ({"name": "room"}, 400, "levels must be given."),
        ({"name": "room", "levels": ["zone", "zone"]}, 400, "Level zone is named twice."),
        ({"name": "room", "levels": ["my zone"]}, 400, "'my zone' cannot be the key of a label."),
    ],
)
def test_topologies_that_cannot_be(quiet: Api, body: Any, status: int, message: str) -> None:
    assert quiet.call("POST", TOPOLOGIES, status, json=body)["message"] == message
    assert quiet.get(TOPOLOGIES) == {"networkTopologies": []}


def test_a_pool_with_a_topology_that_is_none(quiet: Api) -> None:
    body = {"networkTopologyName": "moon"}
    found = quiet.call("PATCH", "/api/v1/node-pools/default", 404, json=body)
    assert found["message"] == "There is no topology 'moon'."


# -- labels and taints ------------------------------------------------------------------------------


def test_labels_and_taints_are_set_and_taken_away(api: Api) -> None:
    body = {"labels": {"gpu": "h100", "rack": "r1"}, "taints": [{"key": "maintenance", "value": "soon"}]}
    node = api.call("PATCH", NODE, json=body)
    conform(NodeItem, node)
    assert node["labels"] == {HOST: "node-0", "gpu": "h100", "rack": "r1"}
    assert node["taints"] == [{"key": "maintenance", "value": "soon", "effect": "NoSchedule"}]
    waits = api.submit("waits")["workloadId"]
    until(lambda: api.item(waits)["reason"] is not None)
    assert api.item(waits)["phase"] == "Pending"
    gone = {"labels": {"rack": None}, "taints": [{"key": "maintenance", "exclude": True}]}
    node = api.call("PATCH", NODE, json=gone)
    assert (node["labels"], node["taints"]) == ({HOST: "node-0", "gpu": "h100"}, [])
    api.running(waits)
    assert [text.partition(" ")[2] for text in messages(api, "node/node-0")] == [
        "set labels of node-0: gpu=h100, rack=r1.",
        "set taints of node-0: maintenance=soon:NoSchedule.",
        "set labels of node-0: rack.",
        "set taints of node-0: no maintenance:NoSchedule.",
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (NODE, {}, 400, "No setting was given."),
        (NODE, {"labels": {"-": "x"}}, 400, "'-' cannot be the key of a label."),
        (NODE, {"labels": {HOST: "x"}}, 400, f"{HOST} is the name of the node and stays."),
        (NODE, {"labels": {HOST: None}}, 400, f"{HOST} is the name of the node and stays."),
        (NODE, {"labels": {"a": "x y"}}, 400, "'x y' cannot be the value of a label."),
        (NODE, {"taints": [{"key": "a/b/c"}]}, 400, "'a/b/c' cannot be the key of a taint."),
        (NODE, {"taints": [{"key": "a", "exclude": True}]}, 404, "Node node-0 has no taint a:NoSchedule."),
        ("/api/v1/nodes/moon", {"labels": {"a": "b"}}, 404, "There is no node 'moon'."),
    ],
)
def test_marks_that_cannot_be(quiet: Api, path: str, body: Any, status: int, message: str) -> None:
    assert quiet.call("PATCH", path, status, json=body)["message"] == message
    assert quiet.get(NODE)["labels"] == {HOST: "node-0"}


def test_an_effect_that_is_none(quiet: Api) -> None:
    found = quiet.call("PATCH", NODE, 400, json={"taints": [{"key": "a", "effect": "Shun"}]})
    assert "effect" in found["message"]


# -- past use ---------------------------------------------------------------------------------------


def test_past_use_is_told_while_a_job_runs(api: Api) -> None:
    api.running(api.submit("a", gpus=2)["workloadId"])

    def used() -> Any:
        return api.get("/api/v1/org-unit/projects/default")["status"]["nodePoolQuotaStatuses"][0]

    assert used()["pastUseShare"] <= 1
    until(lambda: used()["pastUseShare"] > 0)  # no cycle is needed for it to grow
