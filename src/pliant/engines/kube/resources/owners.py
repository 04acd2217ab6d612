"""The cluster objects that stand for workloads: each owns what is made there for its workload, so that
deleting it deletes all of that, even if no server is left."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from httpx2 import HTTPStatusError
from lightkube import ApiError

from pliant.engines.kube.apiserver.cluster import Cluster, Refused, status_of
from pliant.engines.kube.apiserver.names import CLUSTER, MANAGED_BY
from pliant.engines.kube.apiserver.watching import ABSENT
from pliant.engines.kube.resources.kinds import GROUP, VERSION, WORKLOAD, made_of
from pliant.engines.kube.resources.remnants import Remnants
from pliant.model.workload import Workload

log = logging.getLogger(__name__)

Json = Mapping[str, Any]


class Known(NamedTuple):
    uid: str
    version: int  # its resource version; 0: unknown
    applied: bool  # it has a spec, so a user applied it; else we made it


class Owners:
    """Without the custom resource definition, or if an object of that name is not ours, there is no owner."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.left = Remnants(cluster.name)  # the rows recorded on these objects, for an empty database
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Known] = {}  # by namespace and name: the possible owners
        self._again = 0.0  # monotonic s: until then the definition counts as missing
        self._told: set[int] = set()  # each status is logged once

    # ---- news from the watch, if there is one ----

    def listed(self, bodies: Iterable[Json]) -> None:
        found = {_key(body): known for body in bodies if (known := self._usable(body)) is not None}
        with self._lock:
            self._known = found

    def changed(self, there: bool, body: Json) -> None:
        """Ignores news that are older than the answer to a request of ours."""
        key, news = _key(body), _known(body)
        with self._lock:
            old = self._known.get(key)
            if old is not None and old.version > news.version:
                return
            if there and self._usable(body) is not None:
                self._known[key] = news
            elif old is not None and old.uid == news.uid:
                del self._known[key]

    def _usable(self, body: Json) -> Known | None:
        """None if it is being deleted, or shows a workload of another server."""
        metadata = body["metadata"]
        mine = "spec" in body or (metadata.get("labels") or {}).get(CLUSTER) == self._cluster.name
        return _known(body) if mine and not metadata.get("deletionTimestamp") else None

    # ---- owners ----

    def of(self, workload: Workload, namespace: str) -> Json | None:
        """The reference to that workload's object, which is made if it is missing; None: it cannot have one.
        Raises what the client raises."""
        applied = workload.origin is not None
        with self._lock:
            known = self._known.get((namespace, workload.name))
        if known is None or known.applied != applied:
            known = self._asked(workload, namespace, applied=applied)
        if known is None:
            return None
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Workload",
            "name": workload.name,
            "uid": known.uid,
            "controller": True,
        }

    def _asked(self, workload: Workload, namespace: str, *, applied: bool) -> Known | None:
        if time.monotonic() < self._again:
            return None
        try:
            if applied:
                body = self._read(namespace, workload.name)
            else:
                body = self._make(workload, namespace, tries=2)
        except ApiError as error:
            if status_of(error) not in (403, 405, 422):  # no right, or the definition or namespace goes
                raise
            if status_of(error) not in self._told:
                self._told.add(status_of(error))
                log.warning("pods of workload %s have no owner: %s", workload.name, error)
            return None
        except HTTPStatusError as error:  # plain text: the API server does not know this kind
            if error.response.status_code != 404:
                raise
            self._again = time.monotonic() + ABSENT
            return None
        except Refused:
            return None  # no namespace: then no pod can be made either, and that error is reported
        known = self._usable(body) if body is not None else None
        if body is None or known is None or known.applied != applied:
            return None
        with self._lock:
            old = self._known.get(_key(body))
            if old is None or old.version < known.version:
                self._known[_key(body)] = known
        return known

    def _make(self, workload: Workload, namespace: str, tries: int) -> Json:
        more = made_of(workload) | self.left.annotations(workload)
        body = body_of(self._cluster.name, namespace, workload.name, more)
        try:
            return cast(Json, self._cluster.client.create(WORKLOAD.from_dict(body)))
        except ApiError as error:
            if status_of(error) == 404 and tries > 1:
                self._cluster.add_namespace(namespace)
                return self._make(workload, namespace, tries - 1)
            there = self._read(namespace, workload.name) if status_of(error) == 409 else None
            if there is None:
                raise
            return there

    def _read(self, namespace: str, name: str) -> Json | None:
        """Reads one object by a list, which needs no additional right."""
        client: Any = self._cluster.client
        return next(iter(client.list(WORKLOAD, namespace=namespace, fields={"metadata.name": name})), None)


def body_of(cluster: str, namespace: str, name: str, more: Json, kind: str = "Workload") -> dict[str, Any]:
    """An object without a spec, which shows a row of that server; `more`: its other metadata."""
    labels = {MANAGED_BY: "pliant", CLUSTER: cluster, **more.get("labels", {})}
    metadata = {"name": name, **more, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata}


def _key(body: Json) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _known(body: Json) -> Known:
    metadata = body["metadata"]
    version = metadata.get("resourceVersion") or ""
    return Known(metadata["uid"], int(version) if version.isdigit() else 0, "spec" in body)
