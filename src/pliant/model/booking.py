"""Bookings: machines that are kept for a time, by a reservation for a project or for maintenance."""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """How far a booking has come; it never goes back, even if the clock does."""

    PLANNED = "Planned"
    ACTIVE = "Active"
    ENDED = "Ended"


_ORDER = tuple(Stage)


@dataclass(frozen=True, slots=True)
class Booking:
    """GPUs on certain nodes with their part of cores and memory; for maintenance all of these nodes."""

    id: str
    name: str
    start: int  # ms since the epoch
    end: int  # ms; later than `start`
    places: tuple[tuple[str, int], ...]  # (node, GPUs of it), by node; maintenance takes the whole node
    project: str = ""  # id of the project that may use it; empty: maintenance
    comment: str = ""
    user: str = ""  # who made it
    created: int = 0  # ms
    stage: Stage = Stage.PLANNED  # the latest that was recorded

    @property
    def maintenance(self) -> bool:
        return not self.project

    @property
    def gpus(self) -> int:
        """All GPUs of a reservation."""
        return sum(count for _, count in self.places)

    def stage_at(self, now: int) -> Stage:
        """The stage at an instant, not before the recorded one."""
        due = Stage.PLANNED if now < self.start else Stage.ACTIVE if now < self.end else Stage.ENDED
        return max(self.stage, due, key=_ORDER.index)

    def covers(self, at: int, now: int) -> bool:
        """True if it is active at `at`, which is not before `now`, by what is known at `now`."""
        if self.stage_at(now) is Stage.ENDED or at >= self.end:
            return False
        return at >= self.start or self.stage is Stage.ACTIVE

    def changes_at(self, now: int) -> int | None:
        """When (ms) it begins or ends next; None once it has ended."""
        stage = self.stage_at(now)
        if stage is Stage.ENDED:
            return None
        return self.start if stage is Stage.PLANNED else self.end
