"""Every role is offered a page or an action if and only if its rights allow it. Without a browser."""

import asyncio
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from examples.walkthrough import Stage
from pliant.console.calls import Calls, Reader
from pliant.console.remedies import RIGHTS, allowed
from pliant.console.rights import Reach, Rights
from pliant.model.rights import ROLES, Grant, Place, Role, may
from tests.console.conftest import typed
from tests.console.test_door import Told, ask, cookie, log_in

pytestmark = pytest.mark.timeout(900)  # a busy machine

PAGES = {
    "overview": "clusters:read",
    "workloads": "workloads:read",
    "templates": "assets:read",
    "environments": "assets:read",
    "compute-resources": "assets:read",
    "clusters": "clusters:read",
    "nodes": "nodes:read",
    "node-pools": "nodepools:read",
    "departments": "departments:read",
    "projects": "projects:read",
    "quotas": "projects:quota",
    "reports": "reports:read",
    "what-if": "what-if:read",
    "replay": "replay:read",
    "policies": "policies:read",
    "users": "users:read",
    "service-accounts": "applications:read",
    "access-rules": "access-rules:read",
    "roles": "roles:read",
    "event-history": "audit:read",
    "general-settings": "settings:read",
    "notifications": "self:read",  # everybody's
}
"""In the order of the navigation."""

BUTTONS = {
    ("workloads", "+ New workload"): "workloads:create",
    ("templates", "+ New template"): "assets:write",
    ("environments", "+ New environment"): "assets:write",
    ("compute-resources", "+ New compute resource"): "assets:write",
    ("nodes", "Cordon"): "nodes:update",
    ("nodes", "Drain"): "nodes:update",
    ("node-pools", "+ New node pool"): "nodepools:write",
    ("departments", "+ New department"): "departments:create",
    ("projects", "+ New project"): "projects:create",
    ("projects", "Edit quotas"): "projects:quota",
    ("policies", "+ New policy"): "policies:write",
    ("users", "+ New user"): "users:write",
    ("service-accounts", "+ New service account"): "applications:write",
    ("access-rules", "+ New access rule"): "access-rules:write",
    ("quotas", "Preview"): "projects:quota",
    ("quotas", "Save"): "projects:quota",
    ("what-if", "+ Another quota"): "what-if:read",
    ("what-if", "+ A node is drained"): "nodes:read",
    ("replay", "First"): "replay:read",
    ("event-history", "CSV of all"): "audit:read",
    ("event-history", "JSON of all"): "audit:read",
    ("notifications", "+ New notification"): "self:write",
    ("notifications", "Send a test message"): "self:write",
    ("notifications", "Set the mail server"): "settings:update",
    ("settings", "+ New access key"): "self:write",
    ("welcome", "Continue"): "projects:create",
    ("new/trainings", "Continue"): "workloads:create",
}
"""Every button that a page has outside of tables."""

OTHERS = {"settings": "self:read", "welcome": "projects:create", "new/trainings": "workloads:create"}
"""Pages that are not in the navigation."""

OF_WORKLOADS = {
    "Stop": "workloads:update",
    "Cancel": "workloads:update",
    "Make a copy": "workloads:create",
    "Delete": "workloads:delete",
}
OF_ASSETS = {"Edit": "assets:write", "Delete": "assets:write"}
OF_ACCOUNTS = {"Disable": "users:write", "New password": "users:write", "Log out everywhere": "users:write"}
OF_PROGRAMS = {"Disable": "applications:write", "New secret": "applications:write"}

ROWS: dict[str, dict[str, dict[str, str]]] = {
    "workloads": {"in-team-a": OF_WORKLOADS, "in-far-away": OF_WORKLOADS},
    "projects": {
        name: {
            "Edit": "projects:update",
            "Rules": "projects:update",
            "Members": "access-rules:read",
            "Delete": "projects:delete",
        }
        for name in ("team-a", "far-away")
    },
    "departments": {
        "far": {
            "Edit": "departments:update",
            "Members": "access-rules:read",
            "Delete": "departments:delete",
        }
    },
    "node-pools": {"default": {"Edit": "nodepools:write"}},
    "environments": {"of-all": OF_ASSETS, "of-team-a": OF_ASSETS, "of-far-away": OF_ASSETS},
    "compute-resources": {"of-all": OF_ASSETS, "of-team-a": OF_ASSETS},
    "templates": {"of-all": OF_ASSETS, "of-far-away": OF_ASSETS},
    "policies": {
        f"Training policy of project {name}": {
            "Show": "policies:read",
            "Edit": "policies:write",
            "Delete": "policies:write",
        }
        for name in ("team-a", "far-away")
    },
    "users": {"alice": {**OF_ACCOUNTS, "Delete": "users:write"}},
    "service-accounts": {"nightly": {**OF_PROGRAMS, "Delete": "applications:write"}},
    "access-rules": {name: {"Delete": "access-rules:write"} for name in ("alice", "nightly")},
    "event-history": {"root": {"Show what changed": "audit:read"}},
    "general-settings": {"stale-grace": {"Edit": "settings:update"}},
}
"""Page -> name of a row -> each action of its menu -> the right that it needs at the row's place."""

WHERE = {
    **dict.fromkeys(("in-team-a", "team-a", "of-team-a", "Training policy of project team-a"), "team-a"),
    **dict.fromkeys(("in-far-away", "far-away", "of-far-away"), "far-away"),
    "Training policy of project far-away": "far-away",
    "far": "far",
    "nightly": "far-away",  # the place of its rule; a program itself has none
    "alice": "team-a",
}
"""Row -> its project or department; other rows belong to the tenant."""

ANYWHERE = {"users:write", "applications:write", "access-rules:read", "policies:read", "audit:read"}
"""Rights whose actions are offered to holders at any scope: the server then checks the exact scope."""

REGIONS = {"Logs": "workloads:logs", "Terminal": "workloads:exec"}


class Shown:
    """The elements of a page as first served, before its browser connects."""

    def __init__(self, told: Told) -> None:
        assert told.status == 200, told.status
        found = re.search(r"parseElements\(String\.raw`(.*?)`", told.body, re.DOTALL)
        assert found is not None
        self.elements: dict[str, Any] = json.loads(html.unescape(found[1]))
        self.seen = list(self._visible("0"))

    def _visible(self, key: str) -> Iterator[Mapping[str, Any]]:
        element = self.elements[key]
        if "hidden" not in element.get("class", ()):
            yield element
            for child in element.get("children", ()):
                yield from self._visible(str(child))

    @property
    def links(self) -> list[str]:
        found = [it.get("props", {}).get("href", "") for it in self.seen if it["tag"] == "a"]
        return [it.removeprefix("/console/") for it in found]

    @property
    def buttons(self) -> set[str]:
        return {str(it["props"].get("label")) for it in self.seen if it["tag"] == "q-btn"}

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Rows of all tables; one without a column of actions offers none, whatever its rows contain."""
        found: list[Mapping[str, Any]] = []
        for props in (it.get("props", {}) for it in self.seen):
            offers = any(column["name"] == "actions" for column in props.get("columns", ()))
            rows = json.loads(props.get("told", "[]"))
            found += [row if offers else {**row, "actions": ""} for row in rows]
        return found

    @property
    def said(self) -> str:
        return " ".join(str(it.get("text") or "") for it in self.seen)


@pytest.fixture(scope="module")
def places(stage: Stage) -> dict[str, tuple[Place, str]]:
    """Two projects of two departments -> (place, the id of a workload that runs there)."""
    typed(stage, "pliant department create far --quota 1")
    typed(stage, "pliant project create far-away --department far --quota 1")
    token = (stage.state / "token").read_text().strip()
    for name in ("team-a", "far-away"):
        typed(stage, f"pliant submit in-{name} -p {name} -g 1 -i ubuntu -- sleep infinity")
        typed(stage, f"pliant wait in-{name} -p {name} --for running")
    found = {}
    workloads = _get(stage, token, "/api/v1/workloads")["workloads"]
    for it in _get(stage, token, "/api/v1/org-unit/projects")["projects"]:
        own = [one["id"] for one in workloads if one["projectId"] == it["id"]]
        if own:
            found[it["name"]] = Place(it["parentId"], it["id"]), own[0]
    _fill(stage, token, {name: place for name, (place, _) in found.items()})
    return found


def _fill(stage: Stage, token: str, places: Mapping[str, Place]) -> None:
    """Makes something of each kind, in the tenant and in both projects."""
    for name, place in {"all": Place(), **places}.items():
        scope = {"scope": place.kind, "scopeId": place.project or None}
        meta = {"name": f"of-{name}", **scope}
        for path, spec in (
            ("asset/environment", {"image": "ubuntu"}),
            ("asset/compute", {"gpuDevicesRequest": 1}),
            ("workload-templates/trainings", {"image": "ubuntu"}),
        ):
            _send(stage, token, "POST", f"/api/v1/{path}", {"meta": meta, "spec": spec})
        if place.project:
            owner = {"scope": "project", "projectId": place.project}
            policy = {"rules": {"image": {"required": True}}}
            _send(stage, token, "PUT", "/api/v2/policy/trainings", {"meta": owner, "policy": policy})
    typed(stage, "pliant user create alice")
    typed(stage, "pliant access-rule create --user alice --role viewer --in-project team-a")
    typed(stage, "pliant app create nightly")
    typed(stage, "pliant access-rule create --app nightly --role viewer --in-project far-away")


def _send(stage: Stage, token: str, method: str, path: str, body: Any) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    told = ask(stage, method, path, headers, text=json.dumps(body))
    assert told.status < 300, (path, told.body)


def _get(stage: Stage, token: str, path: str) -> Any:
    return json.loads(ask(stage, "GET", path, {"Authorization": f"Bearer {token}"}).body)


def _scope(role: Role, places: Mapping[str, tuple[Place, str]]) -> Place:
    """A role's scope: the tenant for role 1, team-a's department for department roles, otherwise team-a."""
    place = places["team-a"][0]
    if role.id == 1:
        return Place()
    return Place(place.department) if "epartment" in role.name else place


def _logged_in(stage: Stage, role: Role, scope: Place) -> dict[str, str]:
    """The cookie of a browser logged in as a program with the role at that scope."""
    name = f"role-{role.id}"
    told = json.loads(typed(stage, f"pliant app create {name} -o json"))
    where = "--in-project team-a" if scope.project else "--department default" if scope.department else ""
    typed(stage, f"pliant access-rule create --app {name} --role '{role.name}' {where}")
    return cookie(log_in(stage, f"plk_{told['clientId']}_{told['clientSecret']}"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_what_is_offered_is_what_is_allowed(
    stage: Stage, places: dict[str, tuple[Place, str]], role: Role
) -> None:
    scope = _scope(role, places)
    grants = [Grant(role.id, scope)]
    browser = _logged_in(stage, role, scope)

    def look(path: str) -> Shown:
        return Shown(ask(stage, "GET", f"/console/{path}", browser))

    allowed = [path for path, right in PAGES.items() if may(grants, right)]
    far = places["far-away"][0]
    where = {"team-a": places["team-a"][0], "far-away": far, "far": Place(far.department)}
    seen = set()
    for path, right in {**PAGES, **OTHERS}.items():
        shown = look(path)
        links = [it for it in shown.links if it in PAGES]
        assert list(dict.fromkeys(links)) == allowed, path
        assert ("You may not see this page" in shown.said) is not may(grants, right), path
        for (page, label), needed in BUTTONS.items():
            if page == path:
                expected = may(grants, right) and may(grants, needed)
                assert (label in shown.buttons) is expected, (path, label)
        for row in shown.rows:
            name = str(row["name"])
            if name in ROWS.get(path, {}) and not (path == "event-history" and not row["actions"]):
                seen.add((path, name))
                place = where.get(WHERE.get(name, ""), Place())
                offered = set((row["actions"] or "").split(",")) - {"", "Back to the default", "Run"}
                expected_here = {
                    label
                    for label, needed in ROWS[path][name].items()
                    if may(grants, needed, None if needed in ANYWHERE else place)
                }
                assert offered == expected_here, (path, name)
    if role.id == 1:
        assert seen == {(path, name) for path, rows in ROWS.items() for name in rows}
    for project, (place, workload) in places.items():
        shown = look(f"workloads/{workload}")
        reads = may(grants, "workloads:read", place)
        for region, needed in REGIONS.items():
            expected = reads and may(grants, needed, place)
            assert (region in shown.said.split(" ")) is expected, (project, region)
        for label, needed in OF_WORKLOADS.items():
            expected = reads and may(grants, needed, place)
            assert (label in shown.buttons) is expected, (project, label)


CURES = {
    "quota": ("projects:quota", {"kind": "project", "name": "team-a"}),
    "limit": ("departments:update", {"kind": "department", "name": "default"}),
    "end": ("workloads:update", {"kind": "workload", "name": "in-team-a"}),
    "uncordon": ("nodes:update", {"kind": "node", "name": "sim-0"}),
}
"""Kind of a remedy -> (the right that it needs, its object)."""


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_cure_has_a_button_for_those_who_may_make_it(
    places: dict[str, tuple[Place, str]], role: Role
) -> None:
    scope, (place, workload) = _scope(role, places), places["team-a"]
    grants = [Grant(role.id, scope)]
    ids = {"project": place.project, "department": place.department, "workload": workload, "node": ""}
    answers = {
        f"/api/v1/org-unit/projects/{place.project}": {"id": place.project, "parentId": place.department},
        f"/api/v1/workloads/{workload}": _item(place),
    }

    class Told(Calls):
        async def get(self, path: str, query: Sequence[tuple[str, Any]] = ()) -> Any:
            return answers[path]

    rights = Rights("another")
    for right in (*RIGHTS, *OF_WORKLOADS.values()):
        held = {(at.kind, at.project or at.department) for at in (Place(), Place(place.department), place)}
        rights.reaches[right] = Reach(frozenset(it for it in held if _holds(grants, right, it)))
    for kind, (needed, whom) in CURES.items():
        at = Place() if kind == "uncordon" else Place(place.department) if kind == "limit" else place
        remedy = {"steps": [{"kind": kind, "whom": [{**whom, "id": ids[whom["kind"]]}]}]}
        made = asyncio.run(allowed(Told(None, Reader()), rights, remedy, {}))  # type: ignore[arg-type]
        assert made is may(grants, needed, at), (kind, role.name)


def _holds(grants: list[Grant], right: str, scope: tuple[str, str]) -> bool:
    """True if the API reports that right at that scope: it holds at the scope of each rule."""
    place = grants[0].scope
    return scope == (place.kind, place.project or place.department) and may(grants, right)


def _item(place: Place) -> dict[str, Any]:
    return {
        "desiredPhase": "Running",
        "actionsSupport": {"suspend": True, "delete": True},
        "departmentId": place.department,
        "projectId": place.project,
        "submittedBy": "root",
    }
