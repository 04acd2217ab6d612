"""Routes for workloads with their outcomes, and for past decisions; deleted workloads are included."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import AfterValidator, WithJsonSchema

from pliant.api.context import Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.redaction import own_too, sight
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.history import attempt_entry, decision_item, outcome_item
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.model.event import EventKind
from pliant.model.tenancy import Project
from pliant.model.workload import Workload
from pliant.wire.events import EventItem, EventList
from pliant.wire.history import AttemptEntry, History

router = Router(prefix="/api/v1", tags=["workloads"])


def _kind(value: str) -> EventKind:
    """Used instead of the enum: from Python 3.12 on pydantic cannot read the signature of an enum."""
    return EventKind(value)


Kind = Annotated[
    str, AfterValidator(_kind), WithJsonSchema({"type": "string", "enum": [str(it) for it in EventKind]})
]
Since = Annotated[int, Query(alias="sinceSeconds", ge=0, le=10**9, description="0: all that is remembered.")]


@router.get("/history", dependencies=[needs("workloads:read")], **answers(200, History))
def history(
    here: Here,
    caller: Caller,
    project: Annotated[str, Query(alias="projectName")] = "",
    since: Since = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 20,
    attempts: Annotated[bool, Query(description="Add every attempt of each task, as `tries`.")] = False,
) -> Response:
    """Workloads with their outcomes, the newest submission first."""
    service = here.service
    began = service.now() - since * 1000 if since else 0
    board = service.board
    names = {identity: view.queue.name for identity, view in board.projects.items()}
    return answer(
        {
            "entries": [
                {
                    "number": workload.serial,
                    "id": workload.id,
                    "name": workload.name,
                    "projectName": names.get(workload.project, workload.project),
                    "submittedBy": workload.user,
                    "submittedAt": stamp(workload.created),
                    "completedAt": stamp_or_none(workload.completed),
                    "waitedSeconds": workload.pending_ms // 1000,
                    "gpus": gpus(outcome.gpu),
                    "attempts": outcome.attempts,
                    "outcome": outcome_item(outcome),
                    **({"tries": _tries(here, workload)} if attempts else {}),
                }
                for workload, outcome in service.past(
                    project=project or None, since=began, limit=limit, of=lambda row: caller.sees(row, board)
                )
            ]
        }
    )


def _tries(here: Here, workload: Workload) -> list[AttemptEntry]:
    now = here.service.now()
    return [attempt_entry(row, now) for row in here.service.attempts(workload.id)]


PAGE = 500
"""Events that are read at a time."""

FURTHEST = 20_000
"""Most events that one request reads; `next` goes on from there."""

Before = Annotated[int | None, Query(ge=1, lt=2**63, description="`next` of the page before this one.")]


@router.get("/decisions", dependencies=[needs("workloads:read")], **answers(200, EventList))
def decisions(
    here: Here,
    caller: Caller,
    since: Since = 0,
    kinds: Annotated[list[Kind] | None, Query(alias="kind", description="Kinds of events.")] = None,
    before: Annotated[
        int | None, Query(ge=1, lt=2**63, description="`next` of the page before this one.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """What happened to workloads, each with its reason, the newest first."""
    service, board = here.service, here.service.board
    began = service.now() - since * 1000 if since else 0
    known: dict[str, Workload] = {row.id: row for row in service.ended()}
    known |= {identity: view.workload for identity, view in board.workloads.items()}
    queues = (view.queue for view in board.projects.values())
    projects = {it.id: it.namespace for it in queues if isinstance(it, Project)}
    may_read, sees = sight(board, caller), dict[str, bool]()
    found: list[EventItem] = []
    read = 0
    while len(found) < limit and read < FURTHEST:
        page = service.happened(began, before, PAGE)
        read += len(page)
        for number, event in page:
            before = number
            workload = known.get(event.subject)
            if workload is None or (kinds and event.kind not in kinds):
                continue
            if sees.setdefault(workload.id, caller.sees(workload, board)):
                namespace = projects.get(workload.project, "")
                told = own_too(may_read, workload.project)
                found.append(decision_item(workload, namespace, board.cluster_id, number, event, told))
                if len(found) == limit:
                    break
        if len(page) < PAGE:
            before = before if len(found) == limit else None
            break
    body: EventList = {"events": found}
    if before is not None:
        body["next"] = before
    return answer(body)
