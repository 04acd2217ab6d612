"""Workloads as they are: lists, one, its pods and history, why it waits; suspend, resume, delete."""

import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from pliant.api.auth import Caller
from pliant.api.context import Context, Here
from pliant.api.errors import STATUS
from pliant.api.listing import Listing, Window, cut, window
from pliant.api.models import Received
from pliant.api.redaction import own_too, shown, sight
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.history import event_item, outcome_item, record_item
from pliant.api.responses.progress import points
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.api.responses.workloads import Item, ended_view, job_type, reason_item, status_of, submitted
from pliant.api.routes.trash import kept_item
from pliant.api.routes.whatif import remedy_item, unblock_item
from pliant.control.board.view import WorkloadView
from pliant.control.errors import NotFound, Refused, Unavailable
from pliant.control.explain.questions import Unblocked
from pliant.model.event import Event
from pliant.model.reason import MayRead, Named
from pliant.model.workload import Kind
from pliant.wire.questions import Queue, WhyItem
from pliant.wire.server import Health
from pliant.wire.submission import Submitted
from pliant.wire.trash import Deleting, FolderItem
from pliant.wire.workload import (
    Batch,
    BatchDone,
    Counted,
    EventList,
    Outcome,
    PodItem,
    PodList,
    ProgressHistory,
    RecordList,
    WorkloadItem,
    WorkloadList,
)

router = APIRouter(prefix="/api/v1/workloads", tags=["workloads"])
queue_router = APIRouter(prefix="/api/v1", tags=["workloads"])

Asked = Annotated[Window, Depends(window)]
Deleted = Annotated[bool, Query(description="Those that were deleted, as long as they are remembered.")]

LATEST = 20
"""Events that `why` tells."""

AHEAD = 100
"""Of those that are before a workload `why` names so many; the rest it counts."""


def _listing(now: int) -> Listing[WorkloadView]:
    return Listing(
        {
            "id": lambda view: view.workload.id,
            "name": lambda view: view.workload.name,
            "type": lambda view: view.workload.kind.value,
            "phase": lambda view: view.workload.phase.value,
            "phaseUpdatedAt": lambda view: stamp(view.workload.phase_since),
            "desiredPhase": lambda view: view.workload.desired.value,
            "status": lambda view: status_of(view, now),
            "jobType": lambda view: job_type(view.workload),
            "priority": lambda view: view.workload.priority,
            "priorityClassName": lambda view: view.workload.priority_class,
            "preemptible": lambda view: view.workload.preemptible,
            "category": lambda view: view.workload.category,
            "projectId": lambda view: view.project.id,
            "projectName": lambda view: view.project.name,
            "departmentId": lambda view: view.department.id if view.department is not None else "",
            "departmentName": lambda view: view.department.name if view.department is not None else "",
            "namespace": lambda view: view.project.namespace,
            "submittedBy": lambda view: view.workload.user,
            "source": lambda view: view.workload.source,
            "createdAt": lambda view: stamp(view.workload.created),
            "completedAt": lambda view: stamp_or_none(view.workload.completed),
            "deletedAt": lambda view: stamp_or_none(view.workload.deleted),
            "runningPods": lambda view: view.running,
            "pendingPods": lambda view: view.waiting,
            "allocatedGPU": lambda view: gpus(view.gpu),
            "node": lambda view: ",".join(view.nodes),
            "nodepool": lambda view: view.pool,
            "nodeType": lambda view: view.workload.node_type,
            "image": lambda view: view.workload.launch.image,
        },
        searched=("name", "projectName", "submittedBy", "image", "id"),
    )


def _all(here: Context, deleted: bool) -> Sequence[WorkloadView]:
    """In the order of submission; deleted ones newest first."""
    board = here.service.board
    if deleted:
        return [ended_view(workload, board) for workload in here.service.ended()]
    return sorted(board.workloads.values(), key=lambda view: view.workload.serial)


def find(here: Context, identity: str) -> WorkloadView:
    """Of a workload that there is or that is remembered. Raises NotFound."""
    board = here.service.board
    if identity in board.workloads:
        return board.workloads[identity]
    for workload in here.service.ended():
        if workload.id == identity:
            return ended_view(workload, board)
    raise NotFound(
        f"There is no workload {identity[:60]!r}.", "Its id is a UUID; find it with filterBy=name==<name>."
    )


@router.get("", **answers(200, WorkloadList))
def list_workloads(here: Here, asked: Asked, deleted: Deleted = False) -> Response:
    renderer = here.renderer()
    listing = _listing(renderer.now)
    return answer(listing.page("workloads", _all(here, deleted), asked, renderer.workload))


@router.get("/count", **answers(200, Counted))
def count_workloads(here: Here, asked: Asked, deleted: Deleted = False) -> Response:
    return answer(_listing(here.service.now()).count(_all(here, deleted), asked))


@router.post("/batch", **answers(200, BatchDone))
def batch(body: Received[Batch], here: Here, caller: Caller) -> Response:
    """The same for many; each succeeds or fails by itself."""
    succeeded: list[str] = []
    failed: list[Item] = []
    act = _actions(here)[body["action"]]
    for identity in dict.fromkeys(body["ids"]):
        try:
            act(identity, caller.user)
        except Refused as error:
            code = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400)
            failed.append({"id": identity, "code": code, "message": str(error)})
        else:
            succeeded.append(identity)
    return answer({"id": str(uuid.uuid4()), "succeeded": succeeded, "failed": failed})


def _actions(here: Context) -> dict[str, Callable[[str, str], object]]:
    def cancel(identity: str, user: str) -> None:
        here.service.cancel(identity, user)

    return {
        "cancel": cancel,
        "delete": here.service.delete,
        "suspend": here.service.suspend,
        "resume": here.service.resume,
    }


@router.get("/{identity}", **answers(200, WorkloadItem))
def get_workload(identity: str, here: Here) -> Response:
    return answer(here.renderer().workload(find(here, identity)))


Purge = Annotated[bool, Query(description="Remove its files now instead of keeping them.")]


@router.delete("/{identity}", **answers(202, Deleting))
def delete_workload(identity: str, here: Here, caller: Caller, purge: Purge = False) -> Response:
    """End it; its name is free at once. `kept` says where its files are from then on, and until when."""
    files = here.service.files
    gone = here.service.delete(identity, caller.user, purge=purge)
    kept = None if purge else files.of(gone)
    item = kept_item(kept, files.keep) if kept is not None else None
    return answer({"status": "deleting", "kept": item}, 202)


Now = Annotated[bool, Query(description="Kill its processes without a grace period.")]


@router.post("/{identity}/cancel", **answers(200, Outcome))
def cancel_workload(identity: str, here: Here, caller: Caller, now: Now = False) -> Response:
    """End it for good; its record, log and files stay. Answers its outcome as it was before."""
    find(here, identity)
    before = here.service.outcome(identity)
    here.service.cancel(identity, caller.user, now=now)
    return answer(outcome_item(before))


@router.get("/{identity}/outcome", **answers(200, Outcome))
def outcome(identity: str, here: Here) -> Response:
    """How it ended; `exitCode` is null until it has."""
    return answer(outcome_item(here.service.outcome(identity)))


@router.get("/{identity}/folders", **answers(200, FolderItem))
def folders(identity: str, here: Here) -> Response:
    """Where its tasks start and where its files are, on its node."""
    found = here.service.files.folders(find(here, identity).workload)
    return answer(
        {
            "workingDir": found.working_dir if found is not None else None,
            "jobFolder": found.job if found is not None else None,
            "logFolder": found.logs if found is not None else None,
        }
    )


@router.get("/{identity}/pods", **answers(200, PodList))
def pods(identity: str, here: Here, asked: Asked) -> Response:
    view = find(here, identity)
    items = here.renderer().pods(view, here.service.attempts(identity))
    listing: Listing[PodItem] = Listing(
        {name: _member(name) for name in ("name", "status", "nodeName", "createdAt")}
    )
    return answer(listing.page("pods", items, asked, lambda item: item))


def _member(name: str) -> Callable[[PodItem], Any]:
    return lambda item: item[name]  # type: ignore[literal-required]  # one of those in `pods`


def _history(here: Context, identity: str) -> list[tuple[int, Event]]:
    """All that is remembered, oldest first."""
    found: list[tuple[int, Event]] = []
    while True:
        page = here.service.history(identity, after=found[-1][0] if found else 0)
        found += page
        if len(page) < 500:
            return found


_events: Listing[tuple[int, Event]] = Listing(
    {
        "createdAt": lambda entry: entry[1].at,
        "reason": lambda entry: entry[1].kind.value,
        "message": lambda entry: entry[1].message,
        "source": lambda entry: entry[1].who,
        "code": lambda entry: entry[1].reason,
    },
    searched=("reason", "message", "source"),
)


@router.get("/{identity}/events", **answers(200, EventList))
def events(identity: str, here: Here, asked: Asked) -> Response:
    """Its history with the reason of each decision, oldest first."""
    view = find(here, identity)
    found = _events.matching(_history(here, identity), asked)
    return answer(cut("events", found, asked, lambda entry: event_item(view, *entry)))


@router.get("/{identity}/progress", **answers(200, ProgressHistory))
def progress(identity: str, here: Here) -> Response:
    """What its job reported over time, oldest first; the older, the thinner."""
    return answer(points(find(here, identity).progress))


@router.get("/{identity}/history", **answers(200, RecordList))
def history(identity: str, here: Here, asked: Asked) -> Response:
    """The same as changes of phase and events."""
    view = find(here, identity)
    found = _events.matching(_history(here, identity), asked)
    return answer(cut("records", found, asked, lambda entry: record_item(view, *entry)))


Full = Annotated[bool, Query(description="Look for all that would let it start, however long it takes.")]


@router.get("/{identity}/why", **answers(200, WhyItem))
def why(identity: str, here: Here, caller: Caller, full: Full = False) -> Response:
    """Why it waits, who is before it, what would let it start and when it will, what happened to it last.

    Names of projects in which the caller has nothing are left out; numbers are not.
    """
    board = here.service.board
    view, waiting = find(here, identity), board.pending
    others = sight(board, caller)
    may_read = own_too(others, view.project.id)
    place = next((at for at, other in enumerate(waiting) if other.workload.id == identity), None)
    told = [event_item(view, *entry, may_read) for entry in _history(here, identity)[-LATEST:]]
    before = waiting[: place or 0]
    ahead = [(*_named(other, others), other.missing) for other in before[:AHEAD]]
    found = _unblocked(here, identity, full) if view.lacks else None
    return answer(
        {
            "reason": reason_item(view.reason, here.service.now(), may_read),
            "position": None if place is None else place + 1,
            "ahead": [
                {"name": name, "project": project, "gpus": gpus(lacks)} for name, project, lacks in ahead
            ],
            "aheadCount": len(before),
            "aheadGpus": gpus(found.ahead if found is not None and before else 0),
            "history": told,
            "unblock": unblock_item(found, others),
        }
    )


def _unblocked(here: Context, identity: str, full: bool) -> Unblocked | None:
    """None while the scheduler does not answer: every answer says so, and the rest of this one is known."""
    try:
        return here.service.questions.unblock(identity, full=full)
    except Unavailable:
        if here.service.trouble:
            return None
        raise


Remedies = Annotated[bool, Query(description="Include changes that would let each start, one of each kind.")]


@queue_router.get("/queue", **answers(200, Queue))
def queue(here: Here, caller: Caller, remedies: Remedies = False) -> Response:
    """All that wait, in the order in which the scheduler looks at them.

    Names of projects in which the caller has nothing are left out; numbers are not.
    """
    board = here.service.board
    may_read, waiting, now = sight(board, caller), board.pending, here.service.now()
    found = here.service.questions.suggest() if remedies else ()
    tried = {it.first: it.remedy for it in found if it.remedy is not None}
    like = {wid: it.first for it in found for wid in it.like}
    names = {view.workload.id: _named(view, may_read) for view in waiting}
    return answer(
        {
            "entries": [
                {
                    "position": at,
                    "name": names[view.workload.id][0],
                    "project": names[view.workload.id][1],
                    "gpus": gpus(view.missing),
                    "reason": reason_item(view.reason, now, own_too(may_read, view.project.id)),
                    "since": stamp(view.workload.phase_since),
                    "remedy": None
                    if (it := tried.get(view.workload.id)) is None
                    else remedy_item(it, may_read),
                    "like": names[first][0] if (first := like.get(view.workload.id)) in names else None,
                }
                for at, view in enumerate(waiting, 1)
            ]
        }
    )


def _named(view: WorkloadView, may_read: MayRead) -> tuple[str, str]:
    row, project = view.workload, view.project
    return shown(Named("workload", row.id, row.name, project.id, project.name), may_read)


# -- the same under the type's own path -------------------------------------------------------------


def _typed(here: Context, identity: str, kind: Kind) -> WorkloadView:
    view = find(here, identity)
    if view.workload.kind is not kind:
        is_what = view.workload.kind.value.lower()
        raise NotFound(
            f"{view.workload.name} is a {is_what}, not a {kind.value.lower()}.", f"Look under {is_what}s."
        )
    return view


def _routes(plural: str, kind: Kind) -> None:
    word = kind.value.lower()

    def read(identity: str, here: Here) -> Response:
        return answer(submitted(_typed(here, identity, kind).workload, here.service.board))

    def delete(identity: str, here: Here, caller: Caller, purge: Purge = False) -> Response:
        _typed(here, identity, kind)
        return delete_workload(identity, here, caller, purge)

    def suspend(identity: str, here: Here, caller: Caller) -> Response:
        """Stop it and keep it: its GPUs go to others until it is resumed."""
        _typed(here, identity, kind)
        here.service.suspend(identity, caller.user)
        return answer({"status": "suspending"}, 202)

    def resume(identity: str, here: Here, caller: Caller) -> Response:
        _typed(here, identity, kind)
        here.service.resume(identity, caller.user)
        return answer({"status": "resuming"}, 202)

    path = f"/{plural}/{{identity}}"
    router.get(path, name=f"get_{word}", **answers(200, Submitted))(read)
    router.delete(path, name=f"delete_{word}", **answers(202, Deleting))(delete)
    router.post(f"{path}/suspend", name=f"suspend_{word}", **answers(202, Health))(suspend)
    router.post(f"{path}/resume", name=f"resume_{word}", **answers(202, Health))(resume)


_routes("trainings", Kind.TRAINING)
_routes("workspaces", Kind.WORKSPACE)
_routes("distributed", Kind.DISTRIBUTED)
_routes("inferences", Kind.INFERENCE)
