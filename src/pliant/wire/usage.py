"""The GPU usage of people, and their limits."""

from typing import Annotated, NotRequired, TypedDict

from pliant.wire.limits import Amount, Count, Length


class UsageRow(TypedDict):
    """Sums of one group. What the rows are not grouped by is left out."""

    user: NotRequired[str]
    project: NotRequired[str]
    nodePool: NotRequired[str]
    month: NotRequired[str]  # 2026-11
    day: NotRequired[str]  # 2026-11-24
    allocatedGpuSeconds: float
    measuredGpuSeconds: float  # of these, with a driver that reports whether GPUs are busy
    usedGpuSeconds: float  # of the measured, in which the GPUs were busy
    runs: int  # attempts that ended
    failed: int  # of these, those that failed


UsageReport = TypedDict(
    "UsageReport",
    {
        "from": str,  # first day, UTC
        "to": str,  # last day
        "rows": list[UsageRow],
        "total": UsageRow,
    },
)


class LimitRequest(TypedDict, total=False):
    """Body of PUT /api/v1/limits. Null, and what is left out, is no limit."""

    user: Annotated[str, Length(128, plain=True)]  # empty: every user without a limit by name
    projectName: Annotated[str, Length(255)]  # name or id; empty: all projects together
    gpus: Amount | None
    pending: Count | None
    gpuHours: Amount | None


class LimitItem(TypedDict):
    user: str | None  # null: every user without a limit by name
    project: str | None  # null: all projects together
    gpus: float | None
    pending: int | None
    gpuHours: float | None  # within 30 days
    holdsGpus: float  # now; for a limit of every user: by the caller
    hasPending: int
    usedGpuHours: float | None


class LimitList(TypedDict):
    limits: list[LimitItem]
