"""The object on the cluster that stands for a workload: it owns what is made there for the workload, which is
deleted with it even where no server is left."""

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
    version: int  # of its row; 0: nobody knows
    applied: bool  # it has a spec, so kubectl made it; else we did


class Owners:
    """Without the definition, and where an object of that name is somebody else's, nothing has an owner."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.left = Remnants(cluster.name)  # what these objects say for an empty database
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Known] = {}  # by namespace and name: what may own something
        self._again = 0.0  # monotonic s: the definition is not there before
        self._told: set[int] = set()  # each status of an answer once

    # ---- what the watch tells, where somebody follows these objects ----

    def listed(self, bodies: Iterable[Json]) -> None:
        found = {_key(body): known for body in bodies if (known := self._usable(body)) is not None}
        with self._lock:
            self._known = found

    def changed(self, there: bool, body: Json) -> None:
        """An answer to a request may have come before news that are older."""
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
        """None: it is going, or shows a workload of another server."""
        metadata = body["metadata"]
        mine = "spec" in body or (metadata.get("labels") or {}).get(CLUSTER) == self._cluster.name
        return _known(body) if mine and not metadata.get("deletionTimestamp") else None

    # ---- who owns what ----

    def of(self, workload: Workload, namespace: str) -> Json | None:
        """The reference to the object of that workload, which is made if it is not there; None: there is no
        such object. Raises what the client raises."""
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
            if status_of(error) not in (403, 405, 422):  # no right, or definition or namespace are going
                raise
            if status_of(error) not in self._told:
                self._told.add(status_of(error))
                log.warning("pods of workload %s have no owner: %s", workload.name, error)
            return None
        except HTTPStatusError as error:  # in plain text: the API server does not know this kind
            if error.response.status_code != 404:
                raise
            self._again = time.monotonic() + ABSENT
            return None
        except Refused:
            return None  # there is no namespace: no pod can be made either, and that is told
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
        """By a list: it needs no right that is not needed anyway."""
        client: Any = self._cluster.client
        return next(iter(client.list(WORKLOAD, namespace=namespace, fields={"metadata.name": name})), None)


def body_of(cluster: str, namespace: str, name: str, more: Json, kind: str = "Workload") -> dict[str, Any]:
    """An object without a spec, which shows a row of that server; `more`: what its metadata say besides."""
    labels = {MANAGED_BY: "pliant", CLUSTER: cluster, **more.get("labels", {})}
    metadata = {"name": name, **more, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata}


def _key(body: Json) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _known(body: Json) -> Known:
    metadata = body["metadata"]
    version = metadata.get("resourceVersion") or ""
    return Known(metadata["uid"], int(version) if version.isdigit() else 0, "spec" in body)
