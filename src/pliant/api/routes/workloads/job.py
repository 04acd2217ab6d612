"""Routes for the link inside a running job, with the token of its attempt."""

import asyncio
import re
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Response

from pliant.api.context import Context, Here
from pliant.api.guard import ATTEMPT, needs
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.schemas.models import Received
from pliant.api.streaming.feed import BEAT
from pliant.control.usecases.jobs import PROTOCOL, progress_of
from pliant.model.workload import AttemptId
from pliant.wire.job import Ack, Allocation, Link, Linked, Report, Reported

router = Router(prefix="/api/v1/attempts/{workload}/{task}/{number}", tags=["jobs"])

LONGEST = 30.0
"""Longest wait for an answer, in seconds."""

_WAIT = re.compile(r"\bwait=(\d{1,4})\b")


async def _attempt(workload: str, task: str, number: Annotated[int, Path(ge=0, le=2**31)]) -> AttemptId:
    return AttemptId(workload, task, number)


Of = Annotated[AttemptId, Depends(_attempt)]


@router.get("/allocation", dependencies=[needs(ATTEMPT)], **answers(200, Allocation))
async def allocation(
    of: Of,
    here: Here,
    after: int = -1,
    prefer: Annotated[str, Header(max_length=100, description="wait=N: answer after at most N seconds")] = "",
) -> Response:
    """What its workload has and will lose. With `Prefer: wait=N` it answers once there is a version above
    `after`, or with the same when time is up. `now` is the server's clock."""
    wish = _WAIT.search(prefer)
    left = min(float(wish[1]), LONGEST) if wish is not None else 0.0
    document = here.service.jobs.document(of.workload)
    if document["version"] <= after and left > 0:
        document = await _newer(here, of.workload, after, left)
    return answer({**document, "now": here.service.now()})


async def _newer(here: Context, workload: str, after: int, left: float) -> dict[str, Any]:
    """The document, once it is newer than `after` or time is up. Waits on the loop, without a thread."""
    until = asyncio.get_running_loop().time() + left
    with here.pulse.listen() as news:
        while True:
            news.clear()
            document = here.service.jobs.document(workload)
            left = until - asyncio.get_running_loop().time()
            if document["version"] > after or left <= 0 or here.closing():
                return document
            try:
                async with asyncio.timeout(min(left, BEAT)):
                    await news.wait()
            except TimeoutError:
                continue


@router.post("/link", dependencies=[needs(ATTEMPT)], **answers(200, Linked))
def link(of: Of, body: Received[Link], here: Here) -> Response:
    """The agent of a job begins to follow the allocation. Its clock need not agree with the server's."""
    here.service.jobs.register(of, body["protocol"], body["pid"], body.get("liveResize", False))
    now = here.service.now()
    return answer(
        {"protocol": PROTOCOL, "now": now, "aheadMs": sent - now if (sent := body.get("nowMs")) else 0}
    )


@router.post("/acks", dependencies=[needs(ATTEMPT)], status_code=204, response_model=None)
def acks(of: Of, body: Received[Ack], here: Here) -> Response:
    """It has left devices, or works on them. A device is free when it is seen empty, not before."""
    here.service.jobs.acknowledge(of, body["version"], body["kind"] == "drained", tuple(body.get("gpus", ())))
    return empty()


@router.post("/progress", dependencies=[needs(ATTEMPT)], **answers(200, Reported))
def progress(of: Of, body: Received[Report], here: Here) -> Response:
    """How far it is; the answer says when to report again."""
    return answer({"nextMs": here.service.jobs.report(of, progress_of(body))})
