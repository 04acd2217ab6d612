"""For every role, page and action: offered if and only if the rights allow it. Without a browser."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from examples.walkthrough import Stage
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
}

ROWS = {
    "workloads": {
        "Stop": "workloads:update",
        "Cancel": "workloads:update",
        "Make a copy": "workloads:create",
        "Delete": "workloads:delete",
    },
    "projects": {"Edit": "projects:update", "Rules": "projects:update", "Delete": "projects:delete"},
}
"""Page with a row for each of two projects -> action -> what it needs there."""

REGIONS = {"Logs": "workloads:logs", "Terminal": "workloads:exec"}


class Shown:
    """What a page brings with it before its browser has said anything."""

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
        return [row for it in self.seen for row in it.get("props", {}).get("rows", ())]

    @property
    def said(self) -> str:
        return " ".join(str(it.get("text") or "") for it in self.seen)


@pytest.fixture(scope="module")
def places(stage: Stage) -> dict[str, tuple[Place, str]]:
    """Two projects of two departments: where they are, and the id of a workload that runs there."""
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
    return found


def _get(stage: Stage, token: str, path: str) -> Any:
    return json.loads(ask(stage, "GET", path, {"Authorization": f"Bearer {token}"}).body)


def _scope(role: Role, places: Mapping[str, tuple[Place, str]]) -> Place:
    """The administrator has the tenant, the roles of a department that of team-a, the others team-a."""
    place = places["team-a"][0]
    if role.id == 1:
        return Place()
    return Place(place.department) if "epartment" in role.name else place


def _logged_in(stage: Stage, role: Role, scope: Place) -> dict[str, str]:
    """A browser's cookie of a program that has the role there."""
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
    for path, right in PAGES.items():
        shown = look(path)
        links = [it for it in shown.links if it in PAGES]
        assert list(dict.fromkeys(links)) == allowed, path
        assert ("You may not see this page" in shown.said) is not may(grants, right), path
        for (where, label), needed in BUTTONS.items():
            if where == path:
                expected = may(grants, right) and may(grants, needed)
                assert (label in shown.buttons) is expected, (path, label)
        for row in shown.rows if path in ROWS else ():
            for project, (place, _) in places.items():
                if row["name"] in (project, f"in-{project}"):
                    offered = (row["actions"] or "").split(",")
                    for label, needed in ROWS[path].items():
                        assert (label in offered) is may(grants, needed, place), (path, project, label)
    for project, (place, workload) in places.items():
        shown = look(f"workloads/{workload}")
        reads = may(grants, "workloads:read", place)
        for region, needed in REGIONS.items():
            expected = reads and may(grants, needed, place)
            assert (region in shown.said.split(" ")) is expected, (project, region)
