"""The progress that a training job reports: the newest report and a bounded history."""

from dataclasses import dataclass
from typing import NamedTuple

MOST_POINTS = 120
"""Points of history that are kept: above this, every second point of the older half is dropped."""


class Point(NamedTuple):
    """One report of the past."""

    at: int  # ms since the epoch
    step: int
    world: int  # workers
    goodput: int  # thousandths of a record per second
    loss: str  # as the job printed it; empty: none


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest report of a workload's job."""

    workload: str  # id
    at: int  # ms since the epoch, by the server's clock
    state: str = ""  # as the job reports: waiting, training, parked, finished, failed
    step: int = 0  # updates of the model that are done
    steps: int = 0  # that there will be; 0: unknown
    epoch: int = 0
    epochs: int = 0
    records: int = 0  # consumed in steps that count
    skipped: int = 0  # records that were set aside
    world: int = 0  # workers that train now
    goodput: int = 0  # thousandths of a record per second, in steps that count
    loss: str = ""
    step_times: tuple[tuple[int, int], ...] = ()  # (workers, median microseconds of a step), by workers
    history: tuple[Point, ...] = ()  # oldest first; the newest is this report itself

    @property
    def point(self) -> Point:
        return Point(self.at, self.step, self.world, self.goodput, self.loss)


def with_history(new: Progress, old: Progress | None) -> tuple[Point, ...]:
    """The history after `new` follows `old`."""
    points = (*(old.history if old is not None else ()), new.point)
    if len(points) <= MOST_POINTS:
        return points
    half = MOST_POINTS // 2
    return (*points[:half:2], *points[half:])
