"""Reads a pod that others made and that names Pliant as its scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TypeVar, cast

from lightkube.models.core_v1 import NodeAffinity, NodeSelectorRequirement, PodSpec
from lightkube.models.core_v1 import Toleration as KubeToleration
from lightkube.resources.core_v1 import Pod

from pliant.engines.kube.apiserver.names import PREFIX, namespace_of
from pliant.engines.kube.apiserver.seen import Seen, ms_of
from pliant.engines.kube.fractions.worn import WORN
from pliant.model.affinity import Affinity, Effect, Operator, Preference, Term, Toleration
from pliant.model.quantity import GPU, parse_bytes
from pliant.model.workload import Launch, Request

PROJECT = ("pliant/project", "runai/queue", "kai.scheduler/queue")
PRIORITY = ("pliant/priority", "priorityClassName")
PREEMPTIBLE = "pliant/preemptible"
"""Labels; of several names the first that is set counts."""

FRACTION, FRACTION_MEMORY = "gpu-fraction", "gpu-memory"
"""Annotations that ask for a GPU fraction."""

LIMIT, LIMIT_MEMORY = "gpu-fraction-limit", "gpu-memory-limit"
"""Annotations beside them: the size to which it may grow while others do not need the rest."""

ROLES = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",  # for an MPIJob, which sets no other
    "ray.io/group",
)
"""Labels by which controllers tell the kinds of their pods apart; each kind is a task group."""

HEAD, LEADER, WORKER, TASK = "headgroup", "leader", "worker", "task"
"""Task groups: of a Ray head, as KubeRay names it; of a LeaderWorkerSet (two); of all other pods."""

RANK = "leaderworkerset.sigs.k8s.io/worker-index"
PART = "leaderworkerset.sigs.k8s.io/group-index"
"""Labels of the pods of a LeaderWorkerSet: the index in its gang, 0 for the leader; the index of the gang."""

PLUGINS, UPSTREAM = "scheduling.x-k8s.io", "scheduling.k8s.io"
"""API groups with a kind PodGroup: of the scheduler plugins, and of Kubernetes itself."""

POD_GROUP = f"{PLUGINS}/pod-group"
"""Label: the scheduler plugins' PodGroup that a pod belongs to."""

DEFAULT_PRIORITY = 50

V = TypeVar("V")


@lru_cache(maxsize=4096)
def _same(value: object) -> object:
    return value


def same(value: V) -> V:
    """Returns one shared object for all equal values: thousands of pods are mostly alike, and a shared object
    is compared, sent and written once."""
    return cast(V, _same(value))


@dataclass(frozen=True, slots=True)
class OwnerRef:
    api: str  # group/version
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A PodGroup in the namespace of the pod that names it."""

    api: str  # group
    name: str


@dataclass(frozen=True, slots=True)
class Offer:
    pod: Seen
    age: tuple[int, int, str]  # sorts the oldest first: creation time in ms, resource version, name
    owner: OwnerRef | None  # the pod's controller; None: it has none
    part: str  # which gang of its maker it belongs to; empty: there is only one
    together: GroupRef | None  # the PodGroup that it starts with
    group: str
    project: str  # by name
    priority_class: str
    priority: int
    preemptible: bool
    request: Request
    launch: Launch
    affinity: Affinity | None
    tolerations: tuple[Toleration, ...]
    waits: bool  # it can be bound now
    wrong: str  # why it cannot be taken in; empty: it can

    @property
    def alone(self) -> bool:
        """True if no controller replaces the pod and it belongs to no PodGroup."""
        return self.owner is None and self.together is None

    @property
    def source(self) -> str:
        """A key shared by all pods with the same controller, gang and PodGroup."""
        group = f"{self.pod.namespace}/{self.together.api}/{self.together.name}" if self.together else ""
        return f"{self.owner.uid}/{self.part}/{group}" if self.owner is not None else group or self.pod.uid


def offer_of(pod: Pod, seen: Seen) -> Offer:
    """`seen` is made from `pod`."""
    metadata, spec = pod.metadata, pod.spec
    assert metadata is not None and spec is not None
    labels, notes = metadata.labels or {}, metadata.annotations or {}
    owner = next((it for it in metadata.ownerReferences or [] if it.controller), None)
    together = _pod_group(labels, spec)
    word = _first(labels, PRIORITY) or spec.priorityClassName or ""
    version = metadata.resourceVersion or ""
    return Offer(
        seen,
        (ms_of(metadata.creationTimestamp) or 0, int(version) if version.isdigit() else 0, seen.name),
        OwnerRef(owner.apiVersion, owner.kind, owner.name, owner.uid) if owner else None,
        labels.get(PART, ""),
        together,
        _role(labels) or (_shape(_request(seen, notes)) if together is not None else TASK),
        _first(labels, PROJECT) or project_of(seen.namespace),
        word,
        int(word) if word.isdigit() else spec.priority or DEFAULT_PRIORITY,
        labels.get(PREEMPTIBLE, "true") != "false",
        same(_request(seen, notes)),
        same(Launch(spec.containers[0].image or "", grace=1000 * (spec.terminationGracePeriodSeconds or 30))),
        same(_affinity(spec)),
        same(tuple(map(_toleration, spec.tolerations or ()))),
        not (seen.node or seen.deleting or seen.over or seen.cluster or spec.schedulingGates),
        _wrong(seen, labels, notes, spec),
    )


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _role(labels: Mapping[str, str]) -> str:
    if RANK in labels:
        return LEADER if labels[RANK] == "0" else WORKER
    return _first(labels, ROLES).lower()


def _pod_group(labels: Mapping[str, str], spec: PodSpec) -> GroupRef | None:
    if spec.schedulingGroup is not None and spec.schedulingGroup.podGroupName:
        return GroupRef(UPSTREAM, spec.schedulingGroup.podGroupName)
    return GroupRef(PLUGINS, labels[POD_GROUP]) if labels.get(POD_GROUP) else None


def part_of(notes: Mapping[str, str]) -> tuple[int, int] | None:
    """Thousandths of a GPU, or bytes of its memory, that annotations ask for; None: they ask for no fraction.

    Raises ValueError.
    """
    if FRACTION in notes:
        milli = Decimal(notes[FRACTION]) * 1000
        if not (0 < milli < GPU and milli == milli.to_integral_value()):
            raise ValueError
        return int(milli), 0
    if FRACTION_MEMORY in notes:
        return GPU, _memory(notes[FRACTION_MEMORY])
    return None


def limit_of(notes: Mapping[str, str], part: tuple[int, int] | None) -> tuple[int, int]:
    """Thousandths, and bytes, to which a fraction may grow while others do not need them; 0: no growth.

    Raises ValueError.
    """
    if part is None and not notes.keys().isdisjoint((LIMIT, LIMIT_MEMORY)):
        raise ValueError
    portion, memory = part or (0, 0)
    if LIMIT in notes:
        milli = Decimal(notes[LIMIT]) * 1000
        if memory or not (portion <= milli <= GPU and milli == milli.to_integral_value()):
            raise ValueError
        return int(milli), 0
    if LIMIT_MEMORY in notes:
        most = _memory(notes[LIMIT_MEMORY])
        if not memory <= most or not memory:
            raise ValueError
        return 0, most
    return 0, 0


def _memory(text: str) -> int:
    """Bytes, from MiB or an amount such as 5G. Raises ValueError."""
    memory = parse_bytes(f"{text}Mi" if text.isdecimal() else text)
    if not 0 < memory < 2**62:
        raise ValueError
    return memory


def contradiction(notes: Mapping[str, str], *, asks: bool) -> str:
    """Why these annotations cannot be satisfied; empty if they can. `asks`: its containers ask for whole
    GPUs."""
    named = [name for name in (FRACTION, FRACTION_MEMORY) if name in notes]
    if len(named) == 2:
        return (
            f"Its annotations {FRACTION} and {FRACTION_MEMORY} contradict each other: leave one of them out."
        )
    if named and asks:
        return f"It asks for nvidia.com/gpu and, by annotation {named[0]}, for a part of one: choose one."
    try:
        part = part_of(notes)
    except (ValueError, ArithmeticError):
        return (
            f"Its annotation {named[0]} is {notes[named[0]][:40]!r}: write a number between 0 and 1 with "
            f"three decimals at most for {FRACTION}, MiB or an amount such as 5G for {FRACTION_MEMORY}."
        )
    try:
        limit_of(notes, part)
    except (ValueError, ArithmeticError):
        return (
            f"Its limit of a part of a GPU cannot be: {LIMIT} goes with {FRACTION} and is no less and at "
            f"most 1, {LIMIT_MEMORY} goes with {FRACTION_MEMORY} and is no less."
        )
    return ""


def _request(seen: Seen, notes: Mapping[str, str]) -> Request:
    whole, cpu, memory = seen.amount.gpu // GPU, seen.amount.cpu, seen.amount.memory
    part = None if contradiction(notes, asks=whole > 0) else part_of(notes)
    if part is None:
        return Request(devices=whole, cpu=cpu, memory=memory)
    portion, size = limit_of(notes, part)
    return Request(1, part[0], part[1], cpu, memory, portion, size)


def _shape(request: Request) -> str:
    """The task group of a pod in a PodGroup: pods with equal requests are equal tasks."""
    if request.gpu_memory:
        gpus = f"-{request.gpu_memory >> 20}mi"
    else:
        gpus = f"{request.devices}" if request.portion == GPU else f"-{request.portion}m"
    return f"gpu{gpus}-cpu{request.cpu}m-memory{request.memory >> 20}mi"


def project_of(namespace: str) -> str:
    return namespace.removeprefix(PREFIX) if namespace.startswith(PREFIX) else "default"


def _wrong(seen: Seen, labels: Mapping[str, str], notes: Mapping[str, str], spec: PodSpec) -> str:
    named, own = _first(labels, PROJECT), project_of(seen.namespace)
    if named and seen.namespace.startswith(PREFIX) and namespace_of(named) != seen.namespace:
        return (
            f"Its label names project {named}, its namespace belongs to project {own}: "
            "leave the label out, or create the pod in another namespace."
        )
    if why := contradiction(notes, asks=seen.amount.gpu > 0):
        return why
    if part_of(notes) is not None and all(each.name != WORN for each in spec.volumes or ()):
        return (
            "It asks for a part of a GPU, and was created without Pliant's webhook, which gives it what it "
            "needs: `pliant cluster webhook --help` says how to install it. Then create the pod again."
        )
    affinity = spec.affinity
    for what, asked in (
        ("podAffinity", affinity and affinity.podAffinity),
        ("podAntiAffinity", affinity and affinity.podAntiAffinity),
    ):
        if asked and asked.requiredDuringSchedulingIgnoredDuringExecution:
            return f"It requires a {what}, by which Pliant does not place: remove it, or prefer it."
    if any(each.whenUnsatisfiable == "DoNotSchedule" for each in spec.topologySpreadConstraints or ()):
        return "It requires a topology spread, by which Pliant does not place: say ScheduleAnyway."
    if spec.resourceClaims:
        return "It has resource claims, which Pliant does not allocate: ask for nvidia.com/gpu."
    return ""


def _affinity(spec: PodSpec) -> Affinity | None:
    selector = tuple(
        Term(key, Operator.IN, (value,)) for key, value in sorted((spec.nodeSelector or {}).items())
    )
    asked: NodeAffinity | None = spec.affinity.nodeAffinity if spec.affinity else None
    required = asked.requiredDuringSchedulingIgnoredDuringExecution if asked else None
    alternatives = (
        [selector + _terms(each.matchExpressions, each.matchFields) for each in required.nodeSelectorTerms]
        if required
        else [selector]
    )
    preferred = tuple(
        Preference(each.weight, _terms(each.preference.matchExpressions, None))
        for each in (asked.preferredDuringSchedulingIgnoredDuringExecution or () if asked else ())
        if each.preference.matchExpressions
    )
    found = tuple(terms for terms in alternatives if terms)
    return Affinity(found, preferred) if found or preferred else None


def _terms(
    labels: list[NodeSelectorRequirement] | None, fields: list[NodeSelectorRequirement] | None
) -> tuple[Term, ...]:
    """Terms of labels and fields. A field can only be the node's name, which is also a label of each node."""
    found = [(each.key, each) for each in labels or ()]
    found += [("kubernetes.io/hostname", each) for each in fields or ()]
    return tuple(Term(key, Operator(each.operator), tuple(each.values or ())) for key, each in found)


def _toleration(each: KubeToleration) -> Toleration:
    return Toleration(
        each.key or "",
        each.value or "",
        each.operator == "Exists",
        Effect(each.effect) if each.effect else None,
        None if each.tolerationSeconds is None else 1000 * each.tolerationSeconds,
    )
