"""Renders workloads and their pods."""

import shlex
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, cast

from pliant.api.redaction import own_too
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import encode
from pliant.api.responses.fractions import Uses, fraction_of, shares_of
from pliant.api.responses.progress import progress
from pliant.api.responses.resources import allocated, requested
from pliant.api.responses.spec import MASKED, array_place, preemptibility
from pliant.api.responses.status import pod_status_of, status_of
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.control.board.pods import pod_names
from pliant.control.board.view import Board, WorkloadView
from pliant.control.state.retries import describe_exit
from pliant.model.machine import DEFAULT_POOL
from pliant.model.reason import MayRead, Named, Reason
from pliant.model.tenancy import Project
from pliant.model.workload import (
    Attempt,
    Desired,
    Kind,
    Phase,
    Task,
    TaskGroup,
    TaskPhase,
    Workload,
)
from pliant.sched.plan import Guarantee
from pliant.wire import workload as wire

Item = dict[str, Any]
Kinds = Literal["workload", "project", "department"]  # of what a reason names


def job_type(workload: Workload) -> str:
    if workload.kind is Kind.WORKSPACE:
        return "Interactive-Preemptible" if workload.preemptible else "Interactive"
    if workload.framework:
        return workload.framework
    return "Inference" if workload.kind is Kind.INFERENCE else "Train"


def reason_item(reason: Reason | None, now: int, may_read: MayRead | None = None) -> wire.Reason | None:
    """The reason as of `now` (ms), without names that the caller may not read; None: it may read all."""
    if reason is None:
        return None
    seen = reason if may_read is None else reason.seen_by(may_read)
    return {
        "code": seen.code,
        "message": seen.text(now),
        "numbers": numbers_of(seen.numbers),
        "names": names_of(seen.names),
    }


def names_of(names: Iterable[tuple[str, Named]]) -> list[wire.NamedItem]:
    """The things that a reason names, with their keys."""
    return [
        {"field": field, "kind": cast("Kinds", it.kind), "id": it.id, "name": it.name}
        for field, it in names
        if it.name
    ]


def numbers_of(pairs: Iterable[tuple[str, Any]]) -> Item:
    """A reason's numbers as JSON values."""
    return {name: _plain(value) for name, value in pairs}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Iterable):
        return [_plain(entry) for entry in value]
    return str(value)


def over_quota(board: Board) -> dict[str, int]:
    """Milli-GPUs of each workload above its project's quota; non-preemptible, then older ones fill it."""
    held: dict[tuple[str, str], list[WorkloadView]] = {}
    for view in board.workloads.holding:
        held.setdefault((view.workload.project, view.pool), []).append(view)
    found: dict[str, int] = {}
    for (project, pool), views in held.items():
        queue = board.projects.get(project)
        room = next((use.quota for use in queue.uses if use.pool == pool), 0) if queue is not None else 0
        for view in sorted(views, key=lambda view: (view.workload.preemptible, view.workload.serial)):
            within = min(view.gpu, max(room, 0))
            room -= view.gpu
            if view.gpu > within:
                found[view.workload.id] = view.gpu - within
    return found


def ended_view(workload: Workload, board: Board) -> WorkloadView:
    """The view of a deleted workload, of which only the row is left."""
    queue = board.projects.get(workload.project)
    project = queue.queue if queue is not None else None
    if not isinstance(project, Project):
        project = Project(workload.project, workload.project)
    department = board.departments.get(project.department)
    found = department.queue if department is not None else None
    return WorkloadView(workload, project, None if isinstance(found, Project) else found, ())


KEPT = 1000
"""Most workloads that are rendered once for all requests of one moment."""


_HIDDEN: Any = {"command": "", "arguments": "", "environmentVariables": {}, "urls": [], "endpoints": []}
"""Shown to a caller who may not know what runs in a job."""


@dataclass(slots=True)
class Rendered:
    """A rendered workload."""

    of: tuple[Any, ...]  # the inputs it was made of
    item: wire.WorkloadItem
    encoded: bytes = b""  # made at the first request for it


class Renderer:
    """Renders workloads as of one board at one moment (ms)."""

    def __init__(
        self, board: Board, now: int, uses: Uses, confined: bool, before: "Renderer | None" = None
    ) -> None:
        """`uses`: use of GPU fractions; `confined`: each task is in a control group of its own.

        `before`: the renderer of an older board; its items of this second that did not change are reused.
        """
        self._confined = confined
        self._inside: Callable[[Workload], bool] = lambda workload: False
        self._may_read: MayRead = lambda project: True
        self._made: dict[str, Rendered] = {}  # by id, as a caller who may see all sees it
        self.board = board
        self._uses = uses
        self.now = now
        self.cluster = board.cluster_id
        self._over = over_quota(board)
        self._before = before._made if before is not None and before.fresh(now, uses) else {}

    def current(self, board: Board, now: int, uses: Uses) -> bool:
        """True if it can be reused for these: when a workload changes, all pages and watchers ask for it."""
        return self.board is board and self.fresh(now, uses)

    def fresh(self, now: int, uses: Uses) -> bool:
        """True if its items have the times (in seconds) and the uses of that moment."""
        return self.now // 1000 == now // 1000 and self._uses == uses

    def read_by(
        self, inside: Callable[[Workload], bool], may_read: MayRead = lambda project: True
    ) -> "Renderer":
        """A copy for one caller. `inside`: may the caller know what runs in a job; `may_read`: its names."""
        reader = copy(self)
        reader._inside, reader._may_read = inside, may_read
        return reader

    def workload(self, view: WorkloadView) -> wire.WorkloadItem:
        item = self._rendered(view).item
        less = self._unnamed(view) | ({} if self._inside(view.workload) else _HIDDEN)
        return cast("wire.WorkloadItem", {**item, **less}) if less else item

    def encoded(self, view: WorkloadView) -> bytes:
        """The same as JSON, made once for all lists that contain it."""
        if not self._inside(view.workload) or self._unnamed(view):
            return encode(self.workload(view))
        made = self._rendered(view)
        made.encoded = made.encoded or encode(made.item)
        return made.encoded

    def _unnamed(self, view: WorkloadView) -> Item:
        """Fields that replace a reason with names that the caller may not read; {} if it may read all."""
        reason = self.board.workloads.get(view.workload.id, view).reason
        may_read = own_too(self._may_read, view.project.id)
        if reason is None or all(not it.project or may_read(it.project) for _, it in reason.names):
            return {}
        less = reason.seen_by(may_read)
        told: Item = {"reason": reason_item(less, self.now)}
        if not view.workload.phase_message and view.waiting:
            told["phaseMessage"] = less.text(self.now)
        return told

    def _rendered(self, view: WorkloadView) -> Rendered:
        identity = view.workload.id
        made = self._made.get(identity)
        if made is None:
            view = self.board.workloads.get(identity, view)  # with its newest reason
            of = self._rendered_of(view)
            made = self._before.get(identity)
            if made is None or made.of != of:
                made = Rendered(of, self._item(view))
            if identity in self.board.workloads and len(self._made) < KEPT:
                self._made[identity] = made
        return made

    def _rendered_of(self, view: WorkloadView) -> tuple[Any, ...]:
        """All inputs of `_item` except the time and the uses."""
        identity, board = view.workload.id, self.board
        place, over = board.queue.get(identity), self._over.get(identity)
        return view, board.protection(view), place, over, self.cluster

    def _item(self, view: WorkloadView) -> wire.WorkloadItem:
        workload, project, department = view.workload, view.project, view.department
        requests = [(group.request, group.at_once or group.wanted) for group in workload.groups]
        final = workload.phase.final or workload.desired is Desired.DELETED
        protection = self.board.protection(view)
        least = self._ends(view, protection.least) if protection is not None else None
        waits = view.reason is not None and view.waiting
        since = stamp(workload.phase_since)
        endpoints: list[wire.Endpoint] = [
            {
                "name": f"port-{port.container}",
                "toolType": "custom",
                "connectionType": "ExternalUrl",
                "url": f"http://localhost:{port.container + task.index}",
                "containerPort": port.container,
            }
            for port in workload.ports
            for task in view.tasks
            if port.public and task.phase is TaskPhase.RUNNING
        ]
        message = workload.phase_message or (view.reason.text(self.now) if view.reason and waits else "")
        return {
            "id": workload.id,
            "name": workload.name,
            "type": workload.kind.value,
            "phase": workload.phase.value,
            "phaseMessage": message,
            "phaseReason": getattr(view.reason, "api_code", None) or None,
            "phaseUpdatedAt": since,
            "desiredPhase": workload.desired.value,
            "priority": workload.priority,
            "priorityClassName": workload.priority_class,
            "preemptible": workload.preemptible,
            "preemptibility": preemptibility(workload),
            "background": workload.background,
            "category": workload.category,
            "projectId": project.id,
            "projectName": project.name,
            "departmentId": department.id if department is not None else "",
            "departmentName": department.name if department is not None else "",
            "clusterId": self.cluster,
            "namespace": project.namespace,
            "submittedBy": workload.user,
            "source": workload.source,
            "createdAt": stamp(workload.created),
            "completedAt": stamp_or_none(workload.completed),
            "deletedAt": stamp_or_none(workload.deleted),
            "runningPods": view.running,
            "requestedPods": _pods_asked(workload.groups),
            "workloadRequestedResources": requested(requests),
            "podsRequestedResources": requested([(workload.groups[-1].request, 1)]),
            "allocatedResources": allocated(view.occupied),
            "requestedNodePools": list(workload.pools or project.default_pools or (DEFAULT_POOL,)),
            "currentNodePools": [view.pool] if view.pool else [],
            "images": images(view),
            "urls": [endpoint["url"] for endpoint in endpoints],
            "endpoints": endpoints,
            "tenantId": 1,
            "updatedAt": since,
            "k8sPhase": workload.phase.value,
            "k8sPhaseUpdatedAt": since,
            "conditions": [],
            "command": shlex.join(workload.launch.command),
            "arguments": shlex.join(workload.launch.args),
            "environmentVariables": dict.fromkeys(workload.launch.variables, MASKED),
            "labels": dict(workload.labels),
            "totalPendingTimeSeconds": self._spent(
                workload, workload.pending_ms, (Phase.CREATING, Phase.PENDING, Phase.INITIALIZING)
            ),
            "totalRunningTimeSeconds": self._spent(
                workload, workload.running_ms, (Phase.RUNNING, Phase.UPDATING, Phase.DEGRADED)
            ),
            "guaranteedRuntimeEndsAt": least["endsAt"] if least is not None else None,
            "protection": {
                "reclaim": self._ends(view, protection.reclaim),
                "preemption": self._ends(view, protection.preemption),
            }
            if protection is not None
            else None,
            "actionsSupport": {"delete": workload.desired is not Desired.DELETED, "suspend": not final},
            "distributedFramework": workload.framework or None,
            "status": status_of(view, self.now),
            "jobType": job_type(workload),
            "pendingPods": view.waiting,
            "elastic": any(
                group.elastic or (group.max > group.min and not group.at_once) for group in workload.groups
            ),
            "resize": _resize(workload.groups),
            "node": view.nodes[0] if len(view.nodes) == 1 else "<multiple>" if view.nodes else "",
            "nodes": list(view.nodes),
            "nodeType": workload.node_type,
            "reason": reason_item(view.reason, self.now),
            "number": workload.serial,
            "array": array_place(workload.element),
            "queuePosition": self.board.queue.get(workload.id),
            "fraction": fraction_of(view, self._uses),
            "gpuShares": shares_of(view, self._uses),
            "limitsEnforced": self._confined,
            "overQuotaGpus": gpus(self._over.get(workload.id, 0)),
            "progress": progress(view.progress),
        }

    def _ends(self, view: WorkloadView, guarantee: Guarantee | None) -> wire.Protected | None:
        """Until when a guarantee protects it, and whose setting that is; None once it is over."""
        if guarantee is None or view.started is None or view.started + guarantee.runtime <= self.now:
            return None
        return {
            "endsAt": stamp(view.started + guarantee.runtime),
            "level": guarantee.level,
            "name": guarantee.owner.name if guarantee.owner is not None else view.pool,
        }

    def _spent(self, workload: Workload, before: int, phases: Sequence[Phase]) -> int:
        """Seconds in these phases, the present stay included."""
        present = max(0, self.now - workload.phase_since) if workload.phase in phases else 0
        return (before + present) // 1000

    def pods(self, view: WorkloadView, attempts: Iterable[Attempt]) -> list[wire.PodItem]:
        """A pod for each task that was started or may still be."""
        rows = sorted(attempts, key=lambda row: row.id.number)
        newest = {row.id.task: row for row in rows}
        names = pod_names(view.workload, view.tasks, rows)
        return [self._pod(view, task, newest.get(task.name), names[task.name]) for task in view.pods]

    def _pod(self, view: WorkloadView, task: Task, attempt: Attempt | None, name: str) -> wire.PodItem:
        workload = view.workload
        end = attempt.exit if attempt is not None else None
        begun = attempt.ordered if attempt is not None else None
        placed = task.carries or task.claims
        started, ended = attempt.started if attempt is not None else None, end.at if end is not None else None
        image = workload.launch_of(task.name).image
        status = pod_status_of(workload, task, end, self.now)
        since = stamp(next(it for it in (ended, started, begun, workload.phase_since) if it is not None))
        return {
            "name": name,
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"pliant:{workload.id}/{task.name}")),
            "workloadId": workload.id,
            "workloadName": workload.name,
            "projectId": workload.project,
            "projectName": view.project.name,
            "clusterId": self.cluster,
            "tenantId": 1,
            "priorityClassName": workload.priority_class,
            "k8sPhase": status,
            "k8sPhaseUpdatedAt": since,
            "updatedAt": since,
            "status": status,
            "createdAt": stamp_or_none(begun),
            "completedAt": stamp_or_none(ended),
            "nodeName": placed.node if placed is not None else "",
            "containers": [{"name": task.name, "image": image, "startedAt": stamp_or_none(started)}],
            "allocatedResources": allocated([task.carries] if task.carries is not None else []),
            "attempt": task.attempt,
            "gpus": list(task.carries.uuids) if task.carries is not None else [],
            "exitCode": end.code if end is not None else None,
            "message": f"{task.name} {describe_exit(end)}." if end is not None else "",
            "failures": task.failures,
            "retryLimit": workload.backoff_limit,
            "retryAt": stamp_or_none(task.retry_at if task.phase is TaskPhase.WAITING else None),
        }


def images(view: WorkloadView) -> list[str]:
    """The images that its tasks run, each once; [] if all run programs of the machine."""
    workload = view.workload
    found = [workload.launch_of(task.name).image for task in view.tasks] or [workload.launch.image]
    return [image for image in dict.fromkeys(found) if image]


def _resize(groups: Sequence[TaskGroup]) -> Literal["live", "restart"] | None:
    elastic = [group for group in groups if group.elastic]
    if not elastic:
        return None
    return "live" if all(group.live_resize for group in elastic) else "restart"


def _pods_asked(groups: Sequence[TaskGroup]) -> wire.RequestedPods:
    at_once = sum(group.at_once or group.wanted for group in groups)
    independent = any(group.at_once for group in groups)
    return {
        "number": at_once,
        "min": at_once if independent else sum(group.min for group in groups),
        "max": at_once if independent else sum(group.max for group in groups),
        "parallelism": at_once,
        "completions": sum(group.wanted for group in groups),
    }
