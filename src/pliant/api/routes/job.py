"""What the link inside a running job asks and says, with the token of its attempt."""

import asyncio
import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Response
from pydantic import Field

from pliant.api.context import Context, Here
from pliant.api.requests.models import Body, Count, Word
from pliant.api.responses import models_job
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.streaming.feed import BEAT
from pliant.control.usecases.jobs import PROTOCOL
from pliant.model.progress import Progress
from pliant.model.workload import AttemptId

router = APIRouter(prefix="/api/v1/attempts/{workload}/{task}/{number}", tags=["jobs"])

LONGEST = 30.0
"""Seconds for which an answer is waited for at most."""

_WAIT = re.compile(r"\bwait=(\d{1,4})\b")

Amount = Annotated[float, Field(ge=0, le=1e15)]


class Link(Body):
    """Who is at the other end, and what it can."""

    protocol: Count
    pid: Annotated[int, Field(ge=1, le=2**31)]
    liveResize: bool = False
    nowMs: Annotated[int, Field(ge=0, le=2**53)] = 0


class Ack(Body):
    """What has become of a document."""

    version: Annotated[int, Field(ge=0, le=2**62)]
    kind: Literal["drained", "joined"]
    gpus: Annotated[tuple[Word, ...], Field(max_length=64)] = ()


class Report(Body):
    """How far a training is: see model.progress."""

    state: Annotated[Word, Field(max_length=40)] = ""
    step: Count = 0
    stepsTotal: Count = 0
    epoch: Count = 0
    epochs: Count = 0
    records: Annotated[int, Field(ge=0, le=2**62)] = 0
    skipped: Annotated[int, Field(ge=0, le=2**62)] = 0
    world: Count = 0
    goodput: Amount = 0.0
    loss: float | None = None
    stepMsBySize: Annotated[dict[str, Amount], Field(max_length=64, default_factory=dict)]

    def progress(self) -> Progress:
        times = {int(size): round(ms * 1000) for size, ms in self.stepMsBySize.items() if size.isdecimal()}
        return Progress(
            workload="",
            at=0,
            state=self.state,
            step=self.step,
            steps=self.stepsTotal,
            epoch=self.epoch,
            epochs=self.epochs,
            records=self.records,
            skipped=self.skipped,
            world=self.world,
            goodput=round(self.goodput * 1000),
            loss="" if self.loss is None else f"{self.loss:.6g}",
            step_times=tuple(sorted(times.items())[:64]),
        )


async def _attempt(workload: str, task: str, number: Annotated[int, Path(ge=0, le=2**31)]) -> AttemptId:
    return AttemptId(workload, task, number)


Of = Annotated[AttemptId, Depends(_attempt)]


@router.get("/allocation", **answers(200, models_job.Allocation))
async def allocation(
    of: Of,
    here: Here,
    after: int = -1,
    prefer: Annotated[str, Header(max_length=100, description="wait=30: so many seconds at most")] = "",
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
    """Waits on the event loop, without a thread."""
    until = asyncio.get_running_loop().time() + left
    with here.pulse.listen() as news:
        while True:
            news.clear()
            document = here.service.jobs.document(workload)
            left = until - asyncio.get_running_loop().time()
            if document["version"] > after or left <= 0 or here.closing():
                return document
            try:
                await asyncio.wait_for(news.wait(), min(left, BEAT))
            except TimeoutError:
                continue


@router.post("/link", **answers(200, models_job.Linked))
def link(of: Of, body: Link, here: Here) -> Response:
    """The agent of a job begins to follow the allocation. Its clock need not agree with the server's."""
    here.service.jobs.register(of, body.protocol, body.pid, body.liveResize)
    now = here.service.now()
    return answer({"protocol": PROTOCOL, "now": now, "aheadMs": body.nowMs - now if body.nowMs else 0})


@router.post("/acks", status_code=204, response_model=None)
def acks(of: Of, body: Ack, here: Here) -> Response:
    """It has left devices, or works on them. A device is free when it is seen empty, not before."""
    here.service.jobs.acknowledge(of, body.version, body.kind == "drained", body.gpus)
    return empty()


@router.post("/progress", **answers(200, models_job.Reported))
def progress(of: Of, body: Report, here: Here) -> Response:
    """How far it is; the answer says when to report again."""
    return answer({"nextMs": here.service.jobs.report(of, body.progress())})
