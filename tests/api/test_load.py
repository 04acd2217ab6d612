"""GET /workloads/load: what is measured of each workload; null where nothing is measured."""

from pliant.control.ports import GpuLoad, Load, TaskLoad
from pliant.engines.virtual.engine import VirtualEngine
from pliant.model.workload import AttemptId
from tests.api.conftest import Api

ROUTE = "/api/v1/workloads/load"


def test_what_a_workload_uses(api: Api, monkeypatch) -> None:
    whole, half = (api.submit(name, gpus=gpus)["workloadId"] for name, gpus in (("whole", 1), ("half", 0.5)))
    api.running(whole)
    api.running(half)
    assert {entry["id"] for entry in api.get(ROUTE)["workloads"]} == {whole, half}
    assert api.get(ROUTE)["workloads"][0] == {
        "id": api.get(ROUTE)["workloads"][0]["id"],
        "cpuCores": None,
        "memoryBytes": None,
        "gpuPercent": None,
        "gpuMemoryBytes": None,
    }
    cards = {
        gpu for it in (whole, half) for gpu in api.get(f"/api/v1/workloads/{it}/pods")["pods"][0]["gpus"]
    }
    load = Load(
        {
            AttemptId(whole, "task-0", 1): TaskLoad(1500, 3 << 20),
            AttemptId(half, "task-0", 1): TaskLoad(None, 5),
        },
        dict.fromkeys(cards, GpuLoad(40, 1 << 30)),
    )
    monkeypatch.setattr(VirtualEngine, "load", lambda self: load)
    found = {entry.pop("id"): entry for entry in api.get(ROUTE)["workloads"]}
    assert found[whole] == {
        "cpuCores": 1.5,
        "memoryBytes": 3 << 20,
        "gpuPercent": 40.0,
        "gpuMemoryBytes": 1 << 30,
    }
    assert found[half] == {"cpuCores": None, "memoryBytes": 5, "gpuPercent": None, "gpuMemoryBytes": None}, (
        "of a GPU that is shared nobody knows whose work it does"
    )
