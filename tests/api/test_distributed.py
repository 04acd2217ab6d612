"""What can be submitted under /workloads/distributed, what it becomes, and how it is told."""

from typing import Any

import pytest

from pliant.wire.submission import Submitted
from pliant.wire.workload import WorkloadItem
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import IMAGE, until

DISTRIBUTED = "/api/v1/workloads/distributed"


def post(api: Api, spec: dict[str, Any], status: int = 202, **top: Any) -> Any:
    body = {"name": "dist", "projectName": "default", **top, "spec": {"image": IMAGE, **spec}}
    return api.call("POST", DISTRIBUTED, status, json=body)


def groups(api: Api, made: Any) -> dict[str, tuple[float, int, int, int]]:
    """By name: (milli-GPUs of one task, min, wanted, max)."""
    workload = api.stage.service.workload(made["workloadId"]).workload
    return {group.name: (group.request.gpu, group.min, group.wanted, group.max) for group in workload.groups}


def test_the_body_of_the_walk_through(api: Api) -> None:
    compute = {
        "gpuRequestType": "portion",
        "gpuPortionRequest": 0.1,
        "gpuDevicesRequest": 1,
        "cpuMemoryRequest": "100M",
    }
    made = post(api, {"compute": compute, "numWorkers": 2, "distributedFramework": "PyTorch"})
    conform(Submitted, made)
    assert made["notices"] == []
    item = api.running(made["workloadId"])
    conform(WorkloadItem, item)
    assert groups(api, made) == {"master": (100, 1, 1, 1), "worker": (100, 2, 2, 2)}
    shown = {name: item[name] for name in ("type", "distributedFramework", "jobType", "preemptible")}
    assert shown == {
        "type": "Distributed",
        "distributedFramework": "PyTorch",
        "jobType": "PyTorch",
        "preemptible": True,
    }
    assert item["requestedPods"] == {"number": 3, "min": 3, "max": 3, "parallelism": 3, "completions": 3}
    assert (item["allocatedResources"]["gpu"], item["runningPods"]) == (pytest.approx(0.3), 3)
    pods = api.get(f"/api/v1/workloads/{made['workloadId']}/pods")["pods"]
    assert [pod["name"] for pod in pods] == ["dist-master-0", "dist-worker-0", "dist-worker-1"]
    again = api.get(f"{DISTRIBUTED}/{made['workloadId']}")["spec"]
    assert (again["distributedFramework"], again["numWorkers"]) == ("PyTorch", 2)
    assert [
        item["name"] for item in api.get("/api/v1/workloads", filterBy="type==Distributed")["workloads"]
    ] == ["dist"]


def test_all_of_it_stops_goes_on_and_is_deleted(api: Api) -> None:
    made = post(api, {"numWorkers": 2, "distributedFramework": "MPI"})
    identity = made["workloadId"]
    api.running(identity)
    api.call("POST", f"{DISTRIBUTED}/{identity}/suspend", 202)
    until(lambda: api.item(identity)["phase"] == "Stopped")
    assert api.item(identity)["runningPods"] == 0
    api.call("POST", f"{DISTRIBUTED}/{identity}/resume", 202)
    assert api.running(identity)["runningPods"] == 3
    api.call("DELETE", f"{DISTRIBUTED}/{identity}", 202)
    until(lambda: api.get("/api/v1/workloads/count") == {"count": 0})


@pytest.mark.parametrize(
    ("spec", "top", "expected"),
    [
        ({}, {}, {"master": (0, 1, 1, 1), "worker": (0, 1, 1, 1)}),
        (
            {"numWorkers": 3, "minReplicas": 1, "maxReplicas": 4},
            {"masterSpecSameAsWorker": False},
            {"worker": (0, 1, 3, 4)},
        ),
        (
            {"distributedFramework": "MPI", "compute": {"gpuDevicesRequest": 1}, "numWorkers": 2},
            {"masterSpecSameAsWorker": False},
            {"launcher": (0, 1, 1, 1), "worker": (1000, 2, 2, 2)},
        ),
        (
            {"distributedFramework": "MPI", "compute": {"gpuDevicesRequest": 1}},
            {"masterSpec": {"compute": {"gpuPortionRequest": 0.5}}},
            {"launcher": (500, 1, 1, 1), "worker": (1000, 1, 1, 1)},
        ),
        (
            {"compute": {"gpuDevicesRequest": 2}},
            {"masterSpecSameAsWorker": True, "masterSpec": {"compute": {"gpuDevicesRequest": 1}}},
            {"master": (2000, 1, 1, 1), "worker": (2000, 1, 1, 1)},
        ),
        ({"distributedFramework": "JAX", "numWorkers": 2}, {}, {"worker": (0, 2, 2, 2)}),
    ],
)
def test_groups(api: Api, spec: dict[str, Any], top: dict[str, Any], expected: dict[str, Any]) -> None:
    assert groups(api, post(api, spec, **top)) == expected


def test_a_master_of_its_own(api: Api) -> None:
    """It inherits unset fields from the workers, but not their arguments if it has a command of its own."""
    env = [{"name": "A", "value": "1"}]
    spec = {"command": "train", "args": "--fast", "environmentVariables": env, "workingDir": "/tmp"}
    made = post(api, spec, masterSpec={"command": "lead 'the way'", "image": "other"})
    workload = api.stage.service.workload(made["workloadId"]).workload
    master, worker = workload.launch_of("master-0"), workload.launch_of("worker-0")
    assert (master.image, master.command, master.args) == ("other", ("lead", "the way"), ())
    assert (worker.image, worker.command, worker.args) == (IMAGE, ("train",), ("--fast",))
    assert master.variables == worker.variables == ("A",)
    assert master.working_dir == "/tmp"
    until(lambda: sorted(api.item(made["workloadId"])["images"]) == sorted(["other", IMAGE]))


def test_bounds_are_shown(api: Api) -> None:
    spec = {"compute": {"gpuDevicesRequest": 1}, "numWorkers": 2, "minReplicas": 1, "maxReplicas": 4}
    made = post(api, spec, masterSpecSameAsWorker=False)
    item = api.running(made["workloadId"])
    assert (item["requestedPods"]["min"], item["requestedPods"]["max"], item["elastic"]) == (1, 4, True)
    assert item["runningPods"] == 2


@pytest.mark.parametrize(
    ("spec", "top", "said"),
    [
        ({"numWorkers": 0}, {}, "Invalid number of workers 0"),
        ({"numWorkers": 2, "minReplicas": 3}, {}, "got 3, 2, 2"),
        ({"distributedFramework": "MPI", "maxReplicas": 3}, {}, "of MPI cannot vary"),
        ({"distributedFramework": "Spark"}, {}, "distributedFramework"),
        ({"elastic": True, "compute": {"gpuDevicesRequest": 1}}, {}, "by GPUs of one task"),
        ({}, {"masterSpec": {"compute": {"gpuPortionRequest": 2}}}, "is not a portion of a GPU"),
        ({}, {"masterSpec": {"compute": {"gpus": 2}}}, "there is no field 'gpus' here"),
    ],
)
def test_what_is_refused(quiet: Api, spec: dict[str, Any], top: dict[str, Any], said: str) -> None:
    body = {"name": "x", "projectName": "default", **top, "spec": {"image": IMAGE, **spec}}
    answer = quiet.http.post(DISTRIBUTED, json=body)
    assert 400 <= answer.status_code < 500
    assert said in answer.text
    assert quiet.get("/api/v1/workloads/count") == {"count": 0}


def test_a_rehearsal_places_every_task(api: Api) -> None:
    body = {
        "name": "x",
        "projectName": "default",
        "spec": {"image": IMAGE, "compute": {"gpuDevicesRequest": 1}, "numWorkers": 1},
    }
    found = api.call("POST", f"{DISTRIBUTED}?dryRun=true", 200, json=body)
    assert found["verdict"] == "starts"
    assert [place["pod"] for place in found["placements"]] == ["x-master-0", "x-worker-0"]
    assert api.get("/api/v1/workloads/count") == {"count": 0}
