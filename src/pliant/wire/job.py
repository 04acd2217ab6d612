"""Messages between the link inside a running job and the server. Ours."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Count, Length, Range, Size, Word

Measure = Annotated[float, Range(0, 1e15)]


class Link(TypedDict, total=False):
    """Who is at the other end, and what it can."""

    protocol: Required[Count]
    pid: Required[Annotated[int, Range(1, 2**31)]]
    liveResize: bool
    nowMs: Annotated[int, Range(0, 2**53)]


class Linked(TypedDict):
    protocol: int
    now: int
    aheadMs: int


class Ack(TypedDict, total=False):
    """What has become of a document."""

    version: Required[Size]
    kind: Required[Literal["drained", "joined"]]
    gpus: Annotated[list[Word], Length(64)]


class Report(TypedDict, total=False):
    """How far a training is: see model.progress."""

    state: Annotated[str, Length(40)]
    step: Count
    stepsTotal: Count
    epoch: Count
    epochs: Count
    records: Size
    skipped: Size
    world: Count
    goodput: Measure
    loss: float
    stepMsBySize: Annotated[dict[str, Measure], Length(64)]


class Reported(TypedDict):
    nextMs: int


class Allocated(TypedDict):
    id: str
    attempt: int
    node: str
    gpus: list[str]
    state: Literal["active", "draining", "pending"]
    deadline: int | None


class Allocation(TypedDict):
    version: int
    epoch: int
    tasks: list[Allocated]
    now: int
