"""Keeps samples: takes them every minute, averages them over quarters of an hour and days, drops old ones."""

from collections.abc import Sequence
from dataclasses import replace

from pliant.control.board.measured import Uses, averaged, measured
from pliant.control.loop import Loop
from pliant.control.ports import Batch, Load
from pliant.control.usecases.idling import Idling
from pliant.model.sample import COVERED, DAY, MINUTE, QUARTER, Number, Sample

KEEP_MINUTES = 25 * 3600 * 1000
"""Ms for which each minute's sample is kept."""

KEEP_QUARTERS = 90 * 24 * 3600 * 1000
"""Ms for which the averages of quarters of an hour are kept."""

KEEP_DAYS = 3 * 366 * DAY
"""Ms for which the averages of days are kept."""

DAILY = ("cluster", "pool:", "project:", "department:")
"""Prefixes of the subjects with daily averages: those that reports are about."""


class Series:
    """The part of the service that keeps samples. `take` is for one thread at a time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._idling = Idling(loop)
        self._averaged = 0  # ms: up to then all quarters have their averages; 0: not known
        self._days = 0  # ms: the same for days

    def take(self, load: Load, uses: Uses) -> None:
        """Keep a sample of everything as it is now, average the quarters of an hour that are over, and warn
        of or suspend jobs that are idle for too long.

        Raises StaleEpoch, StoreError. Averages that a crash prevented are written after the restart.
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
            self._sum_up(now // DAY * DAY)
            self._loop.store.prune_samples(QUARTER, now - KEEP_QUARTERS)
            self._loop.store.prune_samples(DAY, now - KEEP_DAYS)

    def of(self, subject: str, since: int, until: int) -> Sequence[Sample]:
        """Samples after `since` up to `until` (ms), oldest first; by minute if minutes are kept that long."""
        fine = since >= self._loop.clock.now() - KEEP_MINUTES
        return self._loop.store.samples(MINUTE if fine else QUARTER, since, until, subject)

    def long(self, subject: str, since: int, until: int) -> Sequence[Sample]:
        """The same for a long time, without overlaps: one sample for each whole day (UTC) that has one."""
        days = {
            it.at: it for it in self._loop.store.samples(DAY, since + DAY - 1, until, subject) if it.covered
        }
        if not days:
            return self.of(subject, since, until)
        first, last = min(days) - DAY, max(days)
        found = [*self.of(subject, since, first), *days.values(), *self.of(subject, last, until)]
        for end in range(first + DAY, last, DAY):
            if end not in days:
                found += self._loop.store.samples(QUARTER, end - DAY, end, subject)
        return sorted(found, key=lambda it: it.at)

    def _sum_up(self, over: int) -> None:
        """Average all days up to that time that have no sample yet, as far back as there are quarters."""
        end = max(self._days, over - KEEP_QUARTERS) + DAY
        while end <= over:
            if not self._loop.store.samples(DAY, end - 1, end):
                self._keep(self._day(end))
            end += DAY
        self._days = over

    def _day(self, end: int) -> list[Sample]:
        quarters = [
            it for it in self._loop.store.samples(QUARTER, end - DAY, end) if it.subject.startswith(DAILY)
        ]
        counts: dict[str, int] = {}
        for it in quarters:
            counts[it.subject] = counts.get(it.subject, 0) + 1
        return [
            replace(it, numbers=(*it.numbers, Number(COVERED, "", counts[it.subject] * QUARTER * 1000)))
            for it in averaged(quarters, DAY, end)
        ]

    def _average(self, over: int) -> None:
        """Average all quarters up to that time since the last call; the first call goes back to the oldest
        minute."""
        end = max(self._averaged, over - KEEP_MINUTES // QUARTER * QUARTER) + QUARTER
        while end <= over:
            minutes = self._loop.store.samples(MINUTE, end - QUARTER, end)
            self._keep(averaged(minutes, QUARTER, end))
            end += QUARTER

    def _keep(self, samples: Sequence[Sample]) -> None:
        if samples:
            self._loop.store.commit(self._loop.state.epoch, Batch(samples=samples, durable=False))
