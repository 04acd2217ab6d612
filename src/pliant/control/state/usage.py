"""Sums of held GPU time by day and user, written with the record of an attempt, so that none counts twice.

An attempt's time is written when it ends, and when a live resize changes what it holds. Readers add the time
of running attempts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pliant.control.state.draft import Draft
from pliant.control.state.state import State, UsageKey, usage_key
from pliant.model.ledger import Usage
from pliant.model.machine import Placement
from pliant.model.workload import Attempt, Exit, Workload

DAY = 24 * 3600 * 1000
"""Ms."""

KEPT_DAYS = 800
"""Days for which sums are kept: a little more than two years."""

Busy = Mapping[str, int]
"""Percent of the time for which a GPU was busy, by uuid."""


def day_of(at: int) -> str:
    """The day of an instant (ms), in UTC: 2026-11-24."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")


def parts(since: int, until: int) -> Iterator[tuple[str, int]]:
    """(day, ms) of the time between two instants."""
    while since < until:
        end = min(until, (since // DAY + 1) * DAY)
        yield day_of(since), end - since
        since = end


@dataclass(frozen=True, slots=True)
class Going:
    """A running attempt: its owner, and since when it has held what it holds."""

    user: str
    project: str
    project_name: str
    pool: str
    gpu: int  # milli-GPUs
    since: int  # ms


def held_by(row: Attempt) -> tuple[int, int] | None:
    """(since when in ms, milli-GPUs) of what it holds and no sum includes yet; None: nothing."""
    since = row.resized if row.resized is not None else row.started
    return None if since is None or row.exit is not None else (since, row.placement.gpu)


class UsageBook:
    """Belongs to the loop's thread."""

    def __init__(self, state: State) -> None:
        self._state = state

    def resized(self, row: Attempt, draft: Draft) -> None:
        """Count what it held until now; from now on it holds something else."""
        self._count(row, draft.now, draft)

    def ended(self, row: Attempt, end: Exit, draft: Draft) -> None:
        """Count its time and its run, unless it never started. A stopped run is not a failed one."""
        whose = self._whose(row)
        if row.started is None or whose is None:
            return
        self._count(row, end.at, draft)
        failed = not (end.succeeded or end.stopped)
        self._add(draft, self._key(day_of(end.at), whose, row.placement), runs=1, failed=int(failed))

    def sample(self, busy: Busy, ms: int, draft: Draft) -> None:
        """Count `ms` during which these GPUs were measured; GPUs that are not in `busy` were not measured."""
        for row in self._state.attempts.values():
            whose, share = self._whose(row), held_by(row)
            if whose is None or share is None:
                continue
            seen = [it for it in row.placement.shares if it.gpu in busy]
            held = sum(it.portion for it in seen) * min(ms, max(0, draft.now - share[0]))
            if held:
                used = sum(it.portion * busy[it.gpu] for it in seen) * min(ms, draft.now - share[0]) // 100
                self._add(draft, self._key(day_of(draft.now), whose, row.placement), measured=held, busy=used)

    def forget(self, draft: Draft) -> None:
        """Drop sums older than KEPT_DAYS."""
        before = day_of(draft.now - KEPT_DAYS * DAY)
        for row in [row for row in self._state.usages.values() if row.day < before]:
            draft.drop(row)

    def _count(self, row: Attempt, until: int, draft: Draft) -> None:
        whose, share = self._whose(row), held_by(row)
        if whose is None or share is None:
            return
        since, gpu = share
        for day, ms in parts(since, until) if gpu else ():
            self._add(draft, self._key(day, whose, row.placement), held=gpu * ms)

    def _whose(self, row: Attempt) -> Workload | None:
        return self._state.world.workloads.get(row.id.workload)

    def _key(self, day: str, whose: Workload, place: Placement) -> UsageKey:
        return day, whose.user, whose.project, pool_of(self._state, place)

    def _add(self, draft: Draft, key: UsageKey, **more: int) -> None:
        project = self._state.world.projects.get(key[2])
        name = project.name if project is not None else key[2]
        row = self._state.usages.get(key) or Usage(*key, project_name=name)
        sums = {field: getattr(row, field) + value for field, value in more.items()}
        self._state.put(draft, replace(row, project_name=name, **sums))


def pool_of(state: State, place: Placement) -> str:
    return state.world.pool_of(place.node) if place.node in state.world.nodes else ""


def going(state: State) -> list[Going]:
    """The attempts that hold GPUs now."""
    found = []
    for row in state.attempts.values():
        workload, share = state.world.workloads.get(row.id.workload), held_by(row)
        if workload is None or share is None or not share[1]:
            continue
        project = state.world.projects.get(workload.project)
        name = project.name if project is not None else workload.project
        pool = pool_of(state, row.placement)
        found.append(Going(workload.user, workload.project, name, pool, share[1], share[0]))
    return found


def with_going(rows: Iterable[Usage], now: int, others: Iterable[Going]) -> list[Usage]:
    """The sums with running attempts counted up to `now`, oldest day first."""
    found = {usage_key(row): row for row in rows}
    for one in others:
        for day, ms in parts(one.since, now):
            key = (day, one.user, one.project, one.pool)
            row = found.get(key) or Usage(*key, project_name=one.project_name)
            found[key] = replace(row, held=row.held + one.gpu * ms)
    return [found[key] for key in sorted(found)]


def within(rows: Iterable[Usage], since: int, until: int) -> list[Usage]:
    """The rows of the days from `since` to before `until` (ms)."""
    first, last = day_of(since), day_of(until - 1)
    return [row for row in rows if first <= row.day <= last]
