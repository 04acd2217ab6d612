"""What Pliant reads from a pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from lightkube.models.core_v1 import Container, ContainerStatus, PodStatus, ResourceRequirements
from lightkube.resources.core_v1 import Pod

from pliant.engines.kube.apiserver.names import (
    AGENT,
    ATTEMPT,
    CLUSTER,
    DEVICES,
    GPU_CONF,
    GPUS,
    HOLDS,
    MANAGED_BY,
)
from pliant.engines.kube.apiserver.quantities import bytes_of, count_of, millicores_of
from pliant.model.quantity import Resources
from pliant.model.workload import AttemptId

GPU_RESOURCE = "nvidia.com/gpu"
MAIN = "main"
"""Name of the container that runs the task; a pod may have others."""

STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Why a container waits that will not start: the kubelet would retry for ever and keep the devices."""

UNSTARTABLE = frozenset({"ContainerCannotRun", "StartError"})
"""Reasons of a terminated container that never ran."""


@dataclass(frozen=True, slots=True)
class End:
    """How the main container ended, as far as its pod says."""

    at: int | None = None  # ms
    code: int | None = None
    signal: int | None = None
    oom: bool = False
    error: str = ""  # why it could not be started
    known: bool = True  # False: the pod is over, and no container of it says how


@dataclass(frozen=True, slots=True)
class Seen:
    """A pod as the cluster shows it."""

    namespace: str
    name: str
    uid: str
    node: str  # empty: not bound
    cluster: str  # name of the server that owns it; empty: none
    attempt: AttemptId | None
    gpus: tuple[str, ...]  # of ours: the devices that it was given
    amount: Resources  # what it takes of its node; GPUs in thousandths
    over: bool  # nothing of it runs, or ever will
    deleting: bool
    confirmed: bool  # deleted, and its node has confirmed that its containers are gone
    since: int | None  # ms; when its main container began to run
    end: End | None
    stuck: str  # why it will never run, for people
    finalizers: tuple[str, ...]
    version: str  # its resource version
    scheduler: str
    found: bool  # made by another client
    main: str  # name of the container that is the task
    holds: str  # device that it holds for GPU fractions; empty: not a holder
    devices: tuple[str, ...]  # UUIDs of devices that it holds or has fractions of
    conf: str  # content of its gpu.conf; empty: no GPU fractions
    kept: bool  # its node's agent writes that file
    agent: bool  # it has an agent's label and is ready; its namespace is not checked
    asked: tuple[int, int]  # requests of its main container: millicores and bytes
    granted: tuple[int, int] | None  # what that has; None: its node has not reported
    delay: str  # why it does not have its requests yet, for people
    infeasible: bool  # its node can never give it its requests

    @property
    def lives(self) -> bool:
        """True while something of it may use its node."""
        return not (self.over or self.confirmed or (self.deleting and not self.node))


def workload_of(pod: Seen) -> str:
    """Id of its workload; empty: it belongs to no server's workload."""
    return pod.attempt.workload if pod.attempt is not None else ""


def seen(pod: Pod) -> Seen:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    assert metadata is not None and spec is not None
    labels, notes = metadata.labels or {}, metadata.annotations or {}
    attempt, cluster = notes.get(ATTEMPT), labels.get(CLUSTER) or notes.get(CLUSTER, "")
    phase = (status and status.phase) or "Pending"
    name = MAIN if any(each.name == MAIN for each in spec.containers) else spec.containers[0].name
    statuses = (status and status.containerStatuses) or []
    main = next((each for each in statuses if each.name == name), None)
    state = main.state if main is not None else None
    running, waiting = state and state.running, state and state.waiting
    delay, infeasible = _resize(pod)
    task = next(each for each in spec.containers if each.name == name)
    over = phase in ("Succeeded", "Failed")
    deleting = metadata.deletionTimestamp is not None
    # By its node, e.g. for lack of memory: not its own fault. The eviction API sets this too, and deletes.
    evicted = not deleting and _holds(status, "DisruptionTarget")
    return Seen(
        metadata.namespace or "",
        metadata.name or "",
        metadata.uid or "",
        spec.nodeName or "",
        cluster,
        _attempt_of(attempt) if attempt and cluster else None,
        tuple(filter(None, notes.get(GPUS, "").split(","))),
        _amount(spec.containers, spec.initContainers or [], spec.overhead or {}, statuses, infeasible),
        over,
        deleting,
        deleting and metadata.deletionGracePeriodSeconds == 0,
        ms_of(running.startedAt) if running else None,
        _end(None if evicted else _failed(statuses, phase) or main, _said(status)) if over else None,
        f"{waiting.reason}: {waiting.message or ''}" if waiting and waiting.reason in STUCK else "",
        tuple(metadata.finalizers or ()),
        metadata.resourceVersion or "",
        spec.schedulerName or "",
        labels.get(MANAGED_BY) != "pliant",
        name,
        notes.get(HOLDS, ""),
        tuple(filter(None, notes.get(DEVICES, "").split(","))),
        notes.get(GPU_CONF, ""),
        AGENT in notes,
        AGENT in labels and not over and _holds(status, "Ready"),
        _fitting(task.resources),
        _fitting(main.resources) if main is not None and main.resources is not None else None,
        delay,
        infeasible,
    )


def _said(status: PodStatus | None) -> str:
    return (status and (status.message or status.reason)) or ""


def _holds(status: PodStatus | None, condition: str) -> bool:
    conditions = (status and status.conditions) or []
    return any(each.type == condition and each.status == "True" for each in conditions)


def _fitting(asked: ResourceRequirements | None) -> tuple[int, int]:
    found = _resources((asked and asked.requests) or {})
    return found.cpu, found.memory


def _resize(pod: Pod) -> tuple[str, bool]:
    """Why its node has not resized its containers yet, and whether it never will."""
    for each in (pod.status and pod.status.conditions) or []:
        if each.type == "PodResizePending" or (each.type == "PodResizeInProgress" and each.reason == "Error"):
            said = (each.message or each.reason or "its node has not said why").rstrip(".")
            return f"{said}.", each.reason == "Infeasible"
    return "", False


def _attempt_of(text: str) -> AttemptId | None:
    """None for a text that we did not write: any user who can create pods may write there."""
    try:
        return AttemptId.parse(text)
    except ValueError:
        return None


def ms_of(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


def _failed(statuses: list[ContainerStatus], phase: str) -> ContainerStatus | None:
    """The container that made the pod fail."""
    ended = ((each, each.state and each.state.terminated) for each in statuses if phase == "Failed")
    return next((each for each, done in ended if done and done.exitCode), None)


def _end(main: ContainerStatus | None, message: str) -> End:
    done = main.state.terminated if main is not None and main.state is not None else None
    if done is None:
        return End(error=message, known=False)
    at = ms_of(done.finishedAt)
    if done.reason in UNSTARTABLE:
        missing = "not found" in (done.message or "") or "no such file" in (done.message or "")
        return End(at, 127 if missing else 126, error=done.message or done.reason or "it cannot be started")
    killed = done.signal or (done.exitCode - 128 if 128 < done.exitCode < 160 else None)
    return End(at, None if killed else done.exitCode, killed, done.reason == "OOMKilled")


def _amount(
    containers: list[Container],
    before: list[Container],
    overhead: Mapping[str, str],
    statuses: list[ContainerStatus],
    infeasible: bool,
) -> Resources:
    """The sum of its containers, or the largest init container if that is more. A container that is being
    resized counts with the larger amount, or with what it has if it can never get its requests."""
    total = [_asked(each) for each in (*containers, *(each for each in before if each.restartPolicy))]
    has = {each.name: _resources((each.resources and each.resources.requests) or {}) for each in statuses}
    for at, each in enumerate(containers):
        if (now := has.get(each.name)) is not None and now != total[at] and (now.cpu or now.memory):
            most = (
                now
                if infeasible
                else Resources(0, max(now.cpu, total[at].cpu), max(now.memory, total[at].memory))
            )
            total[at] = Resources(total[at].gpu, most.cpu, most.memory)
    if len(total) == 1 and not (before or overhead):  # true of nearly all pods
        return total[0]
    alone = [_asked(each) for each in before if not each.restartPolicy]
    gpus, cpu, memory = (
        max(sum(each[at] for each in total), *(each[at] for each in alone), 0) for at in range(3)
    )
    extra = _resources(overhead)
    return Resources(gpus, cpu + extra.cpu, memory + extra.memory)


def _asked(container: Container) -> Resources:
    asked = container.resources
    return _resources({**((asked and asked.limits) or {}), **((asked and asked.requests) or {})})


def _resources(amounts: Mapping[str, str]) -> Resources:
    return _read(*(amounts.get(name, "0") for name in (GPU_RESOURCE, "cpu", "memory")))


@lru_cache(maxsize=4096)  # thousands of pods have equal requests
def _read(gpus: str, cpu: str, memory: str) -> Resources:
    return Resources(1000 * count_of(gpus), millicores_of(cpu), bytes_of(memory))
