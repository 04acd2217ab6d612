"""Routes for the record of cycles: what it holds, and the part from which one cycle can be replayed."""

from typing import Annotated

from fastapi import Query, Response

from pliant.api.context import Here
from pliant.api.errors import Forbidden
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.times import stamp
from pliant.control.errors import BadRequest
from pliant.wire.questions import ReplayItem

router = Router(prefix="/api/v1/replay", tags=["replay"])


@router.get("", dependencies=[needs("replay:read")], **answers(200, ReplayItem))
def held(here: Here) -> Response:
    it = here.service.questions.recorder.held()
    some = it.first is not None
    return answer(
        {
            "first": it.first[1] if it.first is not None else None,
            "last": it.last[1] if it.last is not None else None,
            "began": stamp(it.began) if some else None,
            "ended": stamp(it.ended) if some else None,
            "bytes": it.size,
            "most": it.most,
            "missed": it.missed,
        }
    )


@router.get(
    "/record",
    dependencies=[needs("replay:read")],
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
def record(
    here: Here,
    caller: Caller,
    cycle: Annotated[int | None, Query(ge=1, description="Number of a cycle.")] = None,
    at: Annotated[int | None, Query(ge=0, lt=2**63, description="Ms since the epoch.")] = None,
) -> Response:
    """Lines of JSON, the first with a whole world before that cycle or time; for the server's owner only."""
    if not caller.admin:
        raise Forbidden("The record names all projects: only the owner of the server may read it.")
    if cycle is not None and at is not None:
        raise BadRequest("cycle and at exclude each other.", "Name one of them.")
    data = here.service.questions.recorder.record(cycle=cycle, at=at)
    return Response(data, media_type="application/x-ndjson")
