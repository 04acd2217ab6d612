"""What was submitted and how it went: one entry a workload, deleted ones too."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from pliant.api.auth import Caller
from pliant.api.context import Here
from pliant.api.guard import needs
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.history import outcome_item
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.wire.workload import History

router = APIRouter(prefix="/api/v1", tags=["workloads"])

Since = Annotated[int, Query(alias="sinceSeconds", ge=0, le=10**9, description="0: all that is remembered.")]


@router.get("/history", dependencies=[needs("workloads:read")], **answers(200, History))
def history(
    here: Here,
    caller: Caller,
    project: Annotated[str, Query(alias="projectName")] = "",
    since: Since = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 20,
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
                }
                for workload, outcome in service.past(
                    project=project or None, since=began, limit=limit, of=lambda row: caller.sees(row, board)
                )
            ]
        }
    )
