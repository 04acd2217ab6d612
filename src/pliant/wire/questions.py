"""Answers of the scheduler: verdicts, why, the queue, what-if, drains, fairness, replay. All ours."""

from typing import Annotated, Any, Literal, TypedDict

from pliant.wire.events import EventItem
from pliant.wire.limits import Length
from pliant.wire.shapes import Stamp
from pliant.wire.supposing import AnySupposed
from pliant.wire.workload import Reason


class PlacementItem(TypedDict):
    pod: str
    node: str
    gpu: float
    gpus: list[str]  # uuids


class Disruption(TypedDict):
    """What another workload would lose, or where it would be moved."""

    id: str
    name: str
    project: str
    verb: str  # shrink | move | evict
    gpuBefore: float
    gpuAfter: float
    reason: Reason | None


class Verdict(TypedDict):
    """Answer to a submission with ?dryRun=true."""

    verdict: Literal["starts", "waits", "never"]
    reason: Reason | None
    placements: list[PlacementItem]
    disrupted: list[Disruption]
    notices: list[str]


class Ahead(TypedDict):
    name: str
    project: str
    gpus: float


class WhyItem(TypedDict):
    """GET /api/v1/workloads/{id}/why."""

    reason: Reason | None
    position: int | None
    ahead: list[Ahead]  # the first of them
    aheadCount: int
    aheadGpus: float
    history: list[EventItem]
    unblock: dict[str, Any] | None  # what would let it start, and when it will


class QueueEntry(TypedDict):
    position: int
    name: str
    project: str
    gpus: float
    reason: Reason | None
    since: Stamp
    remedy: dict[str, Any] | None  # what would let it start; only for the first of its kind
    like: str | None  # name of the first of its kind
    start: dict[str, Any] | None  # earliest, latest and how they are known; only for the entries asked for


class Queue(TypedDict):
    """GET /api/v1/queue."""

    entries: list[QueueEntry]


class Supposition(TypedDict):
    """Body of POST /api/v1/what-if."""

    changes: Annotated[list[AnySupposed], Length(1000, least=1)]


class WhatIfItem(TypedDict):
    differences: list[dict[str, Any]]
    gpusBefore: float
    gpusAfter: float
    waitingBefore: int
    waitingAfter: int


class DryRunDone(WhatIfItem):
    """Answer to a change with ?dryRun=true: nothing was changed."""

    dryRun: Literal[True]
    wouldSay: list[str]  # what the history would say


class Drain(TypedDict, total=False):
    stop: bool  # stop what cannot move; else it runs to its end


class DrainSome(Drain, total=False):
    """Which: by name, or all of a label such as that of a rack."""

    nodes: list[str]
    label: str
    value: str


class DrainItem(TypedDict):
    nodes: list[str]
    workloads: list[dict[str, Any]]
    dryRun: bool


class FairnessRow(TypedDict):
    project: str
    entitled: float
    received: float
    borrowed: float
    lent: float
    late: float
    violatedSeconds: int
    seenSeconds: int


class Fairness(TypedDict):
    """GET /api/v1/audit/fairness."""

    windowSeconds: int
    projects: list[FairnessRow]
    jain: float | None
    definitions: dict[str, str]


class FairnessHour(TypedDict):
    """What every project had and was due in one hour, or in as much of it as has passed."""

    began: str
    projects: list[FairnessRow]


class FairnessHours(TypedDict):
    """GET /api/v1/audit/fairness/hours, oldest first."""

    hours: list[FairnessHour]


class ReplayItem(TypedDict):
    """GET /api/v1/replay."""

    first: int | None
    last: int | None
    began: str | None
    ended: str | None
    bytes: int
    most: int
    missed: int  # cycles after the first one that could not be written
