"""What was measured over time: one row for what it is about and when."""

from dataclasses import dataclass
from typing import NamedTuple

MINUTE = 60_000
"""Ms between two samples as they are taken."""

QUARTER = 15 * MINUTE
"""Ms that one sample stands for once those of its minutes are averaged."""


DAY = 96 * QUARTER
"""Ms of one sample of a day (UTC), once the averages of its quarters are averaged."""

COVERED = "COVERED_MS"
"""Number of a day's sample: ms of the day in which anything was measured, in thousandths as all are."""


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
        """Ms for which its numbers stand."""
        told = next((it.value // 1000 for it in self.numbers if it.name == COVERED), None)
        return self.step if told is None else told
