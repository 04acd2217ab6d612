"""Measurements over time, as the API answers them."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pliant.api.responses.measurements import Span
from pliant.api.responses.times import stamp
from pliant.control.ports import Batch, GpuLoad, Load, TaskLoad
from pliant.engines.virtual.engine import VirtualEngine
from pliant.model.sample import DAY, MINUTE, QUARTER, Number, Sample
from pliant.model.workload import AttemptId
from pliant.store import Database, open_store
from pliant.wire.measurements import Measurements
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import CLUSTER, TOKEN, stage

CLUSTER_PATH = f"/api/v1/clusters/{CLUSTER}/metrics"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A node of two GPUs: `whole` holds one, `half` half of the other; one minute of both is measured."""
    owner = {"Authorization": f"Bearer {TOKEN}"}
    patch = pytest.MonkeyPatch()
    with (
        stage(tmp_path_factory.mktemp("measured")) as made,
        TestClient(made.app(), headers=owner) as http,
        patch.context(),
    ):
        api = Api(made, http)
        ids = {}
        for name, gpus in (("whole", 1), ("half", 0.5)):
            ids[name] = api.submit(name, gpus=gpus)["workloadId"]
            api.running(ids[name])
        api.submit("waits", gpus=2)
        card = api.get(f"/api/v1/workloads/{ids['whole']}/pods")["pods"][0]["gpus"][0]
        load = Load({AttemptId(ids["whole"], "task-0", 1): TaskLoad(1500, 2**30)}, {card: GpuLoad(40, 2**32)})
        patch.setattr(VirtualEngine, "load", lambda self: load)
        made.service.measure()
        yield api
    patch.undo()


def asked(api: Api, path: str, *names: str, status: int = 200, **more: Any) -> dict[str, Any]:
    """Metric name -> its last value; `missing` beside them."""
    now = api.stage.clock.now()
    params = {"metricType": names, "start": at(now - 60_000), "end": at(now + 60_000), **more}
    told = api.call("GET", path, status, params=params)
    conform(Measurements, told)
    found = {
        "/".join([it["type"], *it["labels"].values(), *(g["name"] for g in it.get("groups", ()))]): float(
            it["values"][-1]["value"]
        )
        for it in told["measurements"]
        if it["values"]
    }
    for it in told["histogram"]:
        found[it["type"]] = it["values"][-1]["data"]
    return found | ({"missing": told["missing"]} if told["missing"] else {})


def at(ms: int) -> str:
    return stamp(ms)


def test_of_the_cluster(measured: Api) -> None:
    found = asked(
        measured,
        CLUSTER_PATH,
        "TOTAL_GPU",
        "TOTAL_GPU_NODES",
        "ALLOCATED_GPU",
        "UNALLOCATED_GPU",
        "GPU_UTILIZATION",
        "GPU_UTILIZATION_DISTRIBUTION",
        "GPU_MEMORY_UTILIZATION",
        "CPU_UTILIZATION",
        "WORKLOADS_COUNT",
    )
    assert found == {
        "TOTAL_GPU": 2,
        "TOTAL_GPU_NODES": 1,
        "ALLOCATED_GPU": 1.5,
        "UNALLOCATED_GPU": 0.5,
        "GPU_UTILIZATION": 40,
        "GPU_UTILIZATION_DISTRIBUTION": {"0-25": "0", "25-50": "1", "50-75": "0", "75-100": "0"},
        "GPU_MEMORY_UTILIZATION": 25,
        "CPU_UTILIZATION": 4.687,
        "WORKLOADS_COUNT": 3,
    }
    assert asked(measured, CLUSTER_PATH, "AVG_WORKLOAD_WAIT_TIME")["AVG_WORKLOAD_WAIT_TIME"] > 0


def test_in_groups(measured: Api) -> None:
    for by, name in (("Nodepool", "default"), ("Project", "default"), ("Department", "default")):
        assert asked(measured, CLUSTER_PATH, "ALLOCATED_GPU", groupBy=by) == {f"ALLOCATED_GPU/{name}": 1.5}
    by_project = asked(measured, CLUSTER_PATH, "CPU_UTILIZATION", status=207, groupBy="Project")
    assert by_project == {"missing": ["CPU_UTILIZATION"]}
    pool = f"/api/v1/clusters/{CLUSTER}/nodepools/default/metrics"
    assert asked(measured, pool, "ALLOCATED_GPU", "WORKLOADS_COUNT") == {
        "ALLOCATED_GPU": 1.5,
        "WORKLOADS_COUNT": 2,
    }


def test_of_a_node(measured: Api) -> None:
    found = asked(
        measured,
        "/api/v1/nodes/node-0/metrics",
        "GPU_UTILIZATION_PER_GPU",
        "GPU_ALLOCATION_PER_GPU",
        "GPU_SM_ACTIVITY_PER_GPU",
        "CPU_USAGE_CORES",
        "CPU_MEMORY_USAGE_BYTES",
        status=207,
    )
    assert found == {
        "GPU_UTILIZATION_PER_GPU/GPU-0-0": 40,
        "GPU_ALLOCATION_PER_GPU/GPU-0-0": 1,
        "GPU_ALLOCATION_PER_GPU/GPU-0-1": 0.5,
        "CPU_USAGE_CORES": 1.5,
        "CPU_MEMORY_USAGE_BYTES": 2**30,
        "missing": ["GPU_SM_ACTIVITY_PER_GPU"],
    }


@pytest.mark.parametrize("what", ["projects", "departments"])
def test_of_a_project_and_of_a_department(measured: Api, what: str) -> None:
    path = f"/api/v1/org-unit/{what}/default/metrics"
    expected = {"GPU_ALLOCATION": 1.5, "GPU_MEMORY_UTILIZATION": 25}
    assert asked(measured, path, "GPU_ALLOCATION", "GPU_MEMORY_UTILIZATION") == expected
    assert asked(measured, path, "GPU_ALLOCATION", nodepoolName="default") == {"GPU_ALLOCATION": 1.5}
    quotas = asked(measured, path, "GPU_QUOTA", "CPU_QUOTA_MILLICORES", "CPU_MEMORY_QUOTA_MB")
    item = measured.get(f"/api/v1/org-unit/{what}/default")
    assert quotas["GPU_QUOTA"] == item["totalResources"]["gpuQuota"]


def test_of_a_workload_and_its_pod(measured: Api) -> None:
    whole = measured.get("/api/v1/workloads", filterBy="name==whole")["workloads"][0]["id"]
    path = f"/api/v1/workloads/{whole}"
    assert asked(
        measured,
        f"{path}/metrics",
        "GPU_ALLOCATION",
        "GPU_UTILIZATION",
        "CPU_USAGE_CORES",
        "GPU_MEMORY_USAGE_BYTES",
        "GPU_MEMORY_REQUEST_BYTES",
        "RUNNING_POD_COUNT",
        "CPU_LIMIT_CORES",
        status=207,
    ) == {
        "GPU_ALLOCATION": 1,
        "GPU_UTILIZATION": 40,
        "CPU_USAGE_CORES": 1.5,
        "GPU_MEMORY_USAGE_BYTES": 2**32,
        "GPU_MEMORY_REQUEST_BYTES": 16 * 2**30,
        "RUNNING_POD_COUNT": 1,
        "missing": ["CPU_LIMIT_CORES"],
    }
    pod = measured.get(f"{path}/pods")["pods"][0]
    for key in (pod["name"], pod["id"]):
        assert asked(
            measured, f"{path}/pods/{key}/metrics", "CPU_USAGE_CORES", "GPU_UTILIZATION_PER_GPU"
        ) == {"CPU_USAGE_CORES": 1.5, "GPU_UTILIZATION_PER_GPU/GPU-0-0": 40}
    half = measured.get("/api/v1/workloads", filterBy="name==half")["workloads"][0]["id"]
    found = asked(measured, f"/api/v1/workloads/{half}/metrics", "GPU_UTILIZATION", status=207)
    assert found == {"missing": ["GPU_UTILIZATION"]}, (
        "of a card that is shared nobody knows whose work it does"
    )
    measured.get(f"{path}/pods/nobody/metrics", 404, metricType="CPU_USAGE_CORES", start=at(0), end=at(9))


def test_as_csv(measured: Api) -> None:
    now = measured.stage.clock.now()
    params = {"metricType": "GPU_ALLOCATION_PER_GPU", "start": at(now - 60_000), "end": at(now + 60_000)}
    answer = measured.http.get("/api/v1/nodes/node-0/metrics", params=params, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    head, *lines = answer.text.splitlines()
    assert head == "type,labels,timestamp,value"
    assert [line.split(",")[1::2] for line in lines] == [["gpu=GPU-0-0", "1"], ["gpu=GPU-0-1", "0.5"]]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "end"),
        ({"start": "yesterday"}, "start"),
        ({"start": "9999-12-31T23:59:59-23:59", "end": "9999-12-31T23:59:59-23:59"}, "end"),
        ({"numberOfSamples": 1001}, "numberOfSamples"),
        ({"numberOfSamples": -1}, "numberOfSamples"),
        ({"metricType": "TEMPERATURE"}, "metricType[0]"),
        ({"metricTyp": "TOTAL_GPU"}, "metricTyp"),
        ({"nodepoolName": "default", "groupBy": "Project"}, "nodepoolName"),
    ],
)
def test_what_cannot_be_asked_for(measured: Api, more: dict[str, Any], field: str) -> None:
    params = {
        "metricType": "TOTAL_GPU",
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-02T00:00:00Z",
        **more,
    }
    told = measured.call("GET", CLUSTER_PATH, 400, params=params)
    assert [it["field"] for it in told["fields"]] == [field]


def test_the_means_of_parts_of_a_time() -> None:
    samples = [Sample("cluster", MINUTE, at * MINUTE, (Number("N", "", at * 1000),)) for at in range(1, 9)]
    assert Span(0, 8 * MINUTE, 4).means(samples, "N") == {
        "": {2 * MINUTE: 1500, 4 * MINUTE: 3500, 6 * MINUTE: 5500, 8 * MINUTE: 7500}
    }
    assert Span(0, 8 * MINUTE, 1).means(samples, "N") == {"": {8 * MINUTE: 4500}}
    assert Span(0, 8 * MINUTE, 0).means(samples, "N") == {}


class At:
    """A clock that shows the time that it was given."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now(self) -> int:
        return self.ms


def test_minutes_become_quarters_of_an_hour_and_both_are_forgotten(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that an earlier server did not average before it ended."""
    store, service = api.stage.store, api.stage.service
    series, seen = service.series, (service.load(), service.uses())
    clock = At(api.stage.clock.now() // QUARTER * QUARTER)
    monkeypatch.setattr(api.stage.loop, "clock", clock)
    begin = clock.ms
    for _ in range(31):
        clock.ms += MINUTE
        series.take(*seen)
    quarters = store.samples(QUARTER, 0, 2**62, "cluster")
    assert [it.at for it in quarters] == [begin + QUARTER, begin + 2 * QUARTER]
    assert Number("TOTAL_GPU", "", 2000) in quarters[0].numbers
    assert len(store.samples(MINUTE, 0, 2**62, "cluster")) == 31
    clock.ms = begin + 3 * QUARTER
    type(series)(api.stage.loop).take(*seen)
    assert len(store.samples(QUARTER, 0, 2**62, "cluster")) == 3
    clock.ms += 26 * 3600 * 1000
    series.take(*seen)
    assert [it.at for it in store.samples(MINUTE, 0, 2**62, "cluster")] == [clock.ms]
    assert len(store.samples(QUARTER, 0, 2**62, "cluster")) >= 3
    clock.ms += 91 * 24 * 3600 * 1000
    series.take(*seen)
    assert [it.at for it in store.samples(QUARTER, 0, 2**62, "cluster")] == [clock.ms]


def test_samples_outlive_the_server(tmp_path: Path) -> None:
    where = tmp_path / "pliant.db"
    with stage(tmp_path) as made:
        made.service.measure()
    store: Database = open_store(where)
    assert {it.subject for it in store.samples(MINUTE, 0, 2**62)} >= {
        "cluster",
        "node:node-0",
        "pool:default",
    }
    store.close()


def test_days_keep_the_sums_after_their_quarters_are_forgotten(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report over 90 days reads 90 rows for each project, and says the same a year later."""
    store, loop = api.stage.store, api.stage.loop
    series, seen = api.stage.service.series, (api.stage.service.load(), api.stage.service.uses())
    project = api.get("/api/v1/org-unit/projects")["projects"][0]["id"]
    last = api.stage.clock.now() // DAY * DAY
    first = last - 90 * DAY
    clock = At(last + 1)
    monkeypatch.setattr(loop, "clock", clock)
    for end in range(first + DAY, last + DAY, DAY):
        quarters = range(end - DAY // 2, end + QUARTER, QUARTER)  # nothing was measured before noon
        held = (end // DAY % 7) * 1000
        rows = [
            Sample(f"project:{project}", QUARTER, at, (Number("GPU_ALLOCATION", "", held),))
            for at in quarters[1:]
        ]
        store.commit(loop.state.epoch, Batch(samples=rows, durable=False))
    body = {"start": stamp(first), "end": stamp(last), "groupBy": "Project"}

    def report(name: str) -> dict[str, str]:
        made = api.call("POST", "/api/v1/org-unit/reports", 202, json={**body, "name": name})
        text = api.http.get(f"/api/v1/org-unit/reports/{made['id']}/file").text
        return next(csv.DictReader(io.StringIO(text)))

    before = report("before")
    assert float(before["gpu_allocation_hours"]) == 12 * sum(
        end // DAY % 7 for end in range(first + DAY, last + DAY, DAY)
    )
    assert before["measured_percent"] == "50"
    series.take(*seen)
    days = store.samples(DAY, 0, 2**62, f"project:{project}")
    assert len(days) == 90
    assert [*series.long(f"project:{project}", first, last)] == [*days]
    assert report("after") == before
    inside = series.long(f"project:{project}", first + 3 * QUARTER, last - DAY - 2 * QUARTER)
    assert sum(it.covered for it in inside) == 89 * DAY // 2 - 2 * QUARTER, "no part counts twice"
    clock.ms += 365 * DAY
    series.take(*seen)
    assert not store.samples(QUARTER, 0, last, f"project:{project}")
    assert report("later") == before
