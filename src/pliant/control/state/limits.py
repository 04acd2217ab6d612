"""Limits for each user: GPUs at once, pending jobs, and GPU hours in 30 days.

Belongs to the loop's thread. A user's own limit replaces the limit for everybody. A limit in one project and
one over all projects both apply. No limit stops a workload that has started.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pliant.control.errors import OverLimit
from pliant.control.state.state import State
from pliant.control.state.usage import DAY, day_of, going, parts
from pliant.model.hold import USER_LIMIT, Limited
from pliant.model.identity import Allowance
from pliant.model.quantity import counted
from pliant.model.workload import Workload
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.device_share import estimate

EVERYBODY = ""
"""In place of a user: every user without a limit of their own there."""

WINDOW_DAYS = 30
"""Days over which GPU hours are counted, today included."""


def asked(row: Workload, state: State) -> int:
    """Milli-GPUs that it holds at once, without bonus GPUs beyond its request.

    A request for GPU memory counts as a part of the largest GPU in the cluster.
    """
    largest = 0
    if any(group.request.gpu_memory for group in row.groups):
        largest = max((gpu.memory for node in state.world.nodes.values() for gpu in node.row.gpus), default=0)
    return sum(
        estimate(group.request, largest or group.request.gpu_memory) * (group.at_once or group.wanted)
        for group in row.groups
    )


def bounds(state: State, user: str, project: str) -> Iterable[Allowance]:
    """The limits that apply to that user in that project; the project's own first."""
    known = state.access.seen.allowances
    for scope in (project, ""):
        found = known.get((user, scope)) or known.get((EVERYBODY, scope))
        if found is not None:
            yield found


def counts(row: Workload) -> bool:
    """True if it competes or runs; a held workload does not count yet."""
    return workload_open(row) and not row.held


def live(state: State, row: Workload) -> bool:
    return any(task.phase.live for task in state.world.tasks_of(row.id))


@dataclass(slots=True)
class Turns:
    """Decides which workloads may begin within one look at those that wait."""

    state: State
    now: int
    wake: int | None = None  # ms; when GPU hours next become available
    _all: Counter[tuple[str, str]] | None = None  # (user, project) -> milli-GPUs
    _going: dict[tuple[str, str], int] = field(default_factory=dict)  # (user, scope) -> milli-GPUs
    _spent: dict[tuple[str, str], int | None] = field(default_factory=dict)  # likewise -> see `_until`
    _refused: dict[tuple[str, str, int], Limited] = field(default_factory=dict)  # by user, project, need

    def over(self, row: Workload) -> Limited | None:
        """The limit that makes it wait; None: it may begin, and counts from now on."""
        if not self.state.access.seen.allowances or not (need := asked(row, self.state)):
            return None
        alike = (row.user, row.project, need)
        found = self._refused.get(alike) or self._looked(row, need)
        if found is not None:
            self._refused[alike] = found  # nothing becomes free within one look
        return found

    def _looked(self, row: Workload, need: int) -> Limited | None:
        found = list(bounds(self.state, row.user, row.project))
        for it in found:
            if it.running is not None and self._held(row.user, it.project) + need > it.running:
                return Limited("gpus", it.running, bool(it.project), need)
            if it.gpu_ms is not None and (until := self._until(row.user, it)) is not None:
                self.wake = min(self.wake or until, until)
                return Limited("gpu-hours", it.gpu_ms, bool(it.project), need, until)
        for it in found:
            if it.running is not None:
                self._going[row.user, it.project] += need
        return None

    def _held(self, user: str, scope: str) -> int:
        if self._all is None:  # in one pass for all: there may be many users and many jobs
            self._all = Counter()
            for row in self.state.world.workloads.values():
                if counts(row):
                    self._all[row.user, row.project] += asked(row, self.state)
        if (user, scope) not in self._going:
            mine = ((project, held) for (owner, project), held in self._all.items() if owner == user)
            self._going[user, scope] = sum(held for project, held in mine if scope in ("", project))
        return self._going[user, scope]

    def _until(self, user: str, it: Allowance) -> int | None:
        """When (ms) hours are available again if none are used until then; None: some are available now."""
        if (user, it.project) not in self._spent:
            days = spent(self.state, user, it.project, self.now)
            self._spent[user, it.project] = eased(days, it.gpu_ms or 0, self.now)
        return self._spent[user, it.project]


def spent(state: State, user: str, scope: str, now: int) -> Sequence[int]:
    """Milli-GPU-ms that were held on each day of the window, today last."""
    names = [day_of(now - back * DAY) for back in reversed(range(WINDOW_DAYS))]
    sums = dict.fromkeys(names, 0)
    for row in state.usages.values():
        if row.user == user and row.day in sums and (not scope or row.project == scope):
            sums[row.day] += row.held
    for one in going(state):
        if one.user == user and (not scope or one.project == scope):
            for day, ms in parts(one.since, now):
                if day in sums:
                    sums[day] += one.gpu * ms
    return [sums[name] for name in names]


def eased(days: Sequence[int], most: int, now: int) -> int | None:
    """When (ms) enough days have left the window that its sum is below `most`; None: it is below it now."""
    rest, at = sum(days), now // DAY * DAY
    if rest < most:
        return None
    for held in days:
        rest, at = rest - held, at + DAY
        if rest < most:
            break
    return at


def beginning(row: Workload, state: State, now: int) -> Workload:
    """The row to record when it begins to compete: held if it is over a limit."""
    limited = Turns(state, now).over(row) if not row.held else None
    return replace(row, held=USER_LIMIT, limited=limited) if limited is not None else row


def parked(row: Workload, state: State) -> Workload:
    """The row, held until the same cycle checks the limits, if any limit on use applies to it."""
    limited = any((it.running, it.gpu_ms) != (None, None) for it in bounds(state, row.user, row.project))
    return replace(row, held=USER_LIMIT) if limited and not row.held else row


def waiting(state: State, user: str, scope: str) -> int:
    """The number of that user's jobs without a live task."""
    rows = (row for row in state.world.workloads.values() if row.user == user and workload_open(row))
    return sum(1 for row in rows if (not scope or row.project == scope) and not live(state, row))


def check_waiting(made: Sequence[Workload], state: State) -> None:
    """Raise OverLimit if these are more pending jobs than their user may have."""
    user, project = made[0].user, made[0].project
    for it in bounds(state, user, project):
        if it.waiting is None:
            continue
        has = waiting(state, user, it.project)
        if has + len(made) > it.waiting:
            where = " in this project" if it.project else ""
            raise OverLimit(
                f"{user} has {counted(has, 'pending job')}{where}; the limit is {it.waiting}.",
                "Submit again when some have started, or cancel what is not needed: pliant cancel NAME",
            )
