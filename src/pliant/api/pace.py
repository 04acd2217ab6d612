"""How fast one account may submit: a bucket of tokens for each, so that others are served meanwhile."""

import threading
import time
from collections.abc import Callable

from pliant.control.errors import OverLimit

BURST = 5
"""Seconds' worth of submissions that may come at once."""

REMEMBERED = 10_000
"""Accounts whose buckets are kept; a full one need not be."""


class Pace:
    """For any thread."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate`: submissions in a second; 0: no limit."""
        self._rate = rate
        self._clock = clock
        self._guard = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # (tokens, when they were counted)

    def take(self, person: str) -> None:
        """Count one. Raises OverLimit."""
        if not self._rate:
            return
        most, now = float(self._rate * BURST), self._clock()
        with self._guard:
            tokens, at = self._left.pop(person, (most, now))
            tokens = min(most, tokens + (now - at) * self._rate)
            if tokens >= 1:
                tokens -= 1
                refused = False
            else:
                refused = True
            self._left[person] = (tokens, now)
            if len(self._left) > REMEMBERED:
                self._left.pop(next(iter(self._left)))
        if refused:
            raise OverLimit(
                f"{person} submits faster than {self._rate} jobs in a second.",
                "Try again in 1 s, or submit many equal jobs at once: pliant submit --array 0-99",
            )
