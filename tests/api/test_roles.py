"""Roles that an administrator makes of permission sets: what they allow, where, and how they end."""

from collections import Counter
from typing import Any

import pytest

from pliant.model.identity import CustomRole
from pliant.model.rights import (
    PROJECT,
    ROLES,
    SETS,
    SYSTEM,
    TABLE,
    TENANT,
    Grant,
    Place,
    cell,
    has_all,
    may,
    may_grant,
    permission,
)
from pliant.wire.access import RoleItem, RoleList
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.people import program
from tests.api.stage import IMAGE, stage, until

MADE, RULES = "/api/v2/authorization/roles", "/api/v1/authorization/access-rules"
WORKLOADS = "/api/v1/workloads"


def make(api: Api, name: str, *sets: str, status: int = 201, **more: Any) -> dict[str, Any]:
    headers = more.pop("headers", {})
    body = {"name": name, "permissionSets": [{"id": it} for it in sets], **more}
    return api.call("POST", MADE, status, json=body, headers=headers)


def bind(api: Api, program: str, role: int, project: str = "", status: int = 201, **more: Any) -> Any:
    body = {"subjectType": "service-account", "subjectId": program, "roleId": role}
    body |= {"scopeType": "project", "scopeId": project} if project else {"scopeType": "tenant"}
    return api.call("POST", RULES, status, json=body, **more)


def submit(api: Api, project: str, status: int, headers: dict[str, str], name: str = "a") -> Any:
    body = {"name": name, "projectName": project, "spec": {"image": IMAGE}}
    return api.call("POST", f"{WORKLOADS}/trainings", status, json=body, headers=headers)


@pytest.fixture
def bot(api: Api) -> dict[str, str]:
    api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "other"})
    return program(api, "bot")


def test_sets_are_what_the_table_has() -> None:
    assert {right for row in SETS.values() for right in row.rights} == {*TABLE}
    for row in SETS.values():
        reads = [right for right in row.rights if permission(right).reads]
        assert row.id.endswith("ReadAccess") == (reads == [*row.rights])
        assert len({right for right in row.rights if right not in reads}) == 0 or row.id.endswith(
            "EditAccess"
        )


def test_a_role_may_do_what_its_sets_do_together_within_the_scope(api: Api, bot: dict[str, str]) -> None:
    role = make(api, "Submitter", "workloadsEditAccess", "nodesReadAccess", description="Submits.")
    conform(RoleItem, role)
    assert role["id"] > max(it.id for it in ROLES) and role["custom"] and role["enabled"]
    told = {f"{it['resourceType']}:{action}" for it in role["permissions"] for action in it["actions"]}
    assert told == {*SETS["workloadsEditAccess"].rights, "nodes:read"}
    submit(api, "default", 403, bot)
    rule = bind(api, "bot", role["id"], "default")
    assert (rule["roleName"], rule["status"]["phase"]) == ("Submitter", "Ready")
    identity = submit(api, "default", 202, bot)["workloadId"]
    submit(api, "other", 404, bot)
    assert [it["id"] for it in api.call("GET", WORKLOADS, headers=bot)["workloads"]] == [identity]
    api.call("GET", "/api/v1/nodes", headers=bot)
    api.call("GET", "/api/v1/users", 403, headers=bot)
    assert api.call("GET", "/api/v1/whoami", headers=bot)["roles"][0]["role"] == "Submitter"
    scopes = api.call("GET", "/api/v1/authorization/permitted-scopes?resourceType=workloads", headers=bot)
    assert [it["type"] for it in scopes["scopes"]] == ["project"]


def test_who_may_not_read_workloads_sees_none_though_the_rule_is_for_the_tenant(
    api: Api, bot: dict[str, str]
) -> None:
    identity = submit(api, "default", 202, {})["workloadId"]
    bind(api, "bot", make(api, "Names", "projectsReadAccess")["id"])
    assert [it["name"] for it in api.call("GET", "/api/v1/org-unit/projects", headers=bot)["projects"]]
    api.call("GET", WORKLOADS, 403, headers=bot)
    api.call("GET", f"{WORKLOADS}/{identity}", 404, headers=bot)
    bind(api, "bot", make(api, "Looks", "workloadsReadAccess")["id"], "other")
    assert api.call("GET", WORKLOADS, headers=bot)["workloads"] == []


def test_changes_act_on_the_next_request_and_a_role_in_use_is_disabled_first(
    api: Api, bot: dict[str, str]
) -> None:
    role = make(api, "Looks", "workloadsReadAccess")["id"]
    rule = bind(api, "bot", role)["id"]
    api.call("GET", WORKLOADS, headers=bot)
    told = api.call("PUT", f"{MADE}/looks", json={"permissionSets": [{"id": "nodesReadAccess"}]})
    assert (told["name"], told["permissionSets"]) == (
        "Looks",
        [{"id": "nodesReadAccess", "name": "nodesReadAccess"}],
    )
    api.call("GET", WORKLOADS, 403, headers=bot)
    api.call("GET", "/api/v1/nodes", headers=bot)
    assert "Disable it first" in api.call("DELETE", f"{MADE}/{role}", 409)["details"]
    assert api.call("POST", f"{MADE}/{role}/disable")["effectiveEnabled"] is False
    api.call("GET", "/api/v1/nodes", 403, headers=bot)
    assert api.get(f"{RULES}/{rule}")["status"]["phase"] == "NotReady"
    api.call("POST", f"{MADE}/{role}/enable")
    api.call("GET", "/api/v1/nodes", headers=bot)
    api.call("PUT", f"{MADE}/{role}", json={"enabled": False, "name": "Gone soon"})
    api.call("DELETE", f"{MADE}/{role}", 204)
    api.call("GET", f"{RULES}/{rule}", 404)
    api.call("GET", f"{MADE}/{role}", 404)
    assert make(api, "Looks", "workloadsReadAccess")["id"] > role  # ids are not reused
    records = [record for _, record in api.stage.service.audited(0, 2**60) if record.entity == "Role"]
    done = Counter(record.action for record in records if record.status == 0)
    assert done == {"create": 2, "update": 4, "delete": 1}
    renamed = {change.field: change.after for record in records for change in record.changes}
    assert renamed["Role.name"] == '"Looks"' and "Role.updated" not in renamed


def test_the_built_in_roles_refuse_change(api: Api) -> None:
    known = api.get(MADE)
    conform(RoleList, known)
    for role in known["roles"]:
        for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable")):
            body = {"json": {"name": "Mine"}} if method == "PUT" else {}
            told = api.call(method, f"{MADE}/{role['id']}{path}", 409, **body)
            assert "built in" in told["message"]
    assert api.get(MADE) == known


def test_names_and_sets_that_cannot_be(api: Api) -> None:
    make(api, "Looks", "workloadsReadAccess")
    for name in ("looks", "Viewer", "ADMIN", "researcher"):
        assert "already exists" in make(api, name, "nodesReadAccess", status=409)["message"]
    for name in ("17", " x", "x "):
        make(api, name, "nodesReadAccess", status=400)
    told = make(api, "Odd", "nodesReadAcces", status=400)
    assert "'nodesReadAcces'" in told["message"] and "permission-sets" in told["details"]
    odd = {"name": "Odd", "permissionSets": [{"id": "nodesReadAccess", "name": "other"}]}
    api.call("POST", MADE, 400, json=odd)
    make(api, "Odd", status=400)
    api.call("PUT", f"{MADE}/Looks", 409, json={"name": "Viewer"})
    api.call("PUT", f"{MADE}/nobody", 404, json={"name": "x1"})


def test_nobody_makes_a_role_that_may_do_more_than_they_may(api: Api, bot: dict[str, str]) -> None:
    """Otherwise an account that may write roles could extend the role that it has."""
    own = make(api, "Roles", "rolesEditAccess", "accessRulesEditAccess")
    bind(api, "bot", own["id"])
    make(api, "Small", "usersReadAccess", headers=bot)
    make(api, "Large", "serverEditAccess", headers=bot, status=403)
    wider = {"permissionSets": [{"id": "rolesEditAccess"}, {"id": "serverEditAccess"}]}
    api.call("PUT", f"{MADE}/Roles", 403, json=wider, headers=bot)
    larger = make(api, "Larger", "serverEditAccess", enabled=False)
    assert larger["enabled"] is False
    for method, path in (("POST", "/enable"), ("DELETE", "")):
        api.call(method, f"{MADE}/{larger['id']}{path}", 403, headers=bot)
    bind(api, "bot", larger["id"], status=403, headers=bot)
    bind(api, "bot", SYSTEM.id, status=403, headers=bot)


def test_a_user_who_outranks_by_a_disabled_role_is_not_reset(api: Api, bot: dict[str, str]) -> None:
    people = make(api, "People", "usersEditAccess", "accessRulesEditAccess")
    bind(api, "bot", people["id"])
    large = make(api, "Large", "serverEditAccess", enabled=False)
    api.call("POST", "/api/v1/users", 201, json={"email": "chief"})
    rule = {"subjectType": "user", "subjectId": "chief", "roleId": large["id"], "scopeType": "tenant"}
    api.call("POST", RULES, 201, json=rule)
    api.call("POST", "/api/v1/users/chief/password", 403, headers=bot)
    api.call("POST", "/api/v1/users", 201, json={"email": "small"})
    api.call("POST", "/api/v1/users/small/password", headers=bot)


def test_a_role_is_tried_out_and_written_once(api: Api) -> None:
    body = {"name": "Once", "permissionSets": [{"id": "nodesReadAccess"}]}
    api.call("POST", f"{MADE}?dryRun=true", 200, json=body)
    assert "Once" not in str(api.get(MADE))
    key = {"Idempotency-Key": "one"}
    first = api.call("POST", MADE, 201, json=body, headers=key)
    assert api.call("POST", MADE, 201, json=body, headers=key) == first


def test_roles_outlive_the_server(tmp_path: Any) -> None:
    kept = CustomRole(0, "Looks", "Looks.", ("nodesReadAccess",))
    with stage(tmp_path) as made:
        first = made.service.roles.create(kept)
        second = made.service.roles.create(CustomRole(0, "Other"))
        made.service.roles.delete(second.id)
    with stage(tmp_path) as again:
        assert {**again.service.board.access.roles} == {first.id: first}
        assert again.service.roles.create(CustomRole(0, "Third")).id > second.id


def test_users_and_programs_tell_when_they_were_changed(api: Api) -> None:
    api.call("POST", "/api/v1/users", 201, json={"email": "anna"})
    api.call("POST", "/api/v1/service-accounts", 201, json={"name": "bot"})
    assert api.get("/api/v1/users/anna")["groups"] == []
    for path, body in (("users/anna", {"enabled": False}), ("service-accounts/bot", {"enabled": False})):
        made = api.get(f"/api/v1/{path}")
        assert made["updatedAt"] == made["createdAt"]

        def later(path: str = path, body: Any = body, before: str = made["updatedAt"]) -> bool:
            return bool(api.call("PATCH", f"/api/v1/{path}", json=body)["updatedAt"] > before)

        until(later)
        assert api.get(f"/api/v1/{path}")["createdAt"] == made["createdAt"]


# -- the arithmetic of grants -------------------------------------------------------------------------


def test_a_right_of_a_made_role_holds_where_it_does_for_an_administrator() -> None:
    here, there = Place("d", "p"), Place("d", "q")
    for right in TABLE:
        grant, letter = Grant(101, here, frozenset({right})), cell(SYSTEM.id, right)
        free = right.startswith("self:")
        assert may([grant], right, here, own=True) == (letter in "ASOH" or free)
        assert may([grant], right, there) == (letter == "A" or free)
        assert may([Grant(101, TENANT, frozenset({right}))], right, there, own=True)
        others = [it for it in TABLE if it != right and not it.startswith("self:")]
        assert not any(may([grant], it, here) for it in others)


def test_a_project_administrator_gives_a_role_of_less_and_not_one_of_more() -> None:
    here = Place("d", "p")
    own = [Grant(PROJECT.id, here)]
    assert may_grant(own, Grant(101, here, frozenset({"workloads:read", "workloads:create"})))
    assert not may_grant(own, Grant(101, here, frozenset({"projects:quota"})))
    assert not may_grant(own, Grant(101, TENANT, frozenset({"workloads:read"})))
    assert has_all([Grant(SYSTEM.id)], Grant(101, TENANT, frozenset(TABLE)))
    assert not has_all(own, Grant(101, TENANT, frozenset({"workloads:read"})))
