"""A clock that stands still until somebody moves it, and what happens on the way."""

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
        """Schedule a call; the past means now."""
        heapq.heappush(self._events, (max(when, self._now), next(self._serial), call))

    def after(self, delay: int, call: Callable[[], None]) -> None:
        self.at(self._now + delay, call)

    def next(self) -> int | None:
        """When the next event happens; None if there is none."""
        return self._events[0][0] if self._events else None

    def step(self) -> bool:
        """Move to the next event and let it happen; False if there was none."""
        if not self._events:
            return False
        self._now, _, call = heapq.heappop(self._events)
        call()
        return True

    def advance(self, until: int) -> None:
        """Let everything happen up to and at `until`, also what that brings about."""
        while self._events and self._events[0][0] <= until:
            self.step()
        self._now = max(self._now, until)
