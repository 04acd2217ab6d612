"""Projects, nodes, settings and the server itself; `call` and `pages` reach every other route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pliant.client.errors import Unreachable
from pliant.client.transport import Query, Stream, Transport, segment

if TYPE_CHECKING:
    from pliant.wire.cluster import ClusterItem, NodeItem, NodePoolItem, TopologyItem
    from pliant.wire.events import EventItem
    from pliant.wire.organization import OrgUnitItem
    from pliant.wire.server import Doctor, ServerItem

PAGE = 500
"""Entries per request; the server's maximum."""


class Administration:
    """Administers one server. Raises the errors of pliant.client.errors."""

    _http: Transport

    def call(self, method: str, path: str, *, query: Query = (), body: Any = None) -> Any:
        """Calls any route and returns the decoded answer."""
        return self._http.call(method, path, query=query, body=body)

    def pages(self, path: str, query: Query = ()) -> Iterator[dict[str, Any]]:
        """Yields all entries of a list and reads it page by page."""
        offset = 0
        while True:
            answer = self._http.call("GET", path, query=[*query, ("offset", offset), ("limit", PAGE)])
            found = entries(answer)
            yield from found
            following = answer.get("next") if isinstance(answer, dict) else None
            if not following or not found:
                return
            offset = following if isinstance(following, int) else offset + len(found)

    # -- organization and nodes

    def projects(self) -> Iterator[OrgUnitItem]:
        return cast("Iterator[OrgUnitItem]", self.pages("/api/v1/org-unit/projects"))

    def departments(self) -> Iterator[OrgUnitItem]:
        return cast("Iterator[OrgUnitItem]", self.pages("/api/v1/org-unit/departments"))

    def project(self, name: str) -> OrgUnitItem:
        return cast("OrgUnitItem", self._http.call("GET", f"/api/v1/org-unit/projects/{segment(name)}"))

    def create_unit(self, units: str, body: Mapping[str, Any]) -> OrgUnitItem:
        """Create a project or department; `units` is "projects" or "departments"."""
        return cast("OrgUnitItem", self._http.call("POST", f"/api/v1/org-unit/{units}", body=body))

    def update_unit(self, units: str, name: str, body: Mapping[str, Any]) -> OrgUnitItem:
        """Change the fields that `body` names and leave the others."""
        path = f"/api/v1/org-unit/{units}/{segment(name)}"
        return cast("OrgUnitItem", self._http.call("PATCH", path, body=body, repeatable=True))

    def delete_unit(self, units: str, name: str) -> None:
        self._http.call("DELETE", f"/api/v1/org-unit/{units}/{segment(name)}")

    def clusters(self) -> list[ClusterItem]:
        return cast("list[ClusterItem]", entries(self._http.call("GET", "/api/v1/clusters")))

    def nodes(self) -> Iterator[NodeItem]:
        return cast("Iterator[NodeItem]", self.pages("/api/v1/nodes"))

    def node(self, name: str) -> NodeItem:
        return cast("NodeItem", self._http.call("GET", f"/api/v1/nodes/{segment(name)}"))

    def cordon(self, name: str, *, on: bool = True) -> None:
        """Stop placing work on that node; `on=False` allows it again."""
        self._http.call("POST", f"/api/v1/nodes/{segment(name)}/{'cordon' if on else 'uncordon'}")

    def update_node(self, name: str, body: Mapping[str, Any]) -> NodeItem:
        """Set labels and taints: {labels: {key: value or None}, taints: [{key, value, effect, exclude}]}."""
        path = f"/api/v1/nodes/{segment(name)}"
        return cast("NodeItem", self._http.call("PATCH", path, body=body, repeatable=True))

    def topologies(self) -> Iterator[TopologyItem]:
        return cast("Iterator[TopologyItem]", self.pages("/api/v1/network-topologies"))

    def create_topology(self, body: Mapping[str, Any]) -> TopologyItem:
        return cast("TopologyItem", self._http.call("POST", "/api/v1/network-topologies", body=body))

    def update_topology(self, name: str, body: Mapping[str, Any]) -> TopologyItem:
        path = f"/api/v1/network-topologies/{segment(name)}"
        return cast("TopologyItem", self._http.call("PUT", path, body=body, repeatable=True))

    def delete_topology(self, name: str) -> None:
        self._http.call("DELETE", f"/api/v1/network-topologies/{segment(name)}")

    def settings(self) -> dict[str, Any]:
        """{settings: [SettingItem], faults: [text]}"""
        return cast("dict[str, Any]", self._http.call("GET", "/api/v1/scheduling-settings"))

    def set_settings(self, body: Mapping[str, str | None]) -> dict[str, Any]:
        """Set values, written as in the CLI; None restores the default."""
        path = "/api/v1/scheduling-settings"
        return cast("dict[str, Any]", self._http.call("PATCH", path, body=body, repeatable=True))

    def happenings(self, subject: str) -> Iterator[EventItem]:
        """The events of a subject that is not a workload: cluster, node/NAME, project/ID ..."""
        return cast("Iterator[EventItem]", self.pages("/api/v1/events", [("subject", subject)]))

    def node_pools(self) -> Iterator[NodePoolItem]:
        return cast("Iterator[NodePoolItem]", self.pages("/api/v1/node-pools"))

    def create_node_pool(self, body: Mapping[str, Any]) -> NodePoolItem:
        return cast("NodePoolItem", self._http.call("POST", "/api/v1/node-pools", body=body))

    def update_node_pool(self, pool_id: str, body: Mapping[str, Any]) -> NodePoolItem:
        path = f"/api/v1/node-pools/{segment(pool_id)}"
        return cast("NodePoolItem", self._http.call("PATCH", path, body=body, repeatable=True))

    def delete_node_pool(self, pool_id: str) -> None:
        self._http.call("DELETE", f"/api/v1/node-pools/{segment(pool_id)}")

    # -- the server itself

    def whoami(self) -> dict[str, Any]:
        """{user, id, subject, account, roles, mustChangePassword}"""
        return cast("dict[str, Any]", self._http.call("GET", "/api/v1/whoami"))

    def token(self, body: Mapping[str, Any]) -> str:
        """An access token for credentials in Run:ai's form: {grantType, clientID, clientSecret, ...}."""
        return str(self.tokens(body)["accessToken"])

    def tokens(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """{accessToken, refreshToken, expiresIn}"""
        return cast("dict[str, Any]", self._http.call("POST", "/api/v1/token", body=body))

    def version(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._http.call("GET", "/version"))

    def ready(self) -> bool:
        """True if the server answers and is ready to work."""
        try:
            self._http.call("GET", "/readyz")
        except Unreachable:
            return False
        return True

    def server(self) -> ServerItem:
        return cast("ServerItem", self._http.call("GET", "/api/v1/server"))

    def doctor(self) -> Doctor:
        return cast("Doctor", self._http.call("GET", "/api/v1/server/doctor"))

    def console_link(self) -> tuple[str, str]:
        """A link that opens the web console once, logged in as this caller; it expires after 2 minutes.

        Returns (address of the console, "" if it is that of the API; path).
        """
        told = self.call("POST", "/console/link")
        return str(told.get("home") or ""), str(told["path"])

    def shutdown(self, *, stop_tasks: bool) -> None:
        self._http.call("POST", "/api/v1/server/shutdown", body={"stopTasks": stop_tasks})

    def backup(self, path: str) -> dict[str, Any]:
        """Write a consistent copy of the store to an absolute path on the server's machine."""
        return cast(
            "dict[str, Any]", self._http.call("POST", "/api/v1/server/backup", body={"path": path}) or {}
        )

    def debug_bundle(self, *, redact: bool = False) -> Stream:
        """A zip of the server's state and log; `redact` replaces names and leaves out log and history."""
        query: Query = [("redact", redact or None)]
        headers = {"Accept": "application/zip"}
        return self._http.stream("GET", "/api/v1/server/debug-bundle", query=query, headers=headers)

    def audit_file(self, query: Query) -> Stream:
        """All records of the audit log; `format` in `query` is csv or json."""
        return self._http.stream("GET", "/api/v1/audit/log/file", query=query)

    def usage_file(self, query: Query) -> Stream:
        """The GPU time that users held; with ("format", "csv") in `query` as a table for spreadsheets."""
        return self._http.stream("GET", "/api/v1/usage", query=query)

    def record(self, *, cycle: int | None = None, at: int | None = None) -> Stream:
        """The record to rerun cycle number `cycle`, or the last cycle up to `at` (ms), as lines of JSON."""
        return self._http.stream("GET", "/api/v1/replay/record", query=[("cycle", cycle), ("at", at)])


def entries(answer: Any) -> list[dict[str, Any]]:
    """The entries of an answer: a bare array, or the list inside an object ({next, workloads: [...]})."""
    if isinstance(answer, list):
        return answer
    if isinstance(answer, dict):
        for value in answer.values():
            if isinstance(value, list):
                return value
    return []
