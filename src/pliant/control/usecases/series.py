"""What was measured over time: taken every minute, averaged over quarters of an hour, forgotten when old."""

from collections.abc import Sequence

from pliant.control.board.measured import Uses, averaged, measured
from pliant.control.loop import Loop
from pliant.control.ports import Batch, Load
from pliant.control.usecases.idling import Idling
from pliant.model.sample import MINUTE, QUARTER, Sample

KEEP_MINUTES = 25 * 3600 * 1000
"""Ms for which each minute's sample is kept."""

KEEP_QUARTERS = 90 * 24 * 3600 * 1000
"""Ms for which the averages of quarters of an hour are kept."""


class Series:
    """The part of the service that keeps samples. `take` is for one thread at a time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._idling = Idling(loop)
        self._averaged = 0  # ms: up to then all quarters have their averages; 0: not known

    def take(self, load: Load, uses: Uses) -> None:
        """Keep a sample of everything as it is now, and average the quarters of an hour that are over; jobs
        that are idle for too long are told of or suspended.

        Raises StaleEpoch, StoreError. What was not written before a crash is not missed.
        """
        now = self._loop.clock.now()
        found = measured(self._loop.board, load, uses, now)
        self._keep(found)
        self._idling.look(found, now)
        over = now // QUARTER * QUARTER
        if over > self._averaged:
            self._average(over)
            self._averaged = over
            self._loop.store.prune_samples(MINUTE, now - KEEP_MINUTES)
            self._loop.store.prune_samples(QUARTER, now - KEEP_QUARTERS)

    def of(self, subject: str, since: int, until: int) -> Sequence[Sample]:
        """After `since` and up to `until` (ms), oldest first; each minute if all of it is that young."""
        fine = since >= self._loop.clock.now() - KEEP_MINUTES
        return self._loop.store.samples(MINUTE if fine else QUARTER, since, until, subject)

    def _average(self, over: int) -> None:
        """All quarters up to that time that have none yet, as far back as there are minutes."""
        end = max(self._averaged, over - KEEP_MINUTES // QUARTER * QUARTER) + QUARTER
        while end <= over:
            minutes = self._loop.store.samples(MINUTE, end - QUARTER, end)
            self._keep(averaged(minutes, QUARTER, end))
            end += QUARTER

    def _keep(self, samples: Sequence[Sample]) -> None:
        if samples:
            self._loop.store.commit(self._loop.state.epoch, Batch(samples=samples, durable=False))
