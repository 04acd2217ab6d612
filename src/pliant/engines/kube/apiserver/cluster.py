"""Requests to the API server; each change names the uid of its object."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
from lightkube import ApiError, Client
from lightkube.core.dictmixin import DictMixin
from lightkube.resources.core_v1 import (
    Event,
    Namespace,
    Pod,
    PodBinding,
    PodEviction,
    PodResize,
    PodStatus,
    Secret,
    Service,
)
from lightkube.types import PatchType

from pliant.engines.kube.apiserver.names import ATTEMPT, CLUSTER, DEVICES, FINALIZER, GPU_CONF, GPUS, WORKLOAD
from pliant.engines.kube.apiserver.quantities import bytes_of, millicores_of
from pliant.engines.kube.apiserver.seen import Seen, seen
from pliant.model.machine import Placement
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M", bound=DictMixin)


class Refused(Exception):
    """The API server refuses a request; the text says why."""

    def __init__(self, why: str, *, later: bool = False) -> None:
        """`later`: it may accept the request later."""
        super().__init__(why)
        self.later = later


def made(kind: type[M], body: Mapping[str, Any]) -> M:
    return cast(M, kind.from_dict(dict(body)))


def status_of(error: ApiError) -> int:
    return error.status.code or 0


Owner = Mapping[str, Any]
"""A reference to an object in the same namespace: its dependents are deleted with that object."""


def owned(owner: Owner | None) -> dict[str, Any]:
    """The part of the metadata that names the owner; {} without one."""
    return {} if owner is None else {"ownerReferences": [dict(owner)]}


KEPT_BY_BUDGET = "DisruptionBudget"
"""Cause of a refused eviction."""

AGAIN = 30.0
"""Seconds until the same refusal is logged again."""

WAITS = (
    "pod %s/%s is not stopped yet: %s. The cure: `kubectl edit poddisruptionbudget --namespace %s`, or "
    "`kubectl delete pod --namespace %s %s`, which asks no budget."
)

TERMINATING = "NamespaceTerminating"
"""Cause of a refused creation."""


def causes(error: ApiError) -> list[str]:
    details = error.status.details
    return [each.reason or "" for each in (details.causes if details is not None else None) or ()]


def missing(call: Callable[[], T]) -> T | None:
    """What `call` returns; None if its object does not exist."""
    try:
        return call()
    except ApiError as error:
        if status_of(error) == 404:
            return None
        raise


class Cluster:
    """Requests of one server about its objects. Every method may raise ApiError and httpx2.HTTPError."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self._told: dict[str, float] = {}  # by uid: when a refusal by a budget is logged again, monotonic s

    # ---- pods ----

    def create(self, manifest: Mapping[str, Any]) -> Seen:
        """Creates the pod, and its namespace; an existing pod of that name is returned. Raises Refused."""
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        for _ in range(2):
            try:
                return seen(self.client.create(made(Pod, manifest), namespace=namespace))
            except ApiError as error:
                code, why = status_of(error), error.status.message or ""
                if code == 409 and error.status.reason == "AlreadyExists":
                    there = missing(lambda: self.client.get(Pod, name, namespace=namespace))
                    if there is not None:
                        return seen(there)
                    raise
                if code == 404:
                    self.add_namespace(namespace)
                    continue
                if code == 403 and TERMINATING in causes(error):
                    said = f"namespace {namespace} is being deleted: no pod can be created in it"
                    raise Refused(said, later=True) from error
                if code in (400, 403, 422):
                    full = code == 403 and "exceeded quota" in why  # of a ResourceQuota: others may end
                    raise Refused(f"the cluster refuses its pod: {why}", later=full) from error
                raise
        raise Refused(f"namespace {namespace} is not there")

    def add_namespace(self, name: str) -> None:
        labels = {"app.kubernetes.io/managed-by": "pliant"}
        try:
            self.client.create(made(Namespace, {"metadata": {"name": name, "labels": labels}}))
        except ApiError as error:
            if status_of(error) == 403:
                raise Refused(
                    f"namespace {name} is not there and may not be created by this server"
                ) from error
            if status_of(error) != 409:
                raise

    def claim(
        self, pod: Seen, attempt: AttemptId, gpus: Sequence[str], notes: Mapping[str, str]
    ) -> Seen | None:
        """Marks a pod of others as that attempt's; None if it has changed or gone meanwhile."""
        change = {
            "metadata": {
                "uid": pod.uid,
                "resourceVersion": pod.version,
                "labels": {CLUSTER: self.name, WORKLOAD: attempt.workload},
                "annotations": {**notes, ATTEMPT: str(attempt), GPUS: ",".join(gpus)},
                "finalizers": [*pod.finalizers, FINALIZER],
            }
        }
        try:
            return seen(
                self.client.patch(Pod, pod.name, change, namespace=pod.namespace, patch_type=PatchType.MERGE)
            )
        except ApiError as error:
            if status_of(error) in (404, 409):
                return None
            raise

    def take(self, pod: Seen, attempt: AttemptId, place: Placement, more: Mapping[str, str]) -> Seen | None:
        """As `claim` and `bind` in one request; None if the pod is gone or bound. An API server before 1.35
        drops the labels of a binding, so the annotations also name the owner."""
        notes = {**more, CLUSTER: self.name, ATTEMPT: str(attempt), GPUS: ",".join(place.uuids)}
        labels = {CLUSTER: self.name, WORKLOAD: attempt.workload}
        metadata = {"name": pod.name, "uid": pod.uid, "annotations": notes, "labels": labels}
        try:
            self._bind(pod, metadata, place.node)
        except ApiError as error:
            if status_of(error) in (404, 409):
                return None
            raise
        devices, conf = tuple(filter(None, more.get(DEVICES, "").split(","))), more.get(GPU_CONF, "")
        ours = replace(pod, cluster=self.name, attempt=attempt, gpus=place.uuids)
        return replace(ours, node=place.node, devices=devices, conf=conf)

    def annotate(self, pod: Seen, notes: Mapping[str, str]) -> None:
        self._change(pod, {"annotations": dict(notes)})

    def resize(self, pod: Seen, cpu: int, memory: int) -> None:
        """Sets the requests of its main container; a limit that is set moves by the same amount.

        Raises Refused.
        """
        found = missing(lambda: self.client.get(Pod, pod.name, namespace=pod.namespace))
        if found is None or found.spec is None:
            return
        main = next(each for each in found.spec.containers if each.name == pod.main)
        limits, moved = (main.resources and main.resources.limits) or {}, {}
        had = (main.resources and main.resources.requests) or {}  # the watch may be behind
        if "cpu" in limits:
            moved["cpu"] = f"{millicores_of(limits['cpu']) + cpu - millicores_of(had.get('cpu', '0'))}m"
        if "memory" in limits:
            moved["memory"] = str(bytes_of(limits["memory"]) + memory - bytes_of(had.get("memory", "0")))
        asked = {"requests": {"cpu": f"{cpu}m", "memory": str(memory)}, "limits": moved}
        change = {
            "metadata": {"uid": pod.uid},
            "spec": {"containers": [{"name": pod.main, "resources": asked}]},
        }
        try:
            self.client.patch(
                PodResize, pod.name, change, namespace=pod.namespace, patch_type=PatchType.STRATEGIC
            )
        except ApiError as error:
            code, why = status_of(error), (error.status.message or "").rstrip(".")
            if code == 404 and self.look(pod) is not None:
                why = "this API server cannot change pods that run; Kubernetes can from version 1.33 on"
            elif code not in (400, 403, 404, 422):
                raise
            raise Refused(f"{why}.") from error

    def explain(self, pod: Seen, reason: str, why: str) -> None:
        """Writes into its conditions why it is not bound."""
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": why}
        change = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._unless_past(
            lambda: self.client.patch(
                PodStatus, pod.name, change, namespace=pod.namespace, patch_type=PatchType.STRATEGIC
            )
        )

    def warn(self, pod: Seen, reason: str, why: str) -> None:
        """As `explain`, and writes an event."""
        self.explain(pod, reason, why)
        metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        self.event({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, reason, why)

    def event(self, about: Mapping[str, Any], reason: str, why: str) -> None:
        """Writes a warning event about that object; for one without a namespace, in `default`."""
        metadata = about["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace") or "default"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"generateName": f"{name[:40].rstrip('-.')}-", "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": name,
                "uid": metadata["uid"],
                **({"namespace": namespace} if metadata.get("namespace") else {}),
            },
            "reason": reason,
            "message": why[:1024],
            "type": "Warning",
            "source": {"component": "pliant"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._unless_past(lambda: self.client.create(made(Event, event), namespace=namespace))

    def look(self, pod: Seen) -> Seen | None:
        """The pod as it is now; None if it, or its name, is gone."""
        found = missing(lambda: self.client.get(Pod, pod.name, namespace=pod.namespace))
        now = None if found is None else seen(found)
        return now if now is not None and now.uid == pod.uid else None

    def bind(self, pod: Seen, node: str) -> None:
        """Does nothing if the pod is gone, bound or replaced: the watch reports that."""
        self._unless_past(lambda: self._bind(pod, {"name": pod.name, "uid": pod.uid}, node))

    def _bind(self, pod: Seen, metadata: Mapping[str, Any], node: str) -> None:
        binding = made(PodBinding, {"metadata": metadata, "target": {"kind": "Node", "name": node}})
        with suppress(msgspec.ValidationError):  # the answer is a Status, which lightkube reads as a Binding
            self.client.create(binding, pod.name, namespace=pod.namespace)

    def evict(self, pod: Seen, grace: int | None) -> bool:
        """Asks it to end in `grace` seconds (None: its own); False if a disruption budget forbids it now."""
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        eviction = made(
            PodEviction,
            {"metadata": {"name": pod.name, "namespace": pod.namespace}, "deleteOptions": options},
        )
        try:
            self._unless_past(lambda: self.client.create(eviction, pod.name, namespace=pod.namespace), pod)
        except ApiError as error:
            if status_of(error) == 429:
                self._tell(pod, error)
                return False
            raise
        self._told.pop(pod.uid, None)
        return True

    def _tell(self, pod: Seen, error: ApiError) -> None:
        """Logs which budget blocks the eviction; nothing if the API server is only busy."""
        details = error.status.details
        said = [each.message for each in (details and details.causes) or [] if each.reason == KEPT_BY_BUDGET]
        now = time.monotonic()
        if said and self._told.get(pod.uid, 0.0) < now:
            for uid, at in self._told.copy().items():  # other threads change it
                if at < now:
                    self._told.pop(uid, None)
            self._told[pod.uid] = now + AGAIN
            why = said[0] or ""
            log.warning(
                WAITS, pod.namespace, pod.name, why.rstrip("."), pod.namespace, pod.namespace, pod.name
            )

    def release(self, pod: Seen) -> None:
        """Removes our finalizer, because the pod's end is recorded."""
        if FINALIZER in pod.finalizers:
            rest = [each for each in pod.finalizers if each != FINALIZER]
            self._change(pod, {"finalizers": rest})

    def remove(self, pod: Seen) -> None:
        """Deletes a pod that has ended, with its logs. Raises Refused if a budget forbids it now."""
        if not pod.deleting and not self.evict(pod, 0):
            raise Refused(f"pod {pod.name} cannot be evicted yet", later=True)
        self.release(pod)

    def _change(self, pod: Seen, metadata: Mapping[str, Any]) -> None:
        change, where = {"metadata": {"uid": pod.uid, **metadata}}, pod.namespace
        patch = partial(self.client.patch, Pod, pod.name, change, namespace=where)
        self._unless_past(lambda: patch(patch_type=PatchType.MERGE), pod)

    def _unless_past(self, call: Callable[[], object], pod: Seen | None = None) -> None:
        """Ignores 404 and 409; with `pod`, raises a conflict about a pod that exists, to be retried."""
        try:
            call()
        except ApiError as error:
            code = status_of(error)
            if code not in (404, 409) or (code == 409 and pod is not None and self.look(pod) is not None):
                raise

    # ---- values of environment variables ----

    def keep(
        self,
        name: str,
        workload: str,
        data: Mapping[str, str],
        namespace: str | None = None,
        *,
        owner: Owner | None = None,
        renew: bool = True,
    ) -> None:
        """Keeps data in a secret; with `renew` it replaces an existing one."""
        namespace = namespace or self.client.namespace
        labels = {"app.kubernetes.io/managed-by": "pliant", CLUSTER: self.name, WORKLOAD: workload}
        metadata = {"name": name, "namespace": namespace, "labels": labels} | owned(owner)
        secret = made(Secret, {"metadata": metadata, "stringData": dict(data)})
        try:
            self.client.create(secret)
        except ApiError as error:
            if status_of(error) == 404:
                self.add_namespace(namespace)
                self.client.create(secret)
            elif status_of(error) != 409:
                raise
            elif renew:
                self.client.replace(secret)

    def kept(self, name: str) -> Mapping[str, str] | None:
        """What `keep` was given without a namespace, in base64; None if it is gone."""
        found = missing(lambda: self.client.get(Secret, name))
        return None if found is None else found.data or {}

    def secrets(self, workload: str | None = None) -> Sequence[Secret]:
        labels: dict[str, Any] = {CLUSTER: self.name} | ({WORKLOAD: workload} if workload else {})
        return list(self.client.list(Secret, namespace="*", labels=labels))

    def drop(self, secret: Secret) -> None:
        metadata = secret.metadata
        if metadata is not None and metadata.name:
            name, namespace = metadata.name, metadata.namespace
            missing(lambda: self.client.delete(Secret, name, namespace=namespace))

    # ---- pods that find one another ----

    def introduce(self, name: str, workload: str, namespace: str, owner: Owner | None) -> None:
        """Makes a headless service: a pod of that workload whose subdomain is `name` is known as
        `<hostname>.<name>` in that namespace as soon as it has an address."""
        labels = {"app.kubernetes.io/managed-by": "pliant", CLUSTER: self.name, WORKLOAD: workload}
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {CLUSTER: self.name, WORKLOAD: workload},
        }
        metadata = {"name": name, "namespace": namespace, "labels": labels} | owned(owner)
        try:
            self.client.create(made(Service, {"metadata": metadata, "spec": spec}))
        except ApiError as error:
            if status_of(error) != 409:
                raise

    def part(self, name: str, namespace: str) -> None:
        """Deletes the service that `introduce` made."""
        missing(lambda: self.client.delete(Service, name, namespace=namespace))
