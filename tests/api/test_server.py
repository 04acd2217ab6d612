"""What the server reports about itself, and the requests that only its operator makes."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

import pliant
from pliant.api.app import ROUTERS
from pliant.api.responses import metrics
from pliant.control.board.view import Board
from pliant.control.service import Service
from pliant.model.workload import Workload
from pliant.store import open_store
from pliant.wire.server import ServerItem
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import IMAGE


def test_health_and_version(quiet: Api) -> None:
    assert quiet.get("/healthz") == quiet.get("/readyz") == {"status": "ok"}
    assert quiet.get("/version") == {"version": "1.2.3", "api": "v1"}


def test_not_ready_before_there_is_a_world(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "board", Board())
    assert api.get("/readyz", 503)["reason"] == "unavailable"


def test_the_server_item(api: Api) -> None:
    api.running(api.submit("a")["workloadId"])
    item = api.get("/api/v1/server")
    conform(ServerItem, item)
    assert (item["pid"], item["epoch"], item["simulated"], item["tasksRunning"]) == (4711, 1, True, 1)
    assert item["uptime"] >= 0
    assert item["cycles"] > 0


@pytest.mark.parametrize(("body", "stop"), [({}, False), ({"stopTasks": True}, True)])
def test_shutdown(api: Api, body: dict[str, Any], stop: bool) -> None:
    api.call("POST", "/api/v1/server/shutdown", 202, json=body)
    assert api.stage.asked == [stop]


def test_backup(api: Api, tmp_path: Path) -> None:
    api.submit("kept")
    target = tmp_path / "copy.db"
    assert api.call("POST", "/api/v1/server/backup", json={"path": str(target)}) == {"path": str(target)}
    copy = open_store(target)
    try:
        assert [workload.name for workload in copy.load().of(Workload)] == ["kept"]
    finally:
        copy.close()
    assert "exists" in api.call("POST", "/api/v1/server/backup", 409, json={"path": str(target)})["message"]
    for path in ("relative.db", "", "/a\0b"):
        api.call("POST", "/api/v1/server/backup", 400, json={"path": path})


def test_a_backup_that_cannot_be_written(api: Api, tmp_path: Path) -> None:
    body = {"path": str(tmp_path / "no" / "such" / "folder" / "copy.db")}
    found = api.call("POST", "/api/v1/server/backup", 503, json=body)
    assert found["reason"] == "unavailable"


def test_the_debug_bundle(quiet: Api) -> None:
    answer = quiet.http.get("/api/v1/server/debug-bundle")
    assert (answer.content, answer.headers["content-type"]) == (b"PK\5\6" + bytes(18), "application/zip")


def test_metrics(api: Api) -> None:
    api.running(api.submit("a", gpus=0.5)["workloadId"])
    answer = api.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    project = ("project", "default")
    assert samples["pliant_project_quota_gpus", project] == 2
    assert samples["pliant_project_allocated_gpus", project] == 0.5
    assert samples["pliant_project_over_quota_gpus", project] == 0
    assert samples["pliant_project_past_use_gpu_hours", ("pool", "default"), project] >= 0
    assert samples["pliant_contradictions",] == 0
    assert ("pliant_project_fair_share_gpus", project) in samples
    assert samples["pliant_workloads", ("phase", "Running"), project] == 1
    assert samples["pliant_build_info", ("version", "1.2.3")] == 1
    assert (samples["pliant_gpus",], samples["pliant_allocated_gpus",]) == (2, 0.5)
    assert samples["pliant_cycles_total",] > 0
    assert ("pliant_cycle_duration_seconds",) in samples


def test_the_labels_of_metrics_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest projects, and pods above a number, share one line; the sums stay right."""
    monkeypatch.setattr(metrics, "MOST_PROJECTS", 2)
    monkeypatch.setattr(metrics, "MOST_SHARES", 1)
    for name in ("a", "b", "c"):
        body = {"name": name, "resources": [{"gpu": {"deserved": 0.5}}]}
        api.call("POST", "/api/v1/org-unit/projects", 201, json=body)
        spec = {"image": IMAGE, "compute": {"gpuDevicesRequest": 0.5}}
        job = {"name": f"job-{name}", "projectName": name, "spec": spec}
        api.running(api.call("POST", "/api/v1/workloads/trainings", 202, json=job)["workloadId"])
    share = {"workload": "w", "gpu": "g", "usedBytes": 5, "limitBytes": 7}
    monkeypatch.setattr(metrics, "shares_of", lambda view, _: [{**share, "pod": view.workload.name}])
    samples = [
        sample
        for family in text_string_to_metric_families(api.http.get("/metrics").text)
        for sample in family.samples
    ]
    assert {it.labels["project"] for it in samples if "project" in it.labels} == {"default", "a", "other"}
    quotas = {it.labels["project"]: it.value for it in samples if it.name == "pliant_project_quota_gpus"}
    assert quotas["other"] == 1
    running = {it.labels["project"]: it.value for it in samples if it.name == "pliant_workloads"}
    assert running == {"a": 1, "other": 2}
    used = {it.labels["pod"]: it.value for it in samples if it.name == "pliant_gpu_share_used_bytes"}
    assert used == {"job-a": 5, "other": 10}


def test_nothing_blocks_the_event_loop() -> None:
    """Handlers run in threads, except those that only look something up or wait without blocking."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert len(routes) > 60
    on_the_loop = {route.name for route in routes if inspect.iscoroutinefunction(route.endpoint)}
    assert on_the_loop == {
        "type_in",
        "healthz",
        "readyz",
        "version",
        "proof",
        "providers",
        "idp",
        "idps",
        "idp_mappers",
        "token",
        "token_by_form",
        "token_of_a_realm",
        "list_by_post",
        "create_training",  # these four check in a thread, and wait for the disk without one
        "create_workspace",
        "create_distributed",
        "create_inference",
        "send",
        "watch",
        "allocation",
    }


def test_no_class_is_a_validator() -> None:
    """From Python 3.12 on, pydantic cannot read an enum's signature: the server did not start there."""
    where = Path(pliant.__file__).parent
    found = {
        path.name: match
        for path in where.rglob("*.py")
        if (match := re.findall(r"(?:After|Before|Plain|Wrap)Validator\([A-Z]\w*", path.read_text("utf-8")))
    }
    assert found == {}
