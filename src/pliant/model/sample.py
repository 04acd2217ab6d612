"""Measurements over time: one row for each subject and time."""

from dataclasses import dataclass
from typing import NamedTuple

MINUTE = 60_000
"""Ms between two samples as they are taken."""

QUARTER = 15 * MINUTE
"""Ms of one sample that averages those of its minutes."""


DAY = 96 * QUARTER
"""Ms of one sample of a day (UTC), which averages those of its quarters."""

COVERED = "COVERED_MS"
"""The number in a day's sample with the ms of the day that were measured, in thousandths like all numbers."""


class Number(NamedTuple):
    """One metric of one subject."""

    name: str  # in the words of the API: GPU_ALLOCATION
    part: str  # of the subject: uuid of a GPU, name of a task; empty: of all of it
    value: int  # in thousandths


@dataclass(frozen=True, slots=True)
class Sample:
    """All that was measured of one subject at one time."""

    subject: str  # cluster | pool:NAME | node:NAME | project:ID | department:ID | workload:ID
    step: int  # ms: MINUTE, QUARTER or DAY
    at: int  # ms since the epoch: the end of that step
    numbers: tuple[Number, ...]

    @property
    def covered(self) -> int:
        """Ms that its numbers cover."""
        told = next((it.value // 1000 for it in self.numbers if it.name == COVERED), None)
        return self.step if told is None else told
