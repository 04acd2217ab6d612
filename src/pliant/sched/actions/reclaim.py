"""Reclaim: a project that is below its due takes back from projects above theirs."""

from collections.abc import Iterable

from pliant.model.quantity import Resources
from pliant.model.reason import Reason, Reclaimed
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.placement import fit
from pliant.sched.plan import Guarantee
from pliant.sched.preemption.attempt import Attempt, Unit
from pliant.sched.preemption.policy import Grounds, Policy
from pliant.sched.shares.admission import RESOURCES
from pliant.sched.shares.admission import asked as asked_by
from pliant.sched.shares.fair_share import INFINITE
from pliant.sched.shares.naming import named_at, workload_named
from pliant.sched.shares.protection import from_reclaim
from pliant.sched.world.chunks import Chunk, Step, core_priority, may_lose


class Reclaim(Policy):
    """Two rules for each portion: guarantee quota or maintain fair share; the order of siblings is kept."""

    action = "reclaim"
    resettles = True
    in_turn = True

    def __init__(self, grounds: Grounds, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(grounds, chunk, pool, adding)
        self._standing = self.shares.bare(pool)  # bonus makes no fair share smaller or larger
        self._path = tuple(reversed(self.world.path(chunk.workload.project)))
        # The chunk's own queues, as they were before the search and without bonus.
        self._own = {key: self.shares.own(key, pool) for key in self._path}
        self._before: dict[str, Resources] = {}  # what queues beside ours had at first
        self._gives: dict[str, tuple[int, bool]] = {}  # project -> (version, what gives() has answered)
        self._levels: dict[str, tuple[str, str]] = {}  # project -> what _level() has answered
        self._below: dict[str, bool] = {}  # level of ours -> what _below_quota() has answered
        # (queue of the victim, milli-GPUs) -> the reason: many victims lose the same.
        self._reasons: dict[tuple[str, int], Reason] = {}

    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        other = victim.project != self.chunk.workload.project
        return other and may_lose(victim, step) and self.gives(victim.project)

    def gives(self, project: str) -> bool:
        """False if the queue of this project beside ours may keep what it has."""
        known = self._gives.get(project)
        if known is None or known[0] != self.world.version:
            known = self._gives[project] = self.world.version, self._exceeds_due(project)
        return known[1]

    def _exceeds_due(self, project: str) -> bool:
        mine, theirs = self._level(project)
        have, standing = self.shares.own(theirs, self.pool), self._standing[theirs]
        fair = standing.rank <= self._standing[mine].rank and self._exceeds(have, standing.allocatable)
        return fair or (self._below_quota(mine) and self._exceeds(have, standing.deserved))

    def guarantee(self, victim: Workload) -> Guarantee:
        return from_reclaim(self.world, self._level(victim.project)[1], self.pool)

    def within_reach(self) -> bool:
        """True if what is free, all bonus, and what the queues beside ours have above their due suffice."""
        if not self.adding.gpu:
            return True
        world = self.world
        room = self.nodes.room
        room += sum(world.need(wid).bonus_gpu for wid in world.stretched)
        largest: dict[tuple[str, str], int] = {}
        for project, holders in world.holders.items():
            if holders and project in world.projects and project != self.chunk.workload.project:
                level = self._level(project)
                largest[level] = max(largest.get(level, 0), self.shares.largest(project))
        for (mine, theirs), most in largest.items():
            if room >= self.adding.gpu:
                break
            have, fixed = (
                self.shares.own(theirs, self.pool),
                world.use(theirs, self.pool).non_preemptible,
            )
            it = self._standing[theirs]
            due = it.allocatable
            if self._below_quota(mine):
                due = Resources(*map(min, it.deserved, due))
            if self._exceeds(have._replace(gpu=0), due):
                return True  # it is above its due in cores or memory
            if have.gpu > due.gpu:  # the last that is taken may reach below its due
                room += min(have.gpu - fixed.gpu, have.gpu - due.gpu + max(0, most - 1))
        return room >= self.adding.gpu

    def lasts(self, units: Iterable[Unit]) -> bool:
        """False if we are beyond our quota and a victim's queue would reclaim something within its own quota.

        It would if a victim, or a waiting chunk that needs our place, fits into what its quota has left.
        """
        taken: dict[str, list[Unit]] = {}  # project -> what it loses
        for unit in units:
            row = self.world.workloads[unit.workload]
            lost = unit.step is not Step.BONUS and unit.again is None and not row.background
            if lost and row.project != self.chunk.workload.project:
                taken.setdefault(row.project, []).append(unit)
        for project, mine in taken.items():
            ours, theirs = self._level(project)
            if self._below_quota(ours):
                continue
            left, quota = self.shares.own(theirs, self.pool), self._standing[theirs].deserved
            if (
                any(_within(unit.lost, left, quota) for unit in mine)
                or self._returns(project, mine, quota.gpu - left.gpu)
                or self._claimed_by_another(theirs, left, quota)
            ):
                return False
        return True

    def _claimed_by_another(self, theirs: str, left: Resources, quota: Resources) -> bool:
        """True if a waiting chunk that fits their quota has a place only where our chunk is now."""
        world, places = self.world, self.grounds.places
        world.update_sets()
        for alike in list(world.alike.values()):
            chunk = next(iter(alike.values()))
            project = chunk.workload.project
            if project not in world.projects or theirs not in world.path(project):
                continue
            if self.pool not in places.choices(chunk.workload):
                continue
            adding = asked_by(chunk, places.nodes_for(chunk.workload, self.pool).largest[1])
            if adding.gpu and _within(adding, left, quota) and self._stands_in_the_way_of(chunk):
                return True
        return False

    def _stands_in_the_way_of(self, other: Chunk) -> bool:
        """True if another chunk has no place now and would have one without ours."""
        world, places = self.world, self.grounds.places
        cls, pool = places.nodes_for(other.workload, self.pool), places.pool(self.pool)
        mark = world.checkpoint()
        barred = not fit.place(world, cls, other, pool)
        if barred:
            for part in self.chunk.parts:
                world.claim(part.task, None)
            barred = fit.place(world, cls, other, pool)
        world.undo(mark)
        return barred

    def _returns(self, project: str, taken: list[Unit], room: int) -> bool:
        """True if a victim may preempt a workload of lower priority in its project and the quota then has
        room for it and another victim. `room`: milli-GPUs left in the quota; negative: it is exceeded."""
        world = self.world
        world.update_sets()
        lesser = [
            (core_priority(row), world.gpu_of(wid))
            for wid in world.holders.get(project, ())
            if (row := world.workloads[wid]).preemptible
        ]
        smallest = sorted(taken, key=lambda unit: unit.gpu)[:2]
        for unit in taken if len(taken) > 1 else ():
            ousted = max((gpu for priority, gpu in lesser if priority < unit.priority), default=0)
            other = smallest[1] if unit is smallest[0] else smallest[0]
            if ousted and unit.gpu + other.gpu <= room + ousted:
                return True
        return False

    def holds(self) -> bool:
        """False if we are above our fair share and a sibling that gave has no larger part of its own."""
        for mine, theirs in dict.fromkeys(self._levels.values()):
            if mine == theirs:
                continue  # our own
            ours, their = self.shares.own(mine, self.pool), self.shares.own(theirs, self.pool)
            fair, their_fair = self._standing[mine].fair, self._standing[theirs].fair
            if their == self._before[theirs]:
                continue
            for at, asked in enumerate(self.adding):
                above = asked and ours[at] > fair[at] and (their_fair[at] > 0 or fair[at] == 0)
                if above and not fair[at] and not their_fair[at] and ours[at] < their[at]:
                    continue  # neither is due anything: the one that has less may catch up
                if above and ours[at] * their_fair[at] >= their[at] * fair[at]:
                    return False
        return True

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        mine, theirs = self._level(victim.project)
        known = self._reasons.get((theirs, gpu))
        if known is None:
            known = self._reasons[theirs, gpu] = self._reason(mine, theirs, gpu)
        return known

    def _reason(self, mine: str, theirs: str, gpu: int) -> Reason:
        quota = self._below_quota(mine)
        due, their_due = self._standing[mine], self._standing[theirs]
        at = next((at for at, asked in enumerate(self.adding) if asked), 0)
        ours = (due.deserved if quota else due.fair)[at]
        its = (their_due.deserved if quota else their_due.fair)[at]
        return Reclaimed(
            gpu,
            workload_named(self.world, self.chunk.workload.id),
            named_at(self.world, mine),
            "quota" if quota else "fair-share",
            self._own[mine][at],
            -1 if ours >= INFINITE else ours,
            named_at(self.world, theirs),
            self._before[theirs][at],
            -1 if its >= INFINITE else its,
            RESOURCES[at],
        )

    def _level(self, project: str) -> tuple[str, str]:
        """(our queue, this project's queue) on the first level from the root where they differ."""
        known = self._levels.get(project)
        if known is None:
            theirs = tuple(reversed(self.world.path(project)))
            pairs = zip(self._path, theirs, strict=False)
            known = next((pair for pair in pairs if pair[0] != pair[1]), (self._path[-1], theirs[-1]))
            self._levels[project] = known
            if known[1] not in self._before:
                self._before[known[1]] = self.shares.own(known[1], self.pool)
        return known

    def _below_quota(self, mine: str) -> bool:
        known = self._below.get(mine)
        if known is None:
            quota = self._standing[mine].deserved
            known = self._below[mine] = _within(self.adding, self._own[mine], quota)
        return known

    def _exceeds(self, have: Resources, due: Resources) -> bool:
        gpu, cpu, memory = self.adding
        return bool((gpu and have[0] > due[0]) or (cpu and have[1] > due[1]) or (memory and have[2] > due[2]))


def reclaim(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Policy | None:
    """Only for a chunk that keeps its project within its fair share, bonus not counted."""
    project = chunk.workload.project
    refusal = cycle.shares.refuse(chunk, pool, adding)
    if (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    mine = cycle.shares.bare(pool)[project]
    have = cycle.shares.own(project, pool)
    if any(asked and held + asked > due for held, asked, due in zip(have, adding, mine.fair, strict=True)):
        cycle.unentitled.add(cycle.equivalence(chunk, pool))
        return None
    if not cycle.shares.donors(pool, project):
        return None
    return Reclaim(cycle.grounds, chunk, pool, adding)


def _within(amount: Resources, left: Resources, quota: Resources) -> bool:
    """True if `amount` fits into `quota` beside what is there (`left`)."""
    return not any(it and have + it > due for it, have, due in zip(amount, left, quota, strict=True))
