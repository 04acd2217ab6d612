"""Who makes pods like one, up to the object that a person made, and how many of them it wants."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from httpx2 import HTTPStatusError
from lightkube import ApiError, Client
from lightkube.core.resource_registry import resource_registry
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource

from pliant.engines.kube.apiserver.cluster import status_of
from pliant.engines.kube.others.offers import (
    HEAD,
    LEADER,
    PLUGINS,
    TASK,
    UPSTREAM,
    WORKER,
    GroupRef,
    Offer,
    OwnerRef,
)

log = logging.getLogger(__name__)

LEVELS = 4
"""So many owners above each other are looked at: a worker of a LeaderWorkerSet has four."""

ABOVE = ("StatefulSet", "PodGroup")
"""Kinds that the chart lets the server read beside those that it counts."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pods of one group that are to be."""

    count: int  # in all
    at_once: int = 0  # so many at a time; 0: all
    least: int = 0  # so many start together with those of the other groups, or none does


@dataclass(frozen=True, slots=True)
class Maker:
    """The topmost object that owns a pod, or the PodGroup that holds it together with others."""

    ref: OwnerRef
    groups: Mapping[str, Wanted] = field(default_factory=dict)  # of those left out: as many as there are
    over: bool = False  # it makes no more pods
    failure: str = ""  # why it is over; empty: it did what it is for
    part: str = ""  # it makes several gangs: which of them
    least: int = 0  # of all its pods, so many start together or none does
    below: "Maker | None" = None  # what makes the pods of a PodGroup; None: each was made by itself

    @property
    def uid(self) -> str:
        return f"{self.ref.uid}-{self.part}" if self.part else self.ref.uid

    @property
    def name(self) -> str:
        return f"{self.ref.name}-{self.part}" if self.part else self.ref.name

    @property
    def gang(self) -> bool:
        return bool(self.least) or any(each.least for each in self.groups.values())

    @property
    def in_turns(self) -> bool:
        """Whether it makes pods only as others of them end."""
        return any(0 < each.at_once < each.count for each in self.groups.values())

    @property
    def is_pod_group(self) -> bool:
        return self.ref.kind == "PodGroup"

    @property
    def pod_maker(self) -> "Maker | None":
        """What makes the pods: itself, or None if nothing does."""
        return self.below if self.is_pod_group else self

    @property
    def at_once(self) -> int:
        """So many pods it keeps alive while it is not over."""
        if self.below is not None:
            return self.below.at_once
        return 0 if self.over else sum(each.at_once or each.count for each in self.groups.values())


def maker_of(client: Client, namespace: str, offer: Offer) -> Maker | None:
    """Raises what the client raises. None if the pod belongs to a PodGroup that is not there."""
    top = _topmost(client, namespace, offer.owner, offer.part) if offer.owner is not None else None
    if offer.together is None or (top is not None and (top.gang or top.in_turns)):
        return top
    return _pod_group(client, namespace, offer.together, top)


def _topmost(client: Client, namespace: str, owner: OwnerRef, part: str) -> Maker:
    """That we know, or may read; `part` is what a pod says."""
    top = Maker(owner)
    for _ in range(LEVELS):
        body = _read(client, namespace, owner)
        if body is None or (_counts(top.ref) and not _counts(owner)):
            return top
        top = _made_from(owner, body, part)
        above = [each for each in body["metadata"].get("ownerReferences", ()) if each.get("controller")]
        if not above:
            break
        owner = OwnerRef(above[0]["apiVersion"], above[0]["kind"], above[0]["name"], above[0]["uid"])
    return top


VERSIONS = {UPSTREAM: ("v1beta1", "v1alpha2"), PLUGINS: ("v1alpha1",)}
"""Of PodGroups, the newest first: Kubernetes 1.37 and 1.36; the plugins."""


def _pod_group(client: Client, namespace: str, group: GroupRef, below: Maker | None) -> Maker | None:
    for version in VERSIONS[group.api]:
        ref = OwnerRef(f"{group.api}/{version}", "PodGroup", group.name, "")
        body = _read(client, namespace, ref)
        if body is not None:
            break
    else:
        return None
    spec, ref = body.get("spec") or {}, replace(ref, uid=body["metadata"]["uid"])
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    least = spec.get("minMember", 0) if group.api == PLUGINS else gang.get("minCount", 0)
    if below is None:
        return Maker(ref, least=least)
    return Maker(ref, over=below.over, failure=below.failure, least=least, below=below) if least else below


def is_there(client: Client, namespace: str, maker: Maker) -> bool:
    """Whether pods may come from it again; False also of what we may not read."""
    pod_maker = maker.pod_maker
    body = _read(client, namespace, pod_maker.ref) if pod_maker is not None else None
    return body is not None and (not maker.part or int(maker.part) < body["spec"].get("replicas", 1))


def _read(client: Client, namespace: str, owner: OwnerRef) -> Json | None:
    """None if it is not there, another one has its name, or we may not read it. Without a uid: any."""
    group, _, version = owner.api.rpartition("/")
    plural = f"{owner.kind.lower()}s"
    kind = cast(
        type[GenericNamespacedResource],
        resource_registry.get(owner.api, owner.kind)
        or create_namespaced_resource(group, version, owner.kind, plural),
    )
    try:
        found = cast(Any, client.get(kind, owner.name, namespace=namespace)).to_dict()
    except ApiError as error:
        if status_of(error) == 403 and (_counts(owner) or owner.kind in ABOVE):
            log.warning("%s of %s is not known: %s", owner.kind, owner.name, error)
        if status_of(error) in (403, 404):
            return None
        raise
    except HTTPStatusError as error:  # of a kind that the API server does not know it speaks in plain text
        if error.response.status_code == 404:
            return None
        raise
    return cast(Json, found) if owner.uid in ("", found["metadata"]["uid"]) else None


def _made_from(owner: OwnerRef, body: Json, part: str) -> Maker:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    counts = _counts(owner) or _plain
    leaves = metadata.get("deletionTimestamp") is not None  # what it still makes cleans up behind it
    groups = {} if leaves else counts(spec, metadata.get("annotations") or {})
    over, failure = _outcome(status.get("conditions") or ())
    parts = part.isdigit() and owner.kind == "LeaderWorkerSet"
    return Maker(owner, groups, over, failure, part if parts else "")


def _outcome(conditions: Sequence[Json]) -> tuple[bool, str]:
    """Whether it is over, and why it failed: Jobs, JobSets and training jobs say so in the same way."""
    said = {each["type"]: each for each in conditions if each.get("status") == "True"}
    if (failed := said.get("Failed")) is not None:
        words = [failed.get("reason"), failed.get("message")]
        return True, ": ".join(filter(None, words)) or "Failed"
    return not said.keys().isdisjoint(("Complete", "Completed", "Succeeded")), ""


# ---- how many pods of which groups ----

Groups = Mapping[str, Wanted]


def _together(count: int) -> Wanted:
    return Wanted(count, least=count)


def _job(spec: Json, _: Json) -> Groups:
    at_once = spec.get("parallelism", 1)
    return {TASK: Wanted(max(spec.get("completions") or at_once, 1), max(at_once, 1))}


def _jobset(spec: Json, _: Json) -> Groups:
    return {
        each["name"].lower(): _together(
            each.get("replicas", 1) * each["template"]["spec"].get("parallelism", 1)
        )
        for each in spec.get("replicatedJobs", ())
    }


def _training(field: str, spec: Json, _: Json) -> Groups:
    return {role.lower(): _together(each.get("replicas", 1)) for role, each in spec.get(field, {}).items()}


def _mpi(spec: Json, notes: Json) -> Groups:
    """The launcher is left out where it is made only once the workers are ready."""
    late = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    roles = _training("mpiReplicaSpecs", spec, notes)
    return {role: wanted for role, wanted in roles.items() if not (late and role == "launcher")}


def _ray(spec: Json, _: Json) -> Groups:
    """What an autoscaler may take away need not be there at the start."""
    groups = {HEAD: _together(0 if spec.get("suspend") else 1)}
    for each in spec.get("workerGroupSpecs", ()):
        least, hosts = each.get("minReplicas", 0), each.get("numOfHosts", 1)
        count = min(max(each.get("replicas", 0), least), each.get("maxReplicas", 2**31))
        if spec.get("suspend") or each.get("suspend"):
            count = 0
        core = min(least, count) if spec.get("enableInTreeAutoscaling") else count
        groups[each["groupName"].lower()] = Wanted(hosts * count, least=hosts * core)
    return groups


EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""Annotation: workers are made once their leader has a node."""


def _leader_workers(spec: Json, notes: Json) -> Groups:
    """Of one replica. The workers are left out where they are made only once the leader has started."""
    late = spec.get("startupPolicy") == "LeaderReady" or EXCLUSIVE in notes
    workers = spec.get("leaderWorkerTemplate", {}).get("size", 1) - 1
    return {LEADER: _together(1)} | ({WORKER: _together(workers)} if workers and not late else {})


def _plain(spec: Json, _: Json) -> Groups:
    """Of a kind that we do not know. A StatefulSet makes its pods one after the other unless it says so."""
    count, ordered = spec.get("replicas"), spec.get("podManagementPolicy") == "OrderedReady"
    return {TASK: Wanted(count)} if isinstance(count, int) and not ordered else {}


COUNTS: Mapping[tuple[str, str], Callable[[Json, Json], Groups]] = {
    ("batch", "Job"): _job,
    ("jobset.x-k8s.io", "JobSet"): _jobset,
    ("kubeflow.org", "PyTorchJob"): partial(_training, "pytorchReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): _mpi,
    ("ray.io", "RayCluster"): _ray,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_workers,
}
"""By API group and kind: what spec and annotations say of the pods that are to be."""


def _counts(owner: OwnerRef) -> Callable[[Json, Json], Groups] | None:
    return COUNTS.get((owner.api.rpartition("/")[0], owner.kind))
