"""Routes for the audit of fairness: what each project was due over some time, and what it got."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Query, Response

from pliant.api.context import Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.redaction import shown, sight
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.times import stamp
from pliant.control.board.fairness import DEFINITIONS, HOUR, SLOTS, Sums, jain
from pliant.control.board.view import Board
from pliant.model.reason import MayRead, Named
from pliant.wire.questions import Fairness, FairnessHours, FairnessRow

router = Router(prefix="/api/v1/audit", tags=["audit"])


Window = Annotated[
    int, Query(alias="windowSeconds", ge=60, le=SLOTS * 3600, description="How far back, in seconds.")
]


@router.get("/fairness", dependencies=[needs("reports:read")], **answers(200, Fairness))
def fairness(here: Here, caller: Caller, window: Window = 86_400) -> Response:
    """Amounts in GPU hours. Names of projects in which the caller has nothing are left out."""
    service = here.service
    sums = service.questions.audit.over(window * 1000, service.now())
    index = jain(sums.values())
    return answer(
        {
            "windowSeconds": window,
            "projects": _rows(sums, service.board, sight(service.board, caller)),
            "jain": None if index is None else index / 1000,
            "definitions": DEFINITIONS,
        }
    )


@router.get("/fairness/hours", dependencies=[needs("reports:read")], **answers(200, FairnessHours))
def hours(here: Here, caller: Caller, window: Window = 86_400) -> Response:
    """The same hour by hour: an amount of an hour, in GPU hours, is the GPUs of its average."""
    service = here.service
    board, found = service.board, service.questions.audit.by_hour(window * 1000, service.now())
    sees = sight(board, caller)
    return answer(
        {
            "hours": [
                {"began": stamp(hour * HOUR), "projects": _rows(sums, board, sees)}
                for hour, sums in found.items()
            ]
        }
    )


def _rows(sums: Mapping[str, Sums], board: Board, sees: MayRead) -> list[FairnessRow]:
    known = board.projects
    names = {it: known[it].queue.name if it in known else f"{it} (deleted)" for it in sums}
    rows: list[FairnessRow] = []
    for identity, name in sorted(names.items(), key=lambda entry: entry[1]):
        it = sums[identity]
        amounts = {part: round(getattr(it, part) / 1000 / HOUR, 4) for part in _AMOUNTS}
        rows.append(
            FairnessRow(
                project=shown(Named("project", identity, name, identity), sees)[0],
                violatedSeconds=it.violated // 1000,
                seenSeconds=it.seen // 1000,
                **amounts,  # type: ignore[typeddict-item]
            )
        )
    return rows


_AMOUNTS = ("entitled", "received", "borrowed", "lent", "late")
