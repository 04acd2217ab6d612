"""Estimates when a waiting workload starts: runs the core itself again and again until then.

Work ends when it is expected to, orders take effect at once, evicted work continues later where it stopped.
It is much slower than eta_model.py, and as accurate as the assumed run times and submissions.
"""

from heapq import heappop, heappush

from pliant.model.reason import Estimate
from pliant.model.workload import Task, TaskPhase
from pliant.sched.explain.eta_model import SLACK, Known, Lasting, basis_of
from pliant.sched.explain.foresee import obeyed
from pliant.sched.explain.trial import Decide, apply, gone
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

EARLY, LATE = 850, 2_000
"""Thousandths of the played wait at which the range begins and ends; calibrated on simulated clusters."""

LATELY, STOPPED = 10, 5
"""How many of the youngest workloads set the pace; after STOPPED average gaps, submissions count as ended."""

MOST_PACE = 2_000
"""Thousandths of the cluster: a faster pace does not widen the range further."""

ROUNDS = 12
"""The most cycles after one event."""


class Play:
    """Plays a separate world forward. `cycles` bounds how often the core runs."""

    def __init__(
        self,
        world: World,
        now: int,
        settings: Settings,
        decide: Decide,
        lasting: Known,
        *,
        long: bool,
        cycles: int,
    ) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.cycles = cycles
        self.begun: dict[str, int] = {}  # workload -> when it first had its core in this play
        self._decide = decide
        self._lasting = lasting
        self._long = long
        self._rest: dict[str, int] = {}  # ms that it still has to run, from its present start
        self._ends: list[tuple[int, int, str]] = []  # when, number of its start, workload
        self._starts: dict[str, tuple[int, int]] = {}  # workload -> (when, number of the start)
        self._number = 0
        for wid in list(world.workloads):
            rows = [task for task in world.tasks_of(wid) if task.phase is TaskPhase.RUNNING]
            if rows and world.need(wid).holds:
                self._start(wid, max(task.started or now for task in rows))

    def until(self, workload: str) -> int | None:
        """When it starts (ms); None if it does not start within the play."""
        self._cycle()
        while workload not in self.begun and self.cycles > 0:
            if not self._ends:
                return None
            self.now = max(self.now, self._ends[0][0])
            while self._ends and self._ends[0][0] <= self.now:
                _, number, wid = heappop(self._ends)
                if self._starts.get(wid, (0, 0))[1] == number:
                    self._finish(wid)
            self._cycle()
        return self.begun.get(workload)

    def _finish(self, wid: str) -> None:
        del self._starts[wid]
        apply(self.world, gone(self.world, wid))

    def _cycle(self) -> None:
        for _ in range(ROUNDS):
            self.cycles -= 1
            plan = self._decide(self.world, self.now, self.settings)
            change = obeyed(self.world, plan, self.now)
            if not change.puts:
                return
            for stop in plan.stops:
                self._stop(stop.attempt.workload)
            apply(self.world, change)
            for wid in sorted({row.workload for row in change.puts if isinstance(row, Task)}):
                need = self.world.need(wid)
                live = any(task.phase is TaskPhase.RUNNING for task in self.world.tasks_of(wid))
                if live and not need.broken and wid not in self._starts:
                    self._start(wid, self.now)
                    self.begun.setdefault(wid, self.now)

    def _start(self, wid: str, at: int) -> None:
        self._number += 1
        self._starts[wid] = (at, self._number)
        rest = self._rest.get(wid)
        if rest is None:
            lasts = self._lasting(wid)
            if lasts is None:
                return
            rest = lasts.long if self._long else lasts.short
        end = at + rest
        if end < self.now:
            end = self.now + (self.now - end) // 2  # overdue work may run on for a while
        heappush(self._ends, (end, self._number, wid))

    def _stop(self, wid: str) -> None:
        """Keep the remaining run time of a workload that was evicted or restarts."""
        if wid not in self._starts:
            return
        at, number = self._starts.pop(wid)
        end = next((entry[0] for entry in self._ends if entry[1] == number), None)
        if end is not None:
            self._rest[wid] = max(0, end - max(at, self.now))


def foretell(
    world: World, now: int, settings: Settings, decide: Decide, workload: str, lasting: Known, cycles: int
) -> Estimate | None:
    """The range in which it starts; None if `cycles` run out, no run time is known or it does not wait.

    Later submissions are not played: while they come, the late end is later by their recent pace.
    """
    world.update_sets()
    running = [wid for holders in world.holders.values() for wid in holders if wid != workload]
    lasts = [it for wid in running if (it := lasting(wid)) is not None]
    if not lasts or world.need(workload).chunk is None:
        return None
    known = _memory(lasting)
    ends: list[int] = []
    for long in (False, True):
        play = Play(world.fresh(), now, settings, decide, known, long=long, cycles=cycles // 2)
        start = play.until(workload)
        if start is None:
            return None
        ends.append(start)
        if all(it.short == it.long for it in lasts):
            break  # the other would be the same
    typical = sorted(it.long for it in lasts)[len(lasts) // 2]
    pace = min(MOST_PACE, _pace(world, now, lasting))
    latest = now + (max(ends) - now) * (LATE + pace) // 1000 + (typical if pace else typical // 5) + SLACK
    return Estimate(now + (min(ends) - now) * EARLY // 1000, latest, basis_of(lasts))


def _pace(world: World, now: int, lasting: Known) -> int:
    """Thousandths of the cluster that recent submissions ask for; 0 once no more come."""
    young = sorted(world.workloads.values(), key=lambda row: (-row.created, row.id))[:LATELY]
    if len(young) < LATELY:
        return 0
    first, last = young[-1].created, young[0].created
    if now - last > STOPPED * max(1, (last - first) // (LATELY - 1)):
        return 0
    asked = 0
    for row in young:
        it = lasting(row.id)
        devices = sum(group.request.devices * group.request.portion * group.wanted for group in row.groups)
        asked += devices * it.long if it is not None else 0
    capacity = sum(size.gpu for size in world.capacity.values())
    return asked * 1000 // max(1, (now - first) * capacity)


def _memory(lasting: Known) -> Known:
    """`lasting` with a cache: it also answers for workloads that have ended in the play."""
    said: dict[str, Lasting | None] = {}

    def known(wid: str) -> Lasting | None:
        if wid not in said:
            said[wid] = lasting(wid)
        return said[wid]

    return known
