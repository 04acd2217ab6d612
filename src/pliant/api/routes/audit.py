"""Audit of fairness: what each project was due over some time, and what it got."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from pliant.api.auth import Caller
from pliant.api.context import Here
from pliant.api.guard import needs
from pliant.api.redaction import shown, sight
from pliant.api.responses.encoding import answer, answers
from pliant.control.board.fairness import DEFINITIONS, HOUR, SLOTS, jain
from pliant.model.reason import Named
from pliant.wire.questions import Fairness

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])


Window = Annotated[
    int, Query(alias="windowSeconds", ge=60, le=SLOTS * 3600, description="How far back, in seconds.")
]


@router.get("/fairness", dependencies=[needs("reports:read")], **answers(200, Fairness))
def fairness(here: Here, caller: Caller, window: Window = 86_400) -> Response:
    """Amounts in GPU hours. Names of projects in which the caller has nothing are left out."""
    service = here.service
    sums = service.questions.audit.over(window * 1000, service.now())
    sees = sight(service.board, caller)
    known = service.board.projects
    names = {it: known[it].queue.name if it in known else f"{it} (deleted)" for it in sums}
    rows = []
    for identity, name in sorted(names.items(), key=lambda entry: entry[1]):
        it = sums[identity]
        rows.append(
            {
                "project": shown(Named("project", identity, name, identity), sees)[0],
                **{part: round(getattr(it, part) / 1000 / HOUR, 4) for part in _AMOUNTS},
                "violatedSeconds": it.violated // 1000,
                "seenSeconds": it.seen // 1000,
            }
        )
    index = jain(sums.values())
    return answer(
        {
            "windowSeconds": window,
            "projects": rows,
            "jain": None if index is None else index / 1000,
            "definitions": DEFINITIONS,
        }
    )


_AMOUNTS = ("entitled", "received", "borrowed", "lent", "late")
