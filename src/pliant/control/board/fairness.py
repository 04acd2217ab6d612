"""Sums up, from the boards, what each project was entitled to over time and what it received.

Times are ms, amounts milli-GPUs, sums milli-GPUs times ms. Sums are kept by hour, in SLOTS of the store's
settings; a new hour overwrites the oldest.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace

from pliant.control.board.view import Board
from pliant.control.state.draft import Draft
from pliant.model.quantity import GPU

HOUR = 3_600_000
SLOTS = 24 * 31
"""Hours that are remembered."""

SAVE_EVERY = 60_000
KEY = "fairness/"


@dataclass(slots=True)
class Sums:
    """The sums of one project over some time; see DEFINITIONS."""

    entitled: int = 0
    received: int = 0
    borrowed: int = 0
    lent: int = 0
    late: int = 0
    violated: int = 0  # ms
    seen: int = 0  # ms

    def add(self, other: "Sums", times: int = 1) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))


DEFINITIONS = {
    "entitled": "its fair share, or its request if that was less",
    "received": "GPUs allocated to its workloads",
    "borrowed": "GPUs allocated above its quota",
    "lent": "its part of the GPUs that others had above quota, by the quota that it left unused",
    "late": "GPUs requested within its quota but not allocated, while others had as many above theirs",
    "violated": "time in which it was 1 GPU or more below its entitlement, while others were above theirs",
    "jain": "(sum of x)^2 / (n * sum of x^2) over the projects that were entitled to anything,"
    " x = received / entitled, at most 1: 1 is fair, 1/n is all for one",
}


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """One project in one pool at one time; milli-GPUs."""

    project: str  # id
    quota: int  # negative: unlimited
    fair: int
    allocated: int
    requested: int  # includes what is allocated


def rates(uses: Iterable[ProjectUse]) -> dict[str, Sums]:
    """What each ms adds to the sums of the projects of one pool."""
    pool = list(uses)
    within = {it.project: it.allocated if it.quota < 0 else min(it.allocated, it.quota) for it in pool}
    borrowed = {it.project: it.allocated - within[it.project] for it in pool}
    unused = {it.project: 0 if it.quota < 0 else it.quota - within[it.project] for it in pool}
    total, spare = sum(borrowed.values()), sum(unused.values())
    over = any(it.allocated > it.fair for it in pool)
    found = {}
    for it in pool:
        entitled = min(it.fair, it.requested)
        owed = max(0, (it.requested if it.quota < 0 else min(it.quota, it.requested)) - it.allocated)
        violated = over and entitled - it.allocated >= GPU
        found[it.project] = Sums(
            entitled,
            it.allocated,
            borrowed[it.project],
            min(unused[it.project], total * unused[it.project] // spare) if spare else 0,
            min(owed, total),
            int(violated),
            1,
        )
    return found


@dataclass(slots=True)
class Audit:
    """Belongs to the loop's thread, except `over` and `by_hour`, which only read."""

    hours: dict[int, dict[str, Sums]] = field(default_factory=dict)  # number of the hour -> project -> sums
    _rates: dict[str, Sums] = field(default_factory=dict)  # by project, all pools together
    _since: int = 0  # ms; up to then all is summed up
    _version: int = -1
    _saved: int = 0

    def seen(self, board: Board, now: int) -> None:
        """Sum up the time until `now`; from then on this board applies."""
        if board.version == self._version:
            return
        self._sum_up(now)
        self._version = board.version
        by_pool: dict[str, list[ProjectUse]] = {}
        for project, view in board.projects.items():
            for use in view.uses:
                one = ProjectUse(project, use.quota, use.fair_share, use.allocated.gpu, use.requested.gpu)
                by_pool.setdefault(use.pool, []).append(one)
        self._rates = {}
        for uses in by_pool.values():
            for project, rate in rates(uses).items():
                self._rates.setdefault(project, Sums()).add(rate)
        for rate in self._rates.values():
            rate.seen, rate.violated = 1, min(1, rate.violated)

    def _sum_up(self, now: int) -> None:
        at = self._since or now
        while at < now:
            hour = at // HOUR
            end = min(now, (hour + 1) * HOUR)
            sums = self.hours.setdefault(hour, {})
            for project, rate in self._rates.items():
                sums.setdefault(project, Sums()).add(rate, end - at)
            at = end
        self._since = max(now, at)
        for old in [hour for hour in self.hours if hour <= now // HOUR - SLOTS]:
            del self.hours[old]

    def save(self, draft: Draft) -> None:
        """Add the hours since the last save to a draft that is committed anyway, once per SAVE_EVERY ms."""
        if draft.empty or draft.now - self._saved < SAVE_EVERY:
            return
        self._sum_up(draft.now)
        first = self._saved // HOUR
        self._saved = draft.now
        for hour in (it for it in self.hours if it >= first):
            body = {project: astuple(sums) for project, sums in self.hours[hour].items()}
            draft.settings[f"{KEY}{hour % SLOTS}"] = json.dumps([hour, body], separators=(",", ":"))

    def restore(self, settings: Mapping[str, str], now: int) -> None:
        """Load the saved hours after a restart; time without a server is not counted."""
        self.hours, self._rates, self._since = {}, {}, now
        for key, text in settings.items():
            if key.startswith(KEY):
                hour, body = json.loads(text)
                if hour > now // HOUR - SLOTS:
                    self.hours[hour] = {project: Sums(*numbers) for project, numbers in body.items()}

    def over(self, window: int, now: int) -> dict[str, Sums]:
        """Sums of the last `window` ms, in whole hours and the present one, by project id."""
        found: dict[str, Sums] = {}
        for sums in self.by_hour(window, now).values():
            for project, one in sums.items():
                found.setdefault(project, Sums()).add(one)
        return found

    def by_hour(self, window: int, now: int) -> dict[int, dict[str, Sums]]:
        """The same for each hour (by its number, oldest first) in which a server ran."""
        found = {
            hour: {project: replace(one) for project, one in list(sums.items())}
            for hour, sums in sorted(self.hours.items())
            if (hour + 1) * HOUR > now - window
        }
        present = found.setdefault(now // HOUR, {})  # with what is not summed up yet
        for project, rate in list(self._rates.items()):
            if now > self._since:
                present.setdefault(project, Sums()).add(rate, now - self._since)
        return found


def jain(sums: Iterable[Sums]) -> int | None:
    """Jain's index in thousandths; None if no project was entitled to anything."""
    parts = [min(GPU, it.received * GPU // it.entitled) for it in sums if it.entitled]
    if not parts:
        return None
    squares = sum(part * part for part in parts)
    return GPU if not squares else sum(parts) ** 2 * GPU // (len(parts) * squares)
