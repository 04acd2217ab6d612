"""Routes for pending workloads: why they wait, in which order, and what would let them start."""

from itertools import islice
from typing import Annotated

from fastapi import Query, Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs, workload
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.redaction import own_too, shown, sight
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.history import event_item
from pliant.api.responses.times import stamp
from pliant.api.responses.workloads import reason_item
from pliant.api.routes.workloads.whatif import remedy_item, start_item, unblock_item
from pliant.api.routes.workloads.workloads import find, history_of
from pliant.control.board.view import WorkloadView
from pliant.control.errors import Unavailable
from pliant.control.explain.questions import Unblocked
from pliant.model.reason import MayRead, Named
from pliant.wire.questions import Queue, WhyItem

router = Router(prefix="/api/v1", tags=["workloads"])

LATEST = 20
"""Most events that `why` shows: the latest."""

AHEAD = 100
"""Most workloads ahead that `why` names; it counts all of them."""


Full = Annotated[
    bool, Query(description="Search for every change that would let it start, without a time limit.")
]


@router.get(
    "/workloads/{identity}/why", dependencies=[needs("workloads:read", workload)], **answers(200, WhyItem)
)
def why(identity: str, here: Here, caller: Caller, full: Full = False) -> Response:
    """Why it waits, who is before it, what would let it start and when it will, what happened to it last.

    Names of projects in which the caller has nothing are left out; numbers are not.
    """
    board = here.service.board
    view, place = find(here, identity, board), board.queue.get(identity)
    others = sight(board, caller)
    may_read = own_too(others, view.project.id)
    told = [
        event_item(view, board.cluster_id, *entry, may_read) for entry in history_of(here, identity)[-LATEST:]
    ]
    before = place - 1 if place is not None else 0
    first = map(board.workloads.__getitem__, islice(board.queue, min(before, AHEAD)))
    ahead = [(*_named(other, others), other.missing) for other in first]
    found = _unblocked(here, identity, full) if view.lacks else None
    return answer(
        {
            "reason": reason_item(view.reason, here.service.now(), may_read),
            "position": place,
            "ahead": [
                {"name": name, "project": project, "gpus": gpus(lacks)} for name, project, lacks in ahead
            ],
            "aheadCount": before,
            "aheadGpus": gpus(found.ahead if found is not None and before else 0),
            "history": told,
            "unblock": unblock_item(found, others),
        }
    )


def _unblocked(here: Context, identity: str, full: bool) -> Unblocked | None:
    """None if the scheduler does not answer because of `trouble`, which every answer shows."""
    try:
        return here.service.questions.unblock(identity, full=full)
    except Unavailable:
        if here.service.trouble:
            return None
        raise


Remedies = Annotated[bool, Query(description="Include changes that would let each start, one of each kind.")]

Starts = Annotated[
    int, Query(ge=0, le=20, description="Number of entries at the head of the queue whose start to estimate.")
]


@router.get("/queue", dependencies=[needs("queue:read")], **answers(200, Queue))
def queue(here: Here, caller: Caller, remedies: Remedies = False, starts: Starts = 0) -> Response:
    """All that wait, in the order in which the scheduler looks at them.

    Names of projects in which the caller has nothing are left out; numbers are not.
    """
    board = here.service.board
    may_read, waiting, now = sight(board, caller), board.pending, here.service.now()
    found = here.service.questions.suggest() if remedies else ()
    tried = {it.first: it.remedy for it in found if it.remedy is not None}
    like = {wid: it.first for it in found for wid in it.like}
    names = {view.workload.id: _named(view, may_read) for view in waiting}
    first = [view.workload.id for view in waiting[:starts]]
    expected = here.service.questions.starts(first) if first else {}
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
                    "like": names[before][0] if (before := like.get(view.workload.id)) in names else None,
                    "start": None if (when := expected.get(view.workload.id)) is None else start_item(when),
                }
                for at, view in enumerate(waiting, 1)
            ]
        }
    )


def _named(view: WorkloadView, may_read: MayRead) -> tuple[str, str]:
    row, project = view.workload, view.project
    return shown(Named("workload", row.id, row.name, project.id, project.name), may_read)
