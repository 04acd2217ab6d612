"""dryRun=true on every write: nothing changes; the answer is the usual refusal or the scheduler's verdict."""

from typing import Any

import pytest
from fastapi.routing import APIRoute

from pliant.api.app import ROUTERS
from pliant.api.context import AT_ONCE, DRY_RUN, parameters, rehearsed
from pliant.control.state.setting import KEY
from pliant.model.machine import Node, NodePool
from pliant.model.priority import PriorityClass
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Workload
from pliant.wire.questions import DryRunDone
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.stage import until

PROJECTS = "/api/v1/org-unit/projects"
SET_BY_PEOPLE = (Project, Department, NodePool, Topology, PriorityClass)
SHEET = f"{PROJECTS}/node-pool-resources/batch-patch"
QUOTA_1 = [{"nodePool": {"name": "default"}, "gpu": {"deserved": 1}}]


def everything(api: Api) -> Any:
    """All that people set, without what changes as time passes."""
    saved = api.stage.store.load()
    rows = sorted(repr(row) for row in saved.rows if isinstance(row, SET_BY_PEOPLE))
    wanted = sorted((row.id, row.desired, row.priority) for row in saved.of(Workload))
    nodes = sorted((row.name, row.draining, row.labels, row.taints) for row in saved.of(Node))
    return rows, wanted, nodes, saved.settings.get(KEY)


def tried(api: Api, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    sign = "&" if "?" in path else "?"
    before = everything(api)
    told = api.call(method, f"{path}{sign}dryRun=true", status, json=body)
    assert everything(api) == before
    if status == 200:
        conform(DryRunDone, told)
    return told


def said(told: Any) -> dict[str, str]:
    return {it["name"]: it["what"] for it in told["differences"]}


def test_every_write_has_it_or_says_that_it_acts_at_once() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    for route in routes:
        if route.methods <= {"GET", "HEAD"} or route.name == "list_by_post":
            continue
        own = DRY_RUN in parameters(route)
        at_once = any(part in route.path for part in AT_ONCE)
        assert own or at_once or rehearsed(route), route.path


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", PROJECTS, {"name": "new", "resources": QUOTA_1}),
        ("PUT", f"{PROJECTS}/default", {"description": "x"}),
        ("PATCH", f"{PROJECTS}/default/resources", QUOTA_1),
        (
            "POST",
            SHEET,
            {"entries": [{"id": "default", "resources": QUOTA_1}]},
        ),
        ("POST", "/api/v1/org-unit/departments", {"name": "new"}),
        ("POST", "/api/v1/node-pools", {"name": "fast", "labelKey": "speed", "labelValue": "high"}),
        ("POST", "/api/v1/nodes/node-0/cordon", None),
        ("PATCH", "/api/v1/nodes/node-0", {"labels": {"a": "b"}}),
        ("POST", "/api/v1/priority-classes", {"name": "urgent", "value": 7}),
        ("PATCH", "/api/v1/scheduling-settings", {"stale-grace": "5m"}),
        ("POST", "/api/v1/network-topologies", {"name": "t", "levels": ["rack"]}),
    ],
)
def test_nothing_is_changed(api: Api, method: str, path: str, body: Any) -> None:
    told = tried(api, method, path, body)
    assert told["wouldSay"] != []
    assert told["differences"] == []
    settings = api.get("/api/v1/scheduling-settings")["settings"]
    assert all(setting["isDefault"] for setting in settings)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", PROJECTS, {"name": "default"}, 409),
        ("POST", PROJECTS, {"name": "Wrong"}, 400),
        ("PUT", f"{PROJECTS}/nobody", {"description": "x"}, 404),
        ("DELETE", f"{PROJECTS}/default", None, 409),
        ("DELETE", "/api/v1/workloads/nothing", None, 404),
    ],
)
def test_a_refusal_is_as_always(quiet: Api, method: str, path: str, body: Any, status: int) -> None:
    tried(quiet, method, path, body, status)


def test_the_scheduler_says_what_would_become_of_it(api: Api) -> None:
    first = api.submit("first", gpus=2)["workloadId"]
    api.running(first)
    waits = api.submit("waits", gpus=2)["workloadId"]
    until(lambda: api.item(waits)["reason"] is not None)
    told = tried(api, "DELETE", f"/api/v1/workloads/{first}")
    assert said(told) == {"first": "gone", "waits": "starts"}
    told = tried(api, "POST", f"/api/v1/workloads/trainings/{first}/suspend")
    assert said(told) == {"first": "gone", "waits": "starts"}
    assert api.item(first)["desiredPhase"] == "Running"
    both = {"ids": [first, waits], "action": "delete"}
    told = tried(api, "POST", "/api/v1/workloads/batch", both)
    assert said(told) == {"first": "gone", "waits": "gone"}


def test_a_quota_takes_from_others(api: Api) -> None:
    quota = [{"nodePool": {"name": "default"}, "gpu": {"deserved": 0}}]
    for name in ("team-a", "team-b"):
        api.call("POST", PROJECTS, 201, json={"name": name, "resources": quota})
    made = []
    for project in ("team-a", "team-b"):
        body = {
            "name": f"of-{project}",
            "projectName": project,
            "spec": {"image": "x", "compute": {"gpuDevicesRequest": 2}},
        }
        made.append(api.call("POST", "/api/v1/workloads/trainings", 202, json=body)["workloadId"])
        if project == "team-a":
            api.running(made[0])
    until(lambda: api.item(made[1])["reason"] is not None)
    two = [{"nodePool": {"name": "default"}, "gpu": {"deserved": 2}}]
    told = tried(api, "PATCH", f"{PROJECTS}/team-b/resources", two)
    assert said(told) == {"of-team-a": "waits", "of-team-b": "starts"}
