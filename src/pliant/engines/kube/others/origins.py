"""Finds the controllers of a pod, up to the topmost object, and how many pods they want."""

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
"""Most owners above each other that are read: a worker of a LeaderWorkerSet has four."""

ABOVE = ("StatefulSet", "PodGroup")
"""Kinds that the chart lets the server read besides those of COUNTS."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pods that one group should have."""

    count: int  # in total
    at_once: int = 0  # most at a time; 0: all
    least: int = 0  # so many start together with those of the other groups, or none do


@dataclass(frozen=True, slots=True)
class Maker:
    """The topmost controller of a pod, or the PodGroup that it belongs to."""

    ref: OwnerRef
    groups: Mapping[str, Wanted] = field(default_factory=dict)  # unlisted groups: as many as there are
    over: bool = False  # it makes no more pods
    failure: str = ""  # why it failed; empty: it did not
    part: str = ""  # which of its gangs, if it makes several
    least: int = 0  # so many of all its pods start together, or none do
    below: "Maker | None" = None  # the maker of a PodGroup's pods; None: each pod was made by itself

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
        """True if it makes pods only as others of them end."""
        return any(0 < each.at_once < each.count for each in self.groups.values())

    @property
    def is_pod_group(self) -> bool:
        return self.ref.kind == "PodGroup"

    @property
    def pod_maker(self) -> "Maker | None":
        """The maker of the pods: itself, or what a PodGroup has below it, which may be None."""
        return self.below if self.is_pod_group else self

    @property
    def at_once(self) -> int:
        """How many pods it keeps alive; 0 if it is over."""
        if self.below is not None:
            return self.below.at_once
        return 0 if self.over else sum(each.at_once or each.count for each in self.groups.values())


def maker_of(client: Client, namespace: str, offer: Offer) -> Maker | None:
    """The maker of a pod; None if its PodGroup does not exist. Raises what the client raises."""
    top = _topmost(client, namespace, offer.owner, offer.part) if offer.owner is not None else None
    if offer.together is None or (top is not None and (top.gang or top.in_turns)):
        return top
    return _pod_group(client, namespace, offer.together, top)


def _topmost(client: Client, namespace: str, owner: OwnerRef, part: str) -> Maker:
    """The topmost controller that is known or readable; `part` is the pod's label."""
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
"""API versions of PodGroup, the newest first: Kubernetes 1.37 and 1.36; the plugins."""


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
    """True if the maker may still make pods; False too if it cannot be read."""
    pod_maker = maker.pod_maker
    body = _read(client, namespace, pod_maker.ref) if pod_maker is not None else None
    return body is not None and (not maker.part or int(maker.part) < body["spec"].get("replicas", 1))


def _read(client: Client, namespace: str, owner: OwnerRef) -> Json | None:
    """None if it does not exist, has another uid, or may not be read. An empty uid matches any."""
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
    except HTTPStatusError as error:  # the answer about an unknown kind is plain text
        if error.response.status_code == 404:
            return None
        raise
    return cast(Json, found) if owner.uid in ("", found["metadata"]["uid"]) else None


def _made_from(owner: OwnerRef, body: Json, part: str) -> Maker:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    counts = _counts(owner) or _plain
    leaves = metadata.get("deletionTimestamp") is not None  # pods that it still makes only clean up
    groups = {} if leaves else counts(spec, metadata.get("annotations") or {})
    over, failure = _outcome(status.get("conditions") or ())
    parts = part.isdigit() and owner.kind == "LeaderWorkerSet"
    return Maker(owner, groups, over, failure, part if parts else "")


def _outcome(conditions: Sequence[Json]) -> tuple[bool, str]:
    """Whether it is over, and why it failed; Jobs, JobSets and training jobs use the same conditions."""
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
    """Leaves out the launcher if it is made only once the workers are ready."""
    late = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    roles = _training("mpiReplicaSpecs", spec, notes)
    return {role: wanted for role, wanted in roles.items() if not (late and role == "launcher")}


def _ray(spec: Json, _: Json) -> Groups:
    """Pods that an autoscaler may remove need not be there at the start."""
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
"""Annotation: the workers are made once their leader has a node."""


def _leader_workers(spec: Json, notes: Json) -> Groups:
    """Groups of one replica, without workers that are made only once the leader has started or has a node."""
    late = spec.get("startupPolicy") == "LeaderReady" or EXCLUSIVE in notes
    workers = spec.get("leaderWorkerTemplate", {}).get("size", 1) - 1
    return {LEADER: _together(1)} | ({WORKER: _together(workers)} if workers and not late else {})


def _plain(spec: Json, _: Json) -> Groups:
    """Of an unknown kind: its replicas. None for a StatefulSet that starts its pods one after another."""
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
"""By API group and kind: the groups that spec and annotations ask for."""


def _counts(owner: OwnerRef) -> Callable[[Json, Json], Groups] | None:
    return COUNTS.get((owner.api.rpartition("/")[0], owner.kind))
