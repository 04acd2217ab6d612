"""What was measured over time: one row for what it is about and when."""

from dataclasses import dataclass
from typing import NamedTuple

MINUTE = 60_000
"""Ms between two samples as they are taken."""

QUARTER = 15 * MINUTE
"""Ms that one sample stands for once those of its minutes are averaged."""


class Number(NamedTuple):
    """One metric of one subject."""

    name: str  # in the words of the API: GPU_ALLOCATION
    part: str  # of the subject: uuid of a GPU, name of a task; empty: of all of it
    value: int  # in thousandths


@dataclass(frozen=True, slots=True)
class Sample:
    """All that was measured of one subject at one time."""

    subject: str  # cluster | pool:NAME | node:NAME | project:ID | department:ID | workload:ID
    step: int  # ms: MINUTE or QUARTER
    at: int  # ms since the epoch: the end of that step
    numbers: tuple[Number, ...]
