"""Roles at scopes: what is left out, what is "not found", what is refused, what is recorded."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from pliant.api.app import ROUTERS
from pliant.api.connections.peer import PEER
from pliant.api.guard import check_routes, needs, needs_of
from pliant.api.identity.accounts import Known
from pliant.api.responses.workloads import Renderer
from pliant.model.audit import AuditRecord
from pliant.model.event import Event, EventKind
from pliant.model.identity import Account, subject_of
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
from tests.api.stage import IMAGE, Stage, until

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


def test_what_may_not_be_seen_is_named_in_vain_everywhere(api: Api, teams: dict[str, Place]) -> None:
    """The answer is the same as for what does not exist: else names could be guessed."""
    chief = program(api, "chief", (PROJECT.id, teams["a"]))
    submitted(api, "team-b", {})
    policy = {"meta": {"projectId": teams["b"].project}, "policy": {"defaults": {"command": "x"}}}
    api.call("PUT", "/api/v2/policy/trainings", json=policy)

    def asked(project: str, department: str, job: str) -> list[str]:
        work = {"name": "a", "projectName": project, "spec": {"image": IMAGE}}
        booking = {"name": "nightly", "projectName": project, "gpus": 1, "end": "2100-01-01T00:00:00Z"}
        requests: list[tuple[str, str, Any]] = [
            ("POST", "/api/v1/workloads/trainings", work),
            ("POST", "/api/v1/bookings", booking),
        ]
        for change in (
            {"kind": "quota", "project": project, "to": 1},
            {"kind": "quota", "department": department, "to": 1},
            {"kind": "submit", "project": project},
            {"kind": "end", "workload": job},
            {"kind": "priority", "workload": job, "to": 1, "project": project},
        ):
            requests.append(("POST", "/api/v1/what-if", {"changes": [change]}))
        for kind, key in (("project", project), ("department", department)):
            meta = {"scope": kind, f"{kind}Id": key}
            rule = {"subjectType": "group", "subjectId": "g", "roleName": "Viewer", "scopeType": kind}
            named = {"meta": {"name": "small", **meta}, "spec": {"cpuCoreRequest": 1}}
            requests += [
                ("POST", "/api/v1/authorization/access-rules", {**rule, "scopeId": key}),
                ("POST", "/api/v1/asset/compute", named),
                ("GET", f"/api/v2/policy/trainings?scope={kind}&{kind}Id={key}", None),
                ("PUT", "/api/v2/policy/trainings", {**policy, "meta": meta}),
                ("POST", "/api/v2/policy/trainings/preview", {**policy, "meta": meta}),
            ]
        answers = [
            json.dumps(api.call(method, path, 404, headers=chief, json=body))
            for method, path, body in requests
        ]
        return [it.replace(job, "J").replace(project, "P").replace(department, "D") for it in answers]

    assert asked("team-b", "dept-b", "job-team-b") == asked("nobody", "nowhere", "nothing")
    mine = submitted(api, "team-a", chief)
    for changes in (
        [{"kind": "end", "workload": "job-team-a"}],
        [{"kind": "end", "workload": mine, "project": "team-a"}, {"kind": "submit", "project": "team-a"}],
        [
            {"kind": "submit", "project": "team-a", "name": "b"},
            {"kind": "priority", "workload": "b", "to": 1},
        ],
    ):
        api.call("POST", "/api/v1/what-if", headers=chief, json={"changes": changes})


def test_a_rule_that_is_gone_counts_no_more(api: Api, teams: dict[str, Place]) -> None:
    mine = program(api, "mine", (PRACTITIONER.id, teams["a"]))
    api.call("GET", WORKLOADS, headers=mine)
    rule = api.stage.service.board.access.rules["mine-0"]
    api.stage.loop.call(lambda draft: draft.drop(rule))
    api.call("GET", WORKLOADS, 403, headers=mine)


def test_a_project_that_is_gone_takes_its_rules_along_and_nothing_gets_its_id(
    api: Api, teams: dict[str, Place]
) -> None:
    """The same for a department: its roles do not apply to a department that is made later."""
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


def test_what_is_done_is_recorded_whatever_dry_run_says_first(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last `dryRun` of a query counts, in each of its spellings, for the record as for the route."""
    own = api.submit("a")["workloadId"]
    monkeypatch.setattr(type(api.stage.service), "signal", lambda *_: 1)
    before = len(records(api))
    api.call("POST", f"{WORKLOADS}/{own}/signal?number=10&dryRun=true&dryRun=false")
    assert [it.path for it in records(api)[before:]] == [f"{WORKLOADS}/{own}/signal"]
    body = {"name": "x", "projectName": "default", "spec": {"image": IMAGE}}
    for word in ("True", "1", "yes"):
        api.call("POST", f"{WORKLOADS}/trainings?dryRun={word}", json=body)
    assert len(records(api)) == before + 1


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
    """Views of a board on which nothing holds GPUs."""

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


# -- on a machine that accounts share ---------------------------------------------------------------

UIDS = {"alice": 5001, "bob": 5002, "chief": 5003}
SECRET_COMMAND = {"image": IMAGE, "command": "train 'nobody else knows'", "workingDir": "/home/alice/hidden"}


@pytest.fixture
def shared(on_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A server of accounts: alice and bob do research in a project, and chief administers it."""
    known = {uid: Known(Account(uid, name), ()) for name, uid in UIDS.items()}
    monkeypatch.setattr("pliant.api.identity.accounts.look_up", known.get)

    def beside(app: ASGIApp) -> ASGIApp:
        async def from_account(scope: Scope, receive: Receive, send: Send) -> None:
            headers = dict(scope.get("headers", ()))
            if b"x-uid" in headers:
                scope["state"] = {**scope.get("state", {}), PEER: int(headers[b"x-uid"])}
            await app(scope, receive, send)

        return from_account

    project = next(view.queue for view in on_stage.service.board.projects.values())
    here = Place(project.department, project.id)  # type: ignore[union-attr]
    for name, uid in UIDS.items():
        role = PROJECT if name == "chief" else PRACTITIONER
        on_stage.service.identities.create_rule(subject_of("unix", name), role.id, here, "root", uid)
    app = on_stage.app(box=True, least=1000, beside=beside)
    with TestClient(app, raise_server_exceptions=False) as http:
        yield Api(on_stage, http)


def by(name: str) -> dict[str, str]:
    return {"X-Uid": str(UIDS[name])}


def hers(shared: Api, kind: str) -> str:
    body = {"name": "hers", "projectName": "default", "spec": SECRET_COMMAND}
    made = shared.call("POST", f"{WORKLOADS}/{kind}", 202, json=body, headers=by("alice"))
    return str(made["workloadId"])


@pytest.mark.parametrize("kind", ["trainings", "inferences"])
def test_on_a_shared_machine_what_a_job_runs_is_its_owners_to_know_by_each_path(
    shared: Api, kind: str
) -> None:
    own = hers(shared, kind)
    for path in (f"{WORKLOADS}/{own}", f"{WORKLOADS}/{kind}/{own}"):
        assert "nobody else knows" in str(shared.call("GET", path, headers=by("alice")))
        for other in ("bob", "chief"):
            seen = str(shared.call("GET", path, headers=by(other)))
            assert "hers" in seen and "nobody else knows" not in seen and "hidden" not in seen, (path, other)
    rules = {"command": {"options": [{"value": "other"}]}, "workingDir": {"blocked": True}}
    body = {"meta": {"scope": "project", "projectId": "default"}, "policy": {"rules": rules}}
    told = shared.call("POST", f"/api/v2/policy/{kind}/preview", headers=by("chief"), json=body)
    issues = told["workloads"][0]["complianceIssues"]
    assert {it["field"] for it in issues} == {"spec.command", "spec.workingDir"}
    assert "nobody else knows" not in str(told)


def test_on_a_shared_machine_what_an_inference_runs_is_changed_by_its_owner_alone(shared: Api) -> None:
    """Whoever changed it could run anything as its owner's account."""
    own = hers(shared, "inferences")
    path = f"{WORKLOADS}/inferences/{own}"
    shared.call("POST", f"{path}/suspend", 202, headers=by("chief"))
    until(lambda: shared.call("GET", f"{WORKLOADS}/{own}", headers=by("chief"))["phase"] == "Stopped")
    for spec in ({"command": "id"}, {"image": "other"}, {"workingDir": "/root"}, {"args": "x"}):
        refused = shared.call("PATCH", path, 403, headers=by("chief"), json={"spec": spec})
        assert "workloads:exec" in refused["message"]
    more = {"autoscaling": {"minReplicas": 2}, "priorityClass": "low"}
    told = shared.call("PATCH", path, 202, headers=by("chief"), json={"spec": more})
    assert told["spec"]["autoscaling"]["minReplicas"] == 2 and "nobody else knows" not in str(told)
    told = shared.call("PATCH", path, 202, headers=by("alice"), json={"spec": {"command": "id"}})
    assert told["spec"]["command"] == "id"


def test_on_a_shared_machine_nobody_reads_what_is_shared_by_having_a_name(
    shared: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = hers(shared, "trainings")
    path = f"{WORKLOADS}/{own}"
    shared.call("PUT", f"{path}/sharing", json={"sharedWith": ["user:bob"]}, headers=by("alice"))
    shared.call("GET", f"{path}/logs", 403, headers=by("chief"))
    assert shared.http.get(f"{path}/logs", headers=by("bob")).status_code == 200
    place = next(iter(shared.stage.service.board.access.rules.values())).scope
    shared.call("GET", f"{path}/logs", 403, headers=program(shared, "bob", (EDITOR.id, place)))
    admin = program(shared, "admin", (SYSTEM.id, TENANT))
    monkeypatch.setattr("pliant.api.routes.access.identity.by_name", UIDS.get)
    for path, body in (("users", {"email": "bob"}), ("service-accounts", {"name": "bob"})):
        refused = shared.call("POST", f"/api/v1/{path}", 409, headers=admin, json=body)
        assert "'bob' is an account of this machine" in refused["message"]
    shared.call("POST", "/api/v1/users", 201, headers=admin, json={"email": "bob@lab"})
