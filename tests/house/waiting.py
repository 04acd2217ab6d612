"""How a test waits: it looks again and again, and takes little of the processor from what it waits for."""

import time
from collections.abc import Callable
from typing import TypeVar

SECONDS = 240.0
"""A slow machine is no failure."""

LONGEST = 1.0
"""Seconds between two looks at most."""

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, seconds: float = SECONDS, least: float = 0.01) -> T:
    """Poll until the condition gives something true, which is returned.

    Between two looks it sleeps three times as long as a look takes, for one may start a program, and at least
    a tenth of the time that it has waited: a long wait ends at most a tenth later, and computes less.
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
