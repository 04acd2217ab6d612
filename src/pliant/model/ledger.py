"""Records of the past: GPU time by project and by person, and how often work was disrupted."""

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
    """When work of a project was stopped, shrunk below its request or moved for others. Made by a cycle."""

    project: str  # id
    times: tuple[int, ...] = ()  # ms, one for each decision, oldest first; those within the budget's window


@dataclass(frozen=True, slots=True)
class Usage:
    """What the ended runs of one person held in one project and node pool within one day (UTC).

    Of a run that has not ended it has only what the run held before its last live resize, whose time is in
    the record of the attempt. Sums are milli-GPUs times milliseconds.
    """

    day: str  # 2026-11-24
    user: str  # whose work it was; on a shared machine the account
    project: str  # id
    pool: str  # name; empty: the node was gone
    project_name: str  # when it was written last
    held: int = 0
    measured: int = 0  # the part of `held` for which the driver reported how busy the GPUs were
    busy: int = 0  # the part of `measured` for which they were busy
    runs: int = 0  # attempts that ended
    failed: int = 0  # of those, that failed
