"""A virtual clock that moves only when it is advanced, and the events that are scheduled on it."""

import heapq
import itertools
from collections.abc import Callable


class Timeline:
    """Virtual time in ms. Events of one instant happen in the order in which they were scheduled."""

    def __init__(self, start: int = 0) -> None:
        self._now = start
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = itertools.count()

    def now(self) -> int:
        return self._now

    def at(self, when: int, call: Callable[[], None]) -> None:
        """Schedule a call at `when` (ms); a time in the past means now."""
        heapq.heappush(self._events, (max(when, self._now), next(self._serial), call))

    def after(self, delay: int, call: Callable[[], None]) -> None:
        self.at(self._now + delay, call)

    def next(self) -> int | None:
        """The time (ms) of the next event; None if there is none."""
        return self._events[0][0] if self._events else None

    def step(self) -> bool:
        """Advance to the next event and run it; False if there is none."""
        if not self._events:
            return False
        self._now, _, call = heapq.heappop(self._events)
        call()
        return True

    def advance(self, until: int) -> None:
        """Advance to `until` (ms) and run every event up to then, also those that events schedule."""
        while self._events and self._events[0][0] <= until:
            self.step()
        self._now = max(self._now, until)
