"""How a test waits: it polls, and leaves the processor to what it waits for."""

import time
from collections.abc import Callable
from typing import TypeVar

SECONDS = 240.0
"""Generous, since a slow machine is not a failure."""

LONGEST = 1.0
"""Most seconds between two polls."""

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, seconds: float = SECONDS, least: float = 0.01) -> T:
    """Polls until the condition returns something true, and returns that.

    Between two polls it sleeps three times as long as a poll takes, since one may start a program, and at
    least a tenth of the time waited so far, at most LONGEST: a long wait ends at most a tenth later.
    """
    first = time.monotonic()
    end = first + seconds
    while True:
        began = time.monotonic()
        if result := condition():
            return result
        now = time.monotonic()
        assert now < end, f"waited {seconds:.0f} s for {what}"
        time.sleep(min(LONGEST, max(least, 3 * (now - began), (now - first) / 10)))
