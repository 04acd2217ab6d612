"""The time of one server: wall clock that never goes back, neither within a process nor across restarts."""

import time


class SteadyClock:
    """Ms since the epoch, by the monotonic clock. A wall clock set forward is followed, one set back
    is not: nothing recorded may lie in the future, and no back-off may last longer than it says."""

    def __init__(self, floor: int = 0) -> None:
        self._floor = floor
        self._started = time.monotonic_ns()
        self._base = max(floor, time.time_ns() // 1_000_000)

    def now(self) -> int:
        elapsed = (time.monotonic_ns() - self._started) // 1_000_000
        wall = time.time_ns() // 1_000_000
        if wall > self._base + elapsed + 1000:
            self._base = max(self._base, wall - elapsed)  # not added to: two threads may come here at once
        return self._base + elapsed
