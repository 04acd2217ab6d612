"""What is remembered of the past: GPU time by project and by person, and how often work was disturbed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastUse:
    """How much of a node pool a project has used, older use counting less. Kept by the accounting.

    Both sums are milli-GPUs times milliseconds, decayed alike up to `at`.
    """

    project: str  # id; empty: the pool itself
    pool: str  # name
    used: int  # what its workloads held
    capacity: int  # what the pool had at the same time
    at: int  # ms since the epoch
    periods: tuple[tuple[int, int, int], ...] = ()  # (from, to, use in between), oldest first, not decayed


@dataclass(frozen=True, slots=True)
class Disruptions:
    """When work of a project was stopped, shrunk below its request or moved for others. A cycle makes it."""

    project: str  # id
    times: tuple[int, ...] = ()  # ms, one for each decision, oldest first; those within the budget's window


@dataclass(frozen=True, slots=True)
class Usage:
    """What the ended runs of one person held in one project and node pool within one day (UTC).

    A run that goes on is not in it, but for what it held before its last live resize: the record of the
    attempt says since when. Sums are milli-GPUs times milliseconds.
    """

    day: str  # 2026-11-24
    user: str  # whose work it was; on a shared machine the account
    project: str  # id
    pool: str  # name; empty: the node was gone
    project_name: str  # when it was written last
    held: int = 0
    measured: int = 0  # of `held`, that for which the driver told how busy the GPUs were
    busy: int = 0  # of `measured`, the part for which they were
    runs: int = 0  # attempts that ended
    failed: int = 0  # of those, that failed
