"""Limits what one account may ask of a shared server, so that others are served meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from pliant.control.errors import BadRequest, OverLimit

BURST = 5
"""Size of a bucket, in seconds' worth of tokens."""

REMEMBERED = 10_000
"""Most accounts whose buckets are kept; beyond that the bucket that was used longest ago is dropped."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one account; 0: no limit."""

    submissions: int = 0  # per second
    commands: int = 0  # inside tasks, at a time
    streams: int = 0  # open logs and watches, at a time
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
    """Limits how fast one account may do something, with a bucket of tokens for each account. Thread-safe."""

    def __init__(
        self, rate: Callable[[], int], what: str, cure: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`rate()`: tokens per second, 0: no limit. `what`: what is done too fast; {rate} is the rate."""
        self._rate = rate
        self._what, self._cure = what, cure
        self._clock = clock
        self._guard = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # (tokens, when they were counted)

    def take(self, person: str) -> None:
        """Take one token. Raises OverLimit."""
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
    """Limits how many of one thing each account has at a time. Thread-safe."""

    def __init__(self, most: int, what: str, cure: str) -> None:
        self._most, self._what, self._cure = most, what, cure
        self._guard = threading.Lock()
        self._held: Counter[str] = Counter()

    def check(self, person: str, beside: int = 0) -> None:
        """Raise OverLimit if the account may not have one more; `beside`: things counted elsewhere."""
        with self._guard:
            self._check(person, beside)

    @contextmanager
    def hold(self, person: str, beside: int = 0) -> Iterator[None]:
        """Count one more while in the context. Raises OverLimit."""
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
        """The chunks of the stream, which counts as one while it is read. Raises OverLimit."""
        with self.hold(person):
            async with aclosing(stream):  # type: ignore[type-var]
                async for chunk in stream:
                    yield chunk
