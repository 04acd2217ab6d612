"""What the scheduler remembers of the past: GPU time by project, and how often it was disturbed."""

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
