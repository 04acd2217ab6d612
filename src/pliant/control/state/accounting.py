"""Keeps how much of each node pool every project has used recently, for the over-quota share and for people.

Use is GPU time: milli-GPUs claimed times milliseconds. It is kept in periods, each a part of the window, so
that use from before the window is left out and older use counts less. Claims change only in cycles, and a
cycle that changes them writes the sums too. So a server that restarts after hours adds the claims that held
in the meantime.
"""

from collections.abc import Iterable
from math import isqrt

from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.ledger import PastUse
from pliant.sched.settings import Settings
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.state import World

PERIODS = 24
"""Periods in the window; the oldest leaves it gradually."""

REFRESH = 60_000
"""Ms: sums older than this are brought up to date."""

AT_ONCE = 100
"""Most such sums brought up to date at once, so that a thousand projects do not make a long cycle."""

WHOLE = ""
"""In place of a project: the row of the pool's whole capacity."""

Periods = tuple[tuple[int, int, int], ...]
Key = tuple[str, str]

_STEPS = 1024
_ONE = 1 << 32


def _halves() -> tuple[int, ...]:
    """2^-(i / _STEPS) in 32 binary places, exactly the same on every machine."""
    roots, root = [], 1 << 127  # 1/2 in 128 places, and its square roots
    for _ in range(_STEPS.bit_length() - 1):
        root = isqrt(root << 128)
        roots.append(root)
    found = []
    for step in range(_STEPS):
        value = 1 << 128
        for place, root in enumerate(roots):
            if step & (_STEPS >> (place + 1)):
                value = (value * root) >> 128
        found.append(value >> 96)
    return tuple(found)


_HALVES = _halves()


def decayed(amount: int, age: int, half_life: int) -> int:
    """What remains of an amount after `age` ms; all of it without a half-life."""
    if not half_life or age <= 0:
        return amount
    halvings, rest = divmod(age, half_life)
    return (amount * _HALVES[rest * _STEPS // half_life]) >> (32 + halvings)


def total(periods: Periods, now: int, settings: Settings) -> int:
    """The sum that counts at `now`: nothing from before the window, the rest decayed by its age."""
    begin, found = now - settings.past_use_window, 0
    for start, end, amount in periods:
        if end <= begin:
            continue
        if start < begin:
            start, amount = begin, amount * (end - begin) // (end - start)
        found += decayed(amount, now - (start + end) // 2, settings.past_use_half_life)
    return found


def lengthened(periods: Periods, rate: int, since: int, now: int, settings: Settings) -> Periods:
    """The periods plus `rate` milli-GPUs held from `since` to `now`, without those before the window."""
    length = max(1, settings.past_use_window // PERIODS)
    begin = now - settings.past_use_window
    kept = [period for period in periods if period[1] > begin]
    at = max(since, begin) if rate else now
    while at < now:
        end = min(now, (at // length + 1) * length)
        held = rate * (end - at)
        if kept and kept[-1][0] // length == at // length:
            start, _, amount = kept.pop()
            kept.append((start, end, amount + held))
        else:
            kept.append((at, end, held))
        at = end
    return tuple(kept)


def sum_of(row: PastUse | None, rate: int, now: int, settings: Settings) -> int:
    """Milli-GPUs times ms that count now, if `rate` milli-GPUs were held since the row was written."""
    if row is None:
        return 0
    return total(lengthened(row.periods, rate, row.at, now, settings), now, settings)


class Accounting:
    """Belongs to the loop's thread."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._world: World | None = None
        self._rates: dict[Key, int] = {}  # milli-GPUs held since the row of that key was written

    def keep(self, draft: Draft) -> None:
        """Bring the rows up to date; called before a plan is made, and after it changed claims."""
        world = self._state.world
        if self._world is not world:  # rebuilt: the present claims held since the rows were written
            self._world = world
            self._rates = {key: rate for key, rate in self._held(world) if key in world.past_uses}
        if self._state.moved:
            for gone in [row for key, row in world.past_uses.items() if not self._known(key)]:
                draft.drop(gone)
                self._state.note(gone, gone=True)
                self._rates.pop((gone.project, gone.pool), None)
        refreshed = 0
        for key, rate in self._held(world):
            row = world.past_uses.get(key)
            if rate == self._rates.get(key, 0):
                old = row is not None and draft.now - row.at >= REFRESH and (row.used or rate)
                if not old or refreshed == AT_ONCE:
                    continue
                refreshed += 1
            self._write(draft, key, row)
            self._rates[key] = rate

    def _known(self, key: Key) -> bool:
        world = self._state.world
        return key[1] in world.pools and (key[0] == WHOLE or key[0] in world.projects)

    def _held(self, world: World) -> Iterable[tuple[Key, int]]:
        """Key and milli-GPUs of each pool's capacity, then of each project's claims, whose rows need it."""
        for pool in world.pools:
            yield (WHOLE, pool), world.capacity.get(pool, NOTHING).gpu
        for pool in world.pools:
            for project in world.projects:
                yield (project, pool), world.use(project, pool).claimed.gpu

    def _write(self, draft: Draft, key: Key, row: PastUse | None) -> None:
        settings, (project, pool) = self._state.settings, key
        if row is None:
            row = PastUse(project, pool, 0, 0, draft.now)
        rate = self._rates.get(key, 0)
        periods = lengthened(row.periods, rate, row.at, draft.now, settings)
        used = total(periods, draft.now, settings)
        whole = (WHOLE, pool)
        had = sum_of(self._state.world.past_uses.get(whole), self._rates.get(whole, 0), draft.now, settings)
        had = used if project == WHOLE else had
        self._state.put(draft, PastUse(project, pool, used, had, draft.now, periods))
