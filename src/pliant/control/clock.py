"""The clock of one server: wall time that never goes back, neither within a process nor across restarts."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Nanoseconds = Callable[[], int]


class SteadyClock:
    """Ms since the epoch, by the monotonic clock. It follows a wall clock that is set forward, but not one
    that is set back: no recorded time may be in the future, and no backoff may last longer than stated."""

    def __init__(
        self,
        floor: int = 0,
        *,
        wall: Nanoseconds = time.time_ns,
        steady: Nanoseconds = time.monotonic_ns,
    ) -> None:
        """`floor` is the latest time that was ever recorded, in ms."""
        self._wall, self._steady = wall, steady
        self._started = steady()
        self._base = max(floor, wall() // 1_000_000)

    def now(self) -> int:
        elapsed = (self._steady() - self._started) // 1_000_000
        wall = self._wall() // 1_000_000
        if wall > self._base + elapsed + 1000:
            self._base = max(self._base, wall - elapsed)  # set, not increased: two threads may be here
        return self._base + elapsed


def stamp(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds: 1700000000123 -> '2023-11-14T22:13:20.123Z'."""
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment.isoformat()[:19]}.{ms % 1000:03d}Z"  # strftime writes the year 143 with three digits
