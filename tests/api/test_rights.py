"""Roles at scopes: what is left out, what is not there, what is refused, what is recorded."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from pliant.api.app import ROUTERS
from pliant.api.guard import check_routes, needs, needs_of
from pliant.api.responses.workloads import Renderer
from pliant.model.audit import AuditRecord
from pliant.model.event import Event, EventKind
from pliant.model.reason import Named, Reclaimed
from pliant.model.rights import (
    DEPARTMENT,
    EDITOR,
    PRACTITIONER,
    PROJECT,
    ROLES,
    SYSTEM,
    TABLE,
    TENANT,
    VIEWER,
    Grant,
    Place,
    may,
    may_grant,
    role_named,
)
from tests.api.conftest import Api
from tests.api.people import program
from tests.api.stage import IMAGE

WORKLOADS = "/api/v1/workloads"


@pytest.fixture
def teams(api: Api) -> dict[str, Place]:
    """Two projects in one department each."""
    found = {}
    for name in ("a", "b"):
        unit = api.call("POST", "/api/v1/org-unit/departments", 201, json={"name": f"dept-{name}"})
        body = {"name": f"team-{name}", "parentId": unit["id"]}
        made = api.call("POST", "/api/v1/org-unit/projects", 201, json=body)
        found[name] = Place(unit["id"], made["id"])
    return found


def submitted(api: Api, project: str, headers: dict[str, str], status: int = 202) -> str:
    body = {"name": f"job-{project}", "projectName": project, "spec": {"image": IMAGE}}
    made = api.call("POST", f"{WORKLOADS}/trainings", status, json=body, headers=headers)
    return str(made.get("workloadId", made["message"] if status != 202 else ""))


def records(api: Api) -> list[AuditRecord]:
    return [record for _, record in api.stage.service.audited(0, 2**60)]


# -- the table --------------------------------------------------------------------------------------


def test_every_right_has_a_cell_for_each_role() -> None:
    assert {len(row) for row in TABLE.values()} == {len(ROLES)}
    assert set("".join(TABLE.values())) <= set("TASHO-")
    assert [role.id for role in ROLES] == list(range(1, 9))
    assert role_named("L1 researcher") is role_named("ai-practitioner") is PRACTITIONER is role_named("5")


def test_a_rule_holds_in_its_scope_and_below() -> None:
    inside, beside = Place("d1", "p1"), Place("d2", "p2")
    for scope in (TENANT, Place("d1"), Place("d1", "p1")):
        assert may([Grant(PRACTITIONER.id, scope)], "workloads:create", inside)
        assert may([Grant(PRACTITIONER.id, scope)], "workloads:create", beside) is (scope == TENANT)
    assert not may([Grant(DEPARTMENT.id, Place("d1"))], "departments:create", Place("d1"))
    assert not may([], "workloads:read", inside)
    assert may([], "self:read")


def test_nobody_gives_more_than_they_have() -> None:
    here = Place("d1", "p1")

    def given(role: int, scope: Place, box: bool = False) -> set[int]:
        return {it.id for it in ROLES if may_grant([Grant(role, scope)], Grant(it.id, here), box)}

    assert given(SYSTEM.id, TENANT) == set(range(1, 9))
    assert given(PROJECT.id, here) == {3, 5, 6, 7, 8}
    assert given(PROJECT.id, here, box=True) == {3, 5, 6, 7, 8}
    assert given(EDITOR.id, here) == {4, 5, 6, 7, 8}, "it may not exec in others' jobs"
    assert given(EDITOR.id, here, box=True) == {3, 4, 5, 6, 7, 8}
    assert given(PRACTITIONER.id, TENANT) == given(VIEWER.id, TENANT) == set()
    assert not may_grant([Grant(PROJECT.id, here)], Grant(VIEWER.id, Place("d1"))), (
        "only at or below its scope"
    )


# -- routes -----------------------------------------------------------------------------------------


def test_every_route_names_the_right_that_it_needs() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    check_routes(routes)
    assert len([route for route in routes if needs_of(route) is not None]) == len(routes)


def test_a_route_that_names_none_is_not_served() -> None:
    router = APIRouter()
    router.get("/named", dependencies=[needs("self:read")])(lambda: None)
    router.get("/forgotten")(lambda: None)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.router.routes.extend(router.routes)
    with pytest.raises(RuntimeError, match=r"/forgotten$"):
        check_routes(app.routes)
    with pytest.raises(KeyError):
        needs("workloads:misspelt")


def test_who_has_no_rule_may_only_ask_who_they_are(api: Api) -> None:
    nobody = program(api, "nobody")
    assert api.call("GET", "/api/v1/whoami", headers=nobody)["id"] == "nobody"
    for path in (WORKLOADS, "/api/v1/org-unit/projects", "/api/v1/nodes", "/api/v1/queue", "/api/v1/server"):
        api.call("GET", path, 403, headers=nobody)


def test_outside_the_scope_there_is_nothing_and_inside_it_a_reason(api: Api, teams: dict[str, Place]) -> None:
    mine = program(api, "mine", (PRACTITIONER.id, teams["a"]))
    looks = program(api, "looks", (VIEWER.id, teams["a"]))
    own, other = submitted(api, "team-a", mine), submitted(api, "team-b", {})
    assert [it["id"] for it in api.call("GET", WORKLOADS, headers=mine)["workloads"]] == [own]
    assert api.call("GET", f"{WORKLOADS}/count", headers=mine)["count"] == 1
    assert [it["name"] for it in api.call("GET", "/api/v1/org-unit/projects", headers=mine)["projects"]] == [
        "team-a"
    ]
    there = api.call("GET", f"{WORKLOADS}/{other}", 404, headers=mine)
    nowhere = api.call("GET", f"{WORKLOADS}/nothing", 404, headers=mine)
    assert (
        there["message"].replace(other, "nothing") == nowhere["message"]
        and there["details"] == nowhere["details"]
    )
    api.call("DELETE", f"{WORKLOADS}/{other}", 404, headers=mine)
    assert "There is no project" in submitted(api, "team-b", mine, 404)
    refused = api.call("DELETE", f"{WORKLOADS}/{own}", 403, headers=looks)
    assert "workloads:delete" in refused["message"] and "in this project" in refused["message"]
    assert "workloads:create" in submitted(api, "team-a", looks, 403)
    done = api.call(
        "POST", f"{WORKLOADS}/batch", headers=mine, json={"ids": [own, other], "action": "delete"}
    )
    assert done["succeeded"] == [own] and [it["code"] for it in done["failed"]] == [404]


def test_a_rule_that_is_gone_counts_no_more(api: Api, teams: dict[str, Place]) -> None:
    mine = program(api, "mine", (PRACTITIONER.id, teams["a"]))
    api.call("GET", WORKLOADS, headers=mine)
    rule = api.stage.service.board.access.rules["mine-0"]
    api.stage.loop.call(lambda draft: draft.drop(rule))
    api.call("GET", WORKLOADS, 403, headers=mine)


def test_a_project_that_is_gone_takes_its_rules_along_and_nothing_gets_its_id(
    api: Api, teams: dict[str, Place]
) -> None:
    """Also a department: whoever had a role there has none in what is made next."""
    units = "/api/v1/org-unit"
    mine = program(api, "mine", (PRACTITIONER.id, teams["b"]), (PRACTITIONER.id, teams["a"]))
    above = program(api, "above", (PRACTITIONER.id, Place(teams["b"].department)))
    api.call("DELETE", f"{units}/projects/{teams['b'].project}", 204)
    assert [it.scope for it in api.stage.service.board.access.rules.values() if "mine" in it.id] == [
        teams["a"]
    ]
    submitted(api, "team-a", mine)
    api.call("DELETE", f"{units}/departments/{teams['b'].department}", 204)
    api.call("GET", WORKLOADS, 403, headers=above)
    unit = api.call("POST", f"{units}/departments", 201, json={"name": "dept-b"})
    made = api.call("POST", f"{units}/projects", 201, json={"name": "team-b", "parentId": unit["id"]})
    assert not {unit["id"], made["id"]} & {teams["b"].department, teams["b"].project}
    submitted(api, "team-b", mine, 404)
    submitted(api, "team-b", above, 403)


# -- whose it is, and what is recorded --------------------------------------------------------------


def test_a_workload_is_its_submitters_and_the_record_says_who_and_what(
    api: Api, teams: dict[str, Place]
) -> None:
    mine = program(api, "mine", (PRACTITIONER.id, teams["a"]))
    own = submitted(api, "team-a", mine)
    row = api.stage.service.workload(own).workload
    assert row.user == "mine" and row.owner is not None and row.owner.subject == "service-account:mine"
    assert row.owner.name and row.owner.uid >= 0
    api.call("POST", f"{WORKLOADS}/{own}/cancel", headers=mine)
    api.call("POST", "/api/v1/server/shutdown", 403, headers=mine, json={})
    made, cancelled, refused = records(api)[-3:]
    assert (made.name, made.entity, made.entity_id, made.action) == ("mine", "Workload", own, "create")
    assert made.permission == "workloads:create"
    changes = {change.field: (change.before, change.after) for change in cancelled.changes}
    assert changes["Workload.cancelled_by"] == ('""', '"mine"')
    assert cancelled.action == "update"
    assert changes["Workload.desired"] == ('"Running"', '"Stopped"')
    assert (refused.status, refused.permission) == (403, "server:operate")
    assert "quickstart" not in str(made.changes), "what a job runs is not recorded"


def test_what_is_only_asked_is_not_recorded(api: Api) -> None:
    before = len(records(api))
    api.get(WORKLOADS)
    body = {"name": "x", "projectName": "default", "spec": {"image": IMAGE}}
    api.call("POST", f"{WORKLOADS}/trainings?dryRun=true", json=body)
    api.call("POST", "/api/v1/what-if", 400, json={})
    assert len(records(api)) == before


def test_the_history_of_a_workload_names_nothing_of_other_projects(
    api: Api, teams: dict[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Named("workload", "w-2", "secret-job", teams["b"].project, "team-b")
    theirs, ours = (Named("project", teams[it].project, f"team-{it}", teams[it].project) for it in "ba")
    why = Reclaimed(2000, other, theirs, "quota", 0, 2000, ours, 4000, 2000)
    told = Event(
        "w", 0, "scheduler", EventKind.RECLAIMED, why.text(0), why.code, why.numbers, names=why.names
    )
    monkeypatch.setattr("pliant.api.routes.workloads.workloads.history_of", lambda *_: [(1, told)])
    mine = program(api, "mine", (PRACTITIONER.id, teams["a"]))
    own = submitted(api, "team-a", mine)
    for route in ("events", "history"):
        path = f"{WORKLOADS}/{own}/{route}"
        assert "secret-job" in str(api.get(path))
        found = api.call("GET", path, headers=mine)
        assert "secret-job" not in str(found) and "team-b" not in str(found), route
        assert "team-a" in str(found)
        hidden = api.call("GET", path, headers=mine, params={"search": "secret-job"})
        assert not hidden.get("events", hidden.get("records"))


class Views(dict[str, Any]):
    """Of a board on which nothing holds GPUs."""

    holding, places, pending = (), {}, ()  # type: ignore[var-annotated]


def test_an_item_of_a_list_names_nothing_of_other_projects(api: Api, teams: dict[str, Place]) -> None:
    own = submitted(api, "team-a", {})
    board, now = api.stage.service.board, api.stage.service.now()
    view = board.workloads[own]
    other = Named("workload", "w-2", "secret-job", teams["b"].project, "team-b")
    theirs, ours = (Named("project", teams[it].project, f"team-{it}", teams[it].project) for it in "ba")
    why = Reclaimed(2000, other, theirs, "quota", 0, 2000, ours, 4000, 2000)
    lost: Any = Views({own: replace(view, reason=why)})
    all_seeing = Renderer(replace(board, workloads=lost), now, {}, False).read_by(lambda workload: True)
    reader = all_seeing.read_by(lambda workload: True, lambda project: False)
    assert "secret-job" in str(all_seeing.workload(view)) and b"secret-job" in all_seeing.encoded(view)
    for told in (str(reader.workload(view)), reader.encoded(view).decode()):
        assert "secret-job" not in told and "team-b" not in told and "team-a" in told
