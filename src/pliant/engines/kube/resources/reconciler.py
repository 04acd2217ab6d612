"""Keeps custom resources and rows equal: an object with a spec writes its row; a row that was made elsewhere
is shown by an object with a status only."""

import logging
import os
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from httpx2 import HTTPError
from lightkube import ApiError
from lightkube.resources.core_v1 import Namespace
from lightkube.resources.scheduling_v1 import PriorityClass as KubeClass
from lightkube.types import PatchType

from pliant.control.errors import Refused
from pliant.control.service import Service
from pliant.engines.kube.apiserver.cluster import TERMINATING, Cluster, causes, missing, status_of
from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.apiserver.leading import mark
from pliant.engines.kube.apiserver.names import CLUSTER
from pliant.engines.kube.apiserver.watching import ABSENT, Follower
from pliant.engines.kube.apiserver.work import WorkQueue
from pliant.engines.kube.resources.kinds import (
    FINALIZER,
    GROUP,
    USER,
    VERSION,
    Pools,
    Queues,
    Sort,
    Works,
    resource_of,
    row_of,
)
from pliant.engines.kube.resources.owners import Owners, body_of
from pliant.model.priority import PriorityClass

log = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks for changes on the server."""

AGAIN = 5.0
"""Seconds after which a refused object is tried again."""

RATE = 50
"""Most objects written per second: the pods of workloads come first."""

ACCEPTED = "Accepted"
CLASS = "PriorityClass"
LEADS = f"{GROUP}/leads"
"""Label of the leading server's pod."""

Key = tuple[str, str, str]  # kind, namespace, name


class Resources:
    """The custom resources of the server that leads."""

    def __init__(
        self, connection: Connection, cluster: str, service: Service, engine: str, owners: Owners
    ) -> None:
        """Takes over the connection. `owners` is given the news about workloads' objects."""
        self._connection, self._service, self._owners = connection, service, owners
        self._cluster = Cluster(connection.client, cluster)
        self._sorts: dict[str, Sort] = {
            "Department": Queues(service, projects=False),
            "Project": Queues(service, projects=True),
            "NodePool": Pools(service),
            "Workload": Works(service, engine),
        }
        self._objects: dict[Key, dict[str, Any]] = {}
        self._rows: dict[Key, object] = {}
        self._left: set[Key] = set()  # objects of other servers; each is logged once
        self._due = 0.0  # monotonic s: when the next object may be written
        self._closed = threading.Event()
        self._followers = [
            Follower(
                connection.client,
                sort.kind,
                partial(self._listed, kind),
                partial(self._changed, kind),
                **({"namespace": "*"} if kind == "Workload" else {}),
            )
            for kind, sort in self._sorts.items()
        ]
        self._classes: dict[str, PriorityClass] = {}
        kind: Any = KubeClass
        self._followers.insert(
            0, Follower(connection.client, kind, self._classes_listed, self._class_changed)
        )
        self._queue: WorkQueue | None = None
        self._thread = threading.Thread(target=self._run, name="pliant-kube-resources", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        for follower in self._followers:
            follower.close()
        self._connection.end()
        self._thread.join()
        if self._queue is not None:
            self._queue.close()
        for follower in self._followers:
            follower.join()
        self._connection.close()

    def _run(self) -> None:
        self._mark()
        self._queue = WorkQueue(self._work, 1)
        left, told = list(self._followers), False
        while left and not self._closed.is_set():
            try:
                left[0].open()
                left.pop(0)
            except HTTPError as error:
                if not told and not self._closed.is_set():
                    cure = "pliant cluster crds | kubectl apply -f -"
                    log.warning("no custom resources: %s; try `%s`", error, cure)
                told = True
                self._closed.wait(ABSENT)
        version = -1
        while not self._closed.wait(LOOK if version >= 0 else 0):
            board = self._service.board
            if board.version != version:
                version = board.version
                self._look()

    def _mark(self) -> None:
        """Labels the server's own pod, if it is one, as the one that the chart's service leads to."""
        name, namespace = os.environ.get("POD_NAME"), os.environ.get("POD_NAMESPACE")
        while name and namespace and not self._closed.is_set():
            try:
                mark(self._cluster, namespace, name, LEADS)
                return
            except HTTPError as error:
                log.warning("pod %s cannot be marked as the one that leads: %s", name, error)
                self._closed.wait(LOOK)

    def _look(self) -> None:
        """Queues all rows that have changed on the server since the last look."""
        assert self._queue is not None
        board, now = self._service.board, dict[Key, object]()
        for kind, sort in self._sorts.items():
            for (namespace, name), row in sort.rows(board):
                now[kind, namespace, name] = row
        for key, row in now.items():
            before = self._rows.get(key)
            if before is not row and before != row:
                self._queue.add(key, LOOK)
        for key in self._rows.keys() - now.keys():
            self._queue.add(key)
        self._rows = now

    # ---- news from the watches ----

    def _listed(self, kind: str, found: Sequence[Any]) -> None:
        there = dict(_read(kind, each) for each in found)
        gone = [key for key in list(self._objects) if key[0] == kind and key not in there]
        self._objects.update(there)
        if kind == "Workload":
            self._owners.listed(there.values())
        for key in gone:
            self._objects.pop(key, None)
        if self._queue is not None:
            for key in (*there, *gone):
                self._queue.add(key)

    def _changed(self, kind: str, there: bool, found: Any) -> None:
        key, body = _read(kind, found)
        if there:
            self._objects[key] = body
        else:
            self._objects.pop(key, None)
        if kind == "Workload":
            self._owners.changed(there, body)
        if self._queue is not None:
            self._queue.add(key)

    def _classes_listed(self, found: Sequence[Any]) -> None:
        for each in found:
            self._class_changed(True, each)

    def _class_changed(self, there: bool, found: Any) -> None:
        """Keeps a class that is deleted on the cluster, because submitted workloads keep its value."""
        name = found.metadata.name
        if there and not name.startswith("system-"):
            self._classes[name] = PriorityClass(name, found.value, found.description or "")
            if self._queue is not None:
                self._queue.add((CLASS, "", name))

    # ---- one object ----

    def _work(self, key: Hashable) -> float | None:
        kind, namespace, name = cast(Key, key)
        if self._closed.is_set():
            return None
        if kind == CLASS:
            try:
                self._service.priorities.apply([self._classes[name]], USER)
            except Refused as error:
                log.warning("priority class %s of the cluster is not taken over: %s", name, error)
            return None
        sort, body = self._sorts[kind], self._objects.get(cast(Key, key))
        try:
            if body is None:
                return self._absent(sort, kind, namespace, name)
            whose = body["metadata"].get("labels", {}).get(CLUSTER, "")
            if whose not in ("", self._cluster.name):
                return self._leave(sort, cast(Key, key), body, whose)
            if body["metadata"].get("deletionTimestamp"):
                return self._leaving(sort, kind, body)
            if "spec" in body:
                return self._apply(sort, kind, body)
            if sort.owner(namespace, name) is None:
                if whose == self._cluster.name:
                    self._pace()
                    self._delete(sort, namespace, name)
                return None
            more = sort.made(namespace, name) or {}
            if whose and FINALIZER in more.get("finalizers", ()):
                self._keep(sort, body)
            if change := self._owners.left.change(body["metadata"], row_of(sort, namespace, name, more)):
                self._pace()
                self._patch(sort, body, {"metadata": change})
            self._show(sort, kind, body, True, "Shown", "It was made with Pliant and is changed there.")
        except ApiError as error:
            if status_of(error) not in (404, 409):
                raise
            return AGAIN  # it has changed meanwhile, or its namespace is being deleted: the watch reports it
        return None

    def _absent(self, sort: Sort, kind: str, namespace: str, name: str) -> float | None:
        owner = sort.owner(namespace, name)
        if owner is None:
            return None
        if owner:  # its finalizer was removed by hand: the row must go
            try:
                sort.delete(namespace, name, {"spec": {}})
            except Refused as error:
                log.warning("%s %s stays on the server: %s", kind, name, error)
                sort.release(namespace, name)
            return None
        more = sort.made(namespace, name)
        if more is None:
            return None
        more = {**more, **self._owners.left.annotations(row_of(sort, namespace, name, more))}
        body = sort.kind(body_of(self._cluster.name, namespace, name, more, kind))
        self._pace()
        try:
            made = self._cluster.client.create(body)
        except ApiError as error:
            if status_of(error) == 403 and TERMINATING in causes(error):
                return AGAIN
            if status_of(error) != 404 or not namespace:
                raise
            self._cluster.add_namespace(namespace)
            made = self._cluster.client.create(body)
        self._show(
            sort, kind, _read(kind, made)[1], True, "Shown", "It was made with Pliant and is changed there."
        )
        return None

    def _apply(self, sort: Sort, kind: str, body: dict[str, Any], *, mine: bool = True) -> float | None:
        """Applies the spec; writes the outcome only if the object is this server's."""
        metadata = body["metadata"]
        if mine:
            self._keep(sort, body)
        try:
            sort.apply(metadata.get("namespace", ""), metadata["name"], body["spec"], body.get("status", {}))
        except Refused as error:
            return self._refused(sort, kind, body, error) if mine else AGAIN
        if mine:
            self._show(sort, kind, body, True, ACCEPTED, "The server has taken it over.")
        return None

    def _leaving(self, sort: Sort, kind: str, body: dict[str, Any]) -> float | None:
        metadata = body["metadata"]
        if FINALIZER not in metadata.get("finalizers", ()):
            return None
        namespace = metadata.get("namespace", "")
        shows = kind == "Workload" and "spec" not in body
        # An object that goes with its namespace does not end its workload: it is made again with its pods.
        if not (shows and self._namespace(namespace)[1] == TERMINATING):
            try:
                gone = sort.delete(namespace, metadata["name"], body)
            except Refused as error:
                return self._refused(sort, kind, body, error)
            if not gone:
                return AGAIN  # rows may report the end earlier
        self._finalizers(sort, body, [each for each in metadata["finalizers"] if each != FINALIZER])
        return None

    def _keep(self, sort: Sort, body: dict[str, Any]) -> None:
        """Claims the object: of several servers, the first one to do so owns it."""
        there, ours = body["metadata"].get("finalizers", ()), {CLUSTER: self._cluster.name}
        if FINALIZER not in there or not ours.items() <= body["metadata"].get("labels", {}).items():
            self._finalizers(sort, body, list(dict.fromkeys((*there, FINALIZER))), labels=ours)

    def _finalizers(self, sort: Sort, body: dict[str, Any], names: Sequence[str], **more: Any) -> None:
        """Replaces the finalizers, at this resource version: others have theirs there too."""
        metadata = body["metadata"]
        same = {name: metadata[name] for name in ("uid", "resourceVersion")}
        self._patch(sort, body, {"metadata": {**same, "finalizers": names, **more}})

    def _leave(self, sort: Sort, key: Key, body: dict[str, Any], whose: str) -> float | None:
        """Leaves another server's object to that server; applied quotas also hold here."""
        kind, namespace, name = key
        if key not in self._left:
            self._left.add(key)
            where = f"{name} --namespace {namespace}" if namespace else name
            what = f"{sort.kind._api_info.plural}.{GROUP} {where}"
            cure = f"kubectl label --overwrite {what} {CLUSTER}={self._cluster.name}"
            log.warning("%s is of server %s, which alone writes it; if that is gone: %s", what, whose, cure)
        quotas = "spec" in body and kind != "Workload" and not body["metadata"].get("deletionTimestamp")
        return self._apply(sort, kind, body, mine=False) if quotas else None

    def _refused(self, sort: Sort, kind: str, body: dict[str, Any], error: Refused) -> float:
        reason = "".join(word.capitalize() for word in error.code.split("-"))
        if self._show(sort, kind, body, False, reason, str(error)):
            about = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": body["metadata"]}
            self._cluster.event(about, reason, str(error))
        return AGAIN

    def _show(
        self, sort: Sort, kind: str, body: dict[str, Any], accepted: bool, reason: str, message: str
    ) -> bool:
        """Writes the status if it has changed; True if the condition Accepted has."""
        metadata, before = body["metadata"], body.get("status", {})
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        mine: bool = "spec" not in body or sort.owner(namespace, name) == resource_of(sort.kind, name)
        shown = sort.status(namespace, name) if mine else {}
        generation = metadata.get("generation", 0)
        said = [_condition(before, ACCEPTED, accepted, reason, message, generation)]
        if kind == "Project" and mine:
            said.append(
                _condition(before, "NamespaceReady", *self._namespace(shown["namespace"]), generation)
            )
            if said[1]["status"] != "True" and self._queue is not None:
                self._queue.add((kind, namespace, name), AGAIN)
        old = before.get("conditions", [])
        if said == old and {**before, **shown} == before:
            return False
        status = {**shown, "observedGeneration": generation, "conditions": said}
        self._pace()
        self._patch(sort, body, {"metadata": {"uid": metadata["uid"]}, "status": status}, part="Status")
        return bool(said[:1] != old[:1])

    def _namespace(self, name: str) -> tuple[bool, str, str]:
        found = missing(lambda: self._cluster.client.get(Namespace, name))
        if found is None:
            return True, "NotNeededYet", f"Namespace {name} is created with the first workload."
        if found.status is not None and found.status.phase == "Terminating":
            said = f"Namespace {name} is being deleted: no pod can be created in it until it is gone."
            return False, TERMINATING, said
        return True, "Active", f"Namespace {name} is there."

    def _patch(self, sort: Sort, body: dict[str, Any], change: dict[str, Any], part: str = "") -> None:
        metadata = body["metadata"]
        where = {"namespace": metadata["namespace"]} if "namespace" in metadata else {}
        kind = getattr(sort.kind, part) if part else sort.kind
        client: Any = self._cluster.client
        missing(lambda: client.patch(kind, metadata["name"], change, patch_type=PatchType.MERGE, **where))

    def _delete(self, sort: Sort, namespace: str, name: str) -> None:
        client: Any = self._cluster.client
        where = {"namespace": namespace} if namespace else {}
        missing(lambda: client.delete(sort.kind, name, **where))

    def _pace(self) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + 1.0 / RATE
        if self._due > now:
            self._closed.wait(self._due - now)


def _read(kind: str, found: Any) -> tuple[Key, dict[str, Any]]:
    body = cast(dict[str, Any], found.to_dict())
    metadata = body["metadata"]
    return (kind, metadata.get("namespace") or "", metadata["name"]), body


def _condition(
    before: Mapping[str, Any], kind: str, good: bool, reason: str, message: str, generation: int
) -> dict[str, Any]:
    """The condition of that type, as it follows the status `before`."""
    said: dict[str, Any] = {"type": kind, "status": str(good), "reason": reason, "message": message[:2048]}
    said["observedGeneration"] = generation
    old = next((each for each in before.get("conditions", ()) if each["type"] == kind), None)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = old["lastTransitionTime"] if old is not None and old["status"] == str(good) else now
    return {**said, "lastTransitionTime": since}
