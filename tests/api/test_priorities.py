"""Priority classes: made, applied together, used and removed; the class names of ElasticDL's pods."""

from typing import Any

import pytest

from pliant.wire.organization import PriorityClassItem
from tests.api.conform import conform
from tests.api.conftest import Api

CLASSES = "/api/v1/priority-classes"
SEED = [{"name": "high-priority", "value": 1_000_000}, {"name": "low-priority", "value": 1000}]


def elasticdl(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "name": name,
        "projectName": "default",
        "spec": {
            "image": "ubuntu",
            "args": "sleep infinity",
            "distributedFramework": "ElasticDL",
            "numWorkers": 2,
            "priorityClass": "low-priority",
            "labels": [{"name": "elasticdl_job_name", "value": name}],
            "compute": {"cpuCoreRequest": 0.5},
            **spec,
        },
        "masterSpec": {"priorityClass": "high-priority", "compute": {"cpuCoreRequest": 0.1}},
    }


def test_a_class_from_its_making_to_its_end(api: Api) -> None:
    made = api.call("POST", CLASSES, 201, json={**SEED[0], "description": "first"})
    conform(PriorityClassItem, made)
    assert api.get(CLASSES) == {"priorityClasses": [made]}
    assert (made["value"], made["description"]) == (1_000_000, "first")
    again = api.call("POST", CLASSES, 409, json=SEED[0])
    assert again["message"] == "A priority class named 'high-priority' already exists."
    known = {row["name"]: row for row in api.get("/api/v1/workload-priorities")["priorities"]}
    assert (known["high-priority"]["source"], known["high"]["source"]) == ("user", "system")
    api.call("DELETE", f"{CLASSES}/high-priority", 204)
    assert api.get(CLASSES) == {"priorityClasses": []}
    api.call("DELETE", f"{CLASSES}/high-priority", 404)
    assert "built in" in api.call("DELETE", f"{CLASSES}/high", 409)["message"]


def test_applied_together(api: Api) -> None:
    done = api.call("PUT", CLASSES, json={"priorityClasses": SEED})
    assert [entry["result"] for entry in done["applied"]] == ["created", "created"]
    done = api.call("PUT", CLASSES, json={"priorityClasses": SEED})
    assert [entry["result"] for entry in done["applied"]] == ["unchanged", "unchanged"]
    other = {"priorityClasses": [{"name": "new", "value": 1}, {**SEED[1], "value": 2}]}
    refused = api.call("PUT", CLASSES, 409, json=other)
    assert refused["message"] == "Priority class low-priority has the value 1000: it cannot become 2."
    assert "pliant priorityclass delete low-priority" in refused["details"]
    assert [row["name"] for row in api.get(CLASSES)["priorityClasses"]] == ["high-priority", "low-priority"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "name must be given."),
        ({"name": "new"}, "value must be given."),
        ({"name": "New", "value": 1}, "'New' cannot be the name of a priority class."),
        ({"name": "new", "value": 2_000_000_000}, "2000000000 cannot be the value of a priority class."),
    ],
)
def test_classes_that_cannot_be(quiet: Api, body: Any, message: str) -> None:
    assert quiet.call("POST", CLASSES, 400, json=body)["message"] == message
    assert quiet.get(CLASSES) == {"priorityClasses": []}


def test_a_workload_of_elasticdl(api: Api) -> None:
    api.call("PUT", CLASSES, json={"priorityClasses": SEED})
    made = api.call("POST", "/api/v1/workloads/distributed", 202, json=elasticdl("job"))
    assert made["spec"]["distributedFramework"] == "ElasticDL"
    assert (made["spec"]["minReplicas"], made["spec"]["numWorkers"]) == (0, 2)
    item = api.get(f"/api/v1/workloads/{made['workloadId']}")
    assert (item["priority"], item["priorityClassName"], item["preemptible"]) == (1000, "low-priority", True)
    assert item["labels"] == {"elasticdl_job_name": "job"}
    pods = api.get(f"/api/v1/workloads/{made['workloadId']}/pods")["pods"]
    assert [pod["name"] for pod in pods] == [
        "elasticdl-master-job",
        "elasticdl-worker-job-0",
        "elasticdl-worker-job-1",
    ]


def test_a_class_that_is_none(api: Api) -> None:
    refused = api.call("POST", "/api/v1/workloads/distributed", 400, json=elasticdl("job"))
    assert refused["message"] == "There is no priority 'high-priority'."
    assert "pliant priorityclass create NAME --value N" in refused["details"]
