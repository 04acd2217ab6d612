"""Routes for workloads: lists, one, its history and outcome; suspend, resume, cancel, delete."""

import uuid
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from pliant.api.context import Context, Here
from pliant.api.errors import status_of_refusal
from pliant.api.guard import about, check, known_workload, needs, workload
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.listing import Listing, Window, cut
from pliant.api.paths_elsewhere import KINDS
from pliant.api.redaction import own_too, sight
from pliant.api.repeats import answered
from pliant.api.requests.completion import PLURALS
from pliant.api.requests.parse_submission import parse_fitting
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.history import EVENTS, AskedEvents, event_item, outcome_item, record_item, seen
from pliant.api.responses.progress import points
from pliant.api.responses.spec import submitted
from pliant.api.responses.status import status_of
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.api.responses.workloads import Item, ended_view, job_type
from pliant.api.routes.workloads.trash import kept_item
from pliant.api.schemas.models import Received
from pliant.control.board.view import Board, WorkloadView
from pliant.control.errors import BadRequest, Conflict, NotFound, Refused
from pliant.control.explain.dry import Trial, Tried, together
from pliant.model.event import Event
from pliant.model.workload import Kind
from pliant.wire.events import EventList, RecordList
from pliant.wire.server import Health
from pliant.wire.submission import Submitted
from pliant.wire.trash import Deleting, FolderItem
from pliant.wire.workload import (
    Batch,
    BatchDone,
    Counted,
    Fitting,
    Outcome,
    ProgressHistory,
    Sharing,
    Signalled,
    WorkloadItem,
    WorkloadList,
)

router = Router(prefix="/api/v1/workloads", tags=["workloads"])

Deleted = Annotated[bool, Query(description="Include deleted workloads within the retention.")]


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


Asked = Annotated[Window, Depends(_listing(0).asked)]


def everything(here: Context, caller: Principal, board: Board, deleted: bool) -> Sequence[WorkloadView]:
    """The workloads that the caller may see, in the order of submission; deleted ones newest first.

    The reason of a pending one may be an older one; the renderer uses the newest.
    """
    if deleted:
        return [ended_view(row, board) for row in here.service.ended() if caller.sees(row, board)]
    views = board.workloads.standing
    return list(views if caller.all_seeing else (view for view in views if caller.sees(view, board)))


def find(here: Context, identity: str, board: Board | None = None) -> WorkloadView:
    """The view of a workload on that board (None: the newest), or of a deleted one that is remembered.

    Raises NotFound.
    """
    board = board or here.service.board
    if identity in board.workloads:
        return board.workloads[identity]
    for row in here.service.ended():
        if row.id == identity:
            return ended_view(row, board)
    raise NotFound(
        f"There is no workload {identity[:60]!r}.", "Its id is a UUID; find it with filterBy=name==<name>."
    )


@router.get("", dependencies=[needs("workloads:read")], **answers(200, WorkloadList))
def list_workloads(here: Here, caller: Caller, asked: Asked, deleted: Deleted = False) -> Response:
    renderer = here.renderer(caller)
    listing = _listing(renderer.now)
    entries = everything(here, caller, renderer.board, deleted)
    body = listing.encoded("workloads", entries, asked, renderer.encoded)
    return Response(body, media_type="application/json")


@router.post("", dependencies=[needs("workloads:read")], **answers(200, WorkloadList))
async def list_by_post(
    request: Request, here: Here, caller: Caller, asked: Asked, deleted: Deleted = False
) -> Response:
    """The list again: curl sends POST where it is given empty data. A workload has a kind in its path."""
    if (await request.body()).strip() not in (b"", b"{}"):
        raise BadRequest(
            "A workload is submitted under the path of its kind.",
            f"Send it to one of {', '.join(f'/api/v1/workloads/{kind}' for kind in KINDS)}.",
        )
    return await run_in_threadpool(list_workloads, here, caller, asked, deleted)


@router.get("/count", dependencies=[needs("workloads:read")], **answers(200, Counted))
def count_workloads(here: Here, caller: Caller, asked: Asked, deleted: Deleted = False) -> Response:
    listing = _listing(here.service.now())
    return answer(listing.count(everything(here, caller, here.service.board, deleted), asked))


@router.post("/batch", dependencies=[needs("workloads:update")], **answers(200, BatchDone))
def batch(body: Received[Batch], here: Here, caller: Caller) -> Response:
    """The same for many; each succeeds or fails by itself. Deletions are one transaction."""
    succeeded: list[str] = []
    failed: list[Item] = []
    trials: list[Trial] = []
    act = _actions(here)[body["action"]]
    right = "workloads:delete" if body["action"] == "delete" else "workloads:update"
    for identity in dict.fromkeys(body["ids"]):
        try:
            check(caller, right, about(known_workload(here, identity), identity, here.service.board, caller))
            act(identity, caller.user)
        except Refused as error:
            code = status_of_refusal(error)
            failed.append({"id": identity, "code": code, "message": str(error)})
        except Tried as tried:
            trials.append(tried.trial)
        else:
            succeeded.append(identity)
    if trials:
        raise Tried(together(trials))
    refused = here.service.delete_all(succeeded, caller.user) if body["action"] == "delete" else {}
    failed += [{"id": key, "code": 404, "message": str(error)} for key, error in refused.items()]
    succeeded = [identity for identity in succeeded if identity not in refused]
    return answer({"id": str(uuid.uuid4()), "succeeded": succeeded, "failed": failed})


def _actions(here: Context) -> dict[str, Callable[[str, str], object]]:
    def cancel(identity: str, user: str) -> None:
        here.service.cancel(identity, user)

    return {
        "cancel": cancel,
        "delete": lambda identity, user: None,  # all at once, at the end
        "suspend": here.service.suspend,
        "resume": here.service.resume,
    }


@router.get("/{identity}", dependencies=[needs("workloads:read", workload)], **answers(200, WorkloadItem))
def get_workload(identity: str, here: Here, caller: Caller) -> Response:
    renderer = here.renderer(caller)
    return answer(renderer.workload(find(here, identity, renderer.board)))


Purge = Annotated[bool, Query(description="Remove its files now instead of keeping them.")]


@router.delete("/{identity}", dependencies=[needs("workloads:delete", workload)], **answers(202, Deleting))
def delete_workload(identity: str, here: Here, caller: Caller, purge: Purge = False) -> Response:
    """End it; its name is free at once. `kept` says where its files are from then on, and until when."""
    files = here.service.files
    kept = None if purge else files.of(find(here, identity).workload)  # files of an ended one move at once
    here.service.delete(identity, caller.user, purge=purge)
    item = kept_item(kept, files.keep) if kept is not None else None
    return answer({"status": "deleting", "kept": item}, 202)


Now = Annotated[bool, Query(description="Kill its processes without a grace period.")]


@router.post(
    "/{identity}/cancel", dependencies=[needs("workloads:update", workload)], **answers(200, Outcome)
)
def cancel_workload(identity: str, here: Here, caller: Caller, now: Now = False) -> Response:
    """End it for good; its record, log and files stay. Answers its outcome as it was before."""
    find(here, identity)
    before = here.service.outcome(identity)
    here.service.cancel(identity, caller.user, now=now)
    return answer(outcome_item(before))


Number = Annotated[int, Query(ge=1, le=31, description="10: SIGUSR1, 12: SIGUSR2, 2: SIGINT")]


@router.post(
    "/{identity}/signal", dependencies=[needs("workloads:update", workload)], **answers(200, Signalled)
)
def signal_workload(identity: str, here: Here, caller: Caller, number: Number) -> Response:
    """A signal to all processes of its running tasks. What it ends is not ended by request, but failed."""
    find(here, identity)
    return answered(
        lambda: here.service.signal(identity, number, caller.user), lambda tasks: answer({"tasks": tasks})
    )


@router.get("/{identity}/outcome", dependencies=[needs("workloads:read", workload)], **answers(200, Outcome))
def outcome(identity: str, here: Here) -> Response:
    """How it ended; `exitCode` is null until it has."""
    return answer(outcome_item(here.service.outcome(identity)))


@router.get(
    "/{identity}/folders", dependencies=[needs("workloads:files", workload)], **answers(200, FolderItem)
)
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


@router.get("/{identity}/sharing", dependencies=[needs("workloads:read", workload)], **answers(200, Sharing))
def sharing(identity: str, here: Here) -> Response:
    """Those who may read its log and files besides its owner."""
    return answer({"sharedWith": list(find(here, identity).workload.shared)})


@router.put("/{identity}/sharing", dependencies=[needs("workloads:share", workload)], **answers(200, Sharing))
def share(identity: str, body: Received[Sharing], here: Here, caller: Caller) -> Response:
    """`project`: those who may read its project; `user:NAME`: one of them; nothing: no one else."""
    if not caller.box:
        raise Conflict(
            "Logs and files are shared by a role in the project here.", "See: pliant access-rule create"
        )
    return answer({"sharedWith": list(here.service.share(identity, body["sharedWith"], caller.user).shared)})


@router.put(
    "/{identity}/resources", dependencies=[needs("workloads:update", workload)], **answers(200, WorkloadItem)
)
def refit(identity: str, body: Received[Fitting], here: Here, caller: Caller) -> Response:
    """Give its tasks other cores and memory. What runs goes on; one that is suspended starts with them."""
    find(here, identity)
    here.service.refit(identity, parse_fitting(body), caller.user)
    renderer = here.renderer(caller)
    return answer(renderer.workload(find(here, identity, renderer.board)))


def history_of(here: Context, identity: str) -> list[tuple[int, Event]]:
    """All events of a workload that are remembered, oldest first."""
    found: list[tuple[int, Event]] = []
    while True:
        page = here.service.history(identity, after=found[-1][0] if found else 0)
        found += page
        if len(page) < 500:
            return found


def _told(here: Context, caller: Principal, view: WorkloadView) -> list[tuple[int, Event]]:
    """The history without names that the caller may not read."""
    may_read = own_too(sight(here.service.board, caller), view.project.id)
    return [(number, seen(event, may_read)) for number, event in history_of(here, view.workload.id)]


@router.get("/{identity}/events", dependencies=[needs("workloads:read", workload)], **answers(200, EventList))
def events(identity: str, here: Here, caller: Caller, asked: AskedEvents) -> Response:
    """Its history with the reason of each decision, oldest first."""
    view = find(here, identity)
    found = EVENTS.matching(_told(here, caller, view), asked)
    cluster = here.service.board.cluster_id
    return answer(cut("events", found, asked, lambda entry: event_item(view, cluster, *entry)))


@router.get(
    "/{identity}/progress", dependencies=[needs("workloads:read", workload)], **answers(200, ProgressHistory)
)
def progress(identity: str, here: Here) -> Response:
    """What its job reported over time, oldest first; the older, the thinner."""
    return answer(points(find(here, identity).progress))


@router.get(
    "/{identity}/history", dependencies=[needs("workloads:read", workload)], **answers(200, RecordList)
)
def history(identity: str, here: Here, caller: Caller, asked: AskedEvents) -> Response:
    """The same as changes of phase and events."""
    view = find(here, identity)
    found = EVENTS.matching(_told(here, caller, view), asked)
    cluster = here.service.board.cluster_id
    return answer(cut("records", found, asked, lambda entry: record_item(view, cluster, *entry)))


# -- the same under the type's own path -------------------------------------------------------------


_NOUNS = {Kind.INFERENCE: "an inference", Kind.DISTRIBUTED: "a distributed training"}


def _a(kind: Kind) -> str:
    return _NOUNS.get(kind, f"a {kind.value.lower()}")


def typed(here: Context, identity: str, kind: Kind) -> WorkloadView:
    view = find(here, identity)
    if view.workload.kind is not kind:
        here_is, asked = (_a(it) for it in (view.workload.kind, kind))
        raise NotFound(
            f"{view.workload.name} is {here_is}, not {asked}.", f"Look under {PLURALS[view.workload.kind]}."
        )
    return view


def _routes(plural: str, kind: Kind) -> None:
    word = kind.value.lower()

    def read(identity: str, here: Here, caller: Caller) -> Response:
        row = typed(here, identity, kind).workload
        return answer(submitted(row, here.service.board, inside=caller.inside(row)))

    def delete(identity: str, here: Here, caller: Caller, purge: Purge = False) -> Response:
        typed(here, identity, kind)
        return delete_workload(identity, here, caller, purge)

    def suspend(identity: str, here: Here, caller: Caller) -> Response:
        """Stop it and keep it: its GPUs go to others until it is resumed."""
        typed(here, identity, kind)
        here.service.suspend(identity, caller.user)
        return answer({"status": "suspending"}, 202)

    def resume(identity: str, here: Here, caller: Caller) -> Response:
        typed(here, identity, kind)
        here.service.resume(identity, caller.user)
        return answer({"status": "resuming"}, 202)

    path = f"/{plural}/{{identity}}"
    sees, stops = needs("workloads:read", workload), needs("workloads:update", workload)
    ends = needs("workloads:delete", workload)
    router.get(path, name=f"get_{word}", dependencies=[sees], **answers(200, Submitted))(read)
    router.delete(path, name=f"delete_{word}", dependencies=[ends], **answers(202, Deleting))(delete)
    router.post(f"{path}/suspend", name=f"suspend_{word}", dependencies=[stops], **answers(202, Health))(
        suspend
    )
    router.post(f"{path}/resume", name=f"resume_{word}", dependencies=[stops], **answers(202, Health))(resume)


_routes("trainings", Kind.TRAINING)
_routes("workspaces", Kind.WORKSPACE)
_routes("distributed", Kind.DISTRIBUTED)
_routes("inferences", Kind.INFERENCE)
