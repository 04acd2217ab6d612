"""What one account may ask of a shared server, so that others are served meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from pliant.control.errors import BadRequest, OverLimit

BURST = 5
"""Seconds' worth of them that may come at once."""

REMEMBERED = 10_000
"""Accounts whose buckets are kept; a full one need not be."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one account; 0: no limit."""

    submissions: int = 0  # in a second
    commands: int = 0  # that run inside tasks at a time
    streams: int = 0  # logs that are read and changes that are followed, at a time
    tasks: int = 0  # of one workload

    def check_tasks(self, count: int) -> None:
        """Raises BadRequest."""
        if self.tasks and count > self.tasks:
            raise BadRequest(
                f"A workload has {self.tasks} tasks at most here; this one asks for {count}.",
                "Ask for fewer, or make several: pliant submit --array",
            )


NO_BOUNDS = Bounds()


class Pace:
    """How fast one account may do something: a bucket of tokens for each. For any thread."""

    def __init__(
        self, rate: Callable[[], int], what: str, cure: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`rate`: so many in a second; 0: no limit. `what` they do too fast; {rate} is the rate."""
        self._rate = rate
        self._what, self._cure = what, cure
        self._clock = clock
        self._guard = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # (tokens, when they were counted)

    def take(self, person: str) -> None:
        """Count one. Raises OverLimit."""
        rate = self._rate()
        if not rate:
            return
        most, now = float(rate * BURST), self._clock()
        with self._guard:
            tokens, at = self._left.pop(person, (most, now))
            tokens = min(most, tokens + (now - at) * rate)
            refused = tokens < 1
            self._left[person] = (tokens if refused else tokens - 1, now)
            if len(self._left) > REMEMBERED:
                self._left.pop(next(iter(self._left)))
        if refused:
            raise OverLimit(f"{person} {self._what.format(rate=rate)}.", self._cure)


class AtOnce:
    """How many of one thing each account has now. For any thread."""

    def __init__(self, most: int, what: str, cure: str) -> None:
        self._most, self._what, self._cure = most, what, cure
        self._guard = threading.Lock()
        self._held: Counter[str] = Counter()

    def check(self, person: str, beside: int = 0) -> None:
        """Raise OverLimit if there is room for none; `beside`: what is counted elsewhere."""
        with self._guard:
            self._check(person, beside)

    @contextmanager
    def hold(self, person: str, beside: int = 0) -> Iterator[None]:
        """One of them. Raises OverLimit."""
        with self._guard:
            self._check(person, beside)
            self._held[person] += 1
        try:
            yield
        finally:
            with self._guard:
                self._held[person] -= 1
                if not self._held[person]:
                    del self._held[person]

    def _check(self, person: str, beside: int) -> None:
        if self._most and self._held[person] + beside >= self._most:
            raise OverLimit(f"{person} has {self._most} {self._what}; there may be no more.", self._cure)

    async def counted(self, person: str, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """That stream, which counts as one while it is read."""
        with self.hold(person):
            async with aclosing(stream):  # type: ignore[type-var]
                async for chunk in stream:
                    yield chunk
