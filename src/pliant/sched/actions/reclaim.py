"""Reclaim: a project that is below its due takes back from projects above theirs."""

from collections.abc import Iterable

from pliant.model.quantity import Resources
from pliant.model.reason import Reason, Reclaimed
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.actions.take import serve
from pliant.sched.preemption.victims import Before, Rules, Unit
from pliant.sched.shares.admission import RESOURCES
from pliant.sched.shares.fair_share import INFINITE
from pliant.sched.shares.naming import named_at, workload_named
from pliant.sched.shares.protection import Guarantee, from_reclaim
from pliant.sched.world.portions import Chunk, Step, core_priority
from pliant.sched.world.queue_tree import NOTHING


class BelowDue(Rules):
    """Two rules for each portion: guarantee quota or maintain fair share; the order of siblings is kept."""

    action = "reclaim"
    resettles = True
    in_turn = True

    def __init__(self, cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(cycle, chunk, pool, adding)
        self._standing = cycle.bare(pool)  # what anybody holds as bonus makes no due smaller or larger
        self._path = tuple(reversed(self.world.path(chunk.workload.project)))
        # The claimant's own numbers count as they were before the search, what it holds as bonus left out.
        self._own = {key: cycle.own(key, pool) for key in self._path}
        self._gives: dict[
            str, tuple[int, tuple[str, str, Resources] | None]
        ] = {}  # project -> see _may_give()
        self._gave: dict[str, bool] = {}  # project -> whether it had to give when it was first looked at
        self._levels: dict[str, tuple[str, str]] = {}  # project -> what _level() has answered
        self._donors: dict[
            str, tuple[str, Resources]
        ] = {}  # queue that gives -> (our queue beside it, before)

    def may(self, victim: Workload, step: Step, priority: int) -> bool:
        if step is Step.BONUS:
            return True
        if not victim.preemptible or victim.project == self.chunk.workload.project:
            return False
        known = self._gives.get(victim.project)
        if known is None or known[0] != self.world.version:
            known = self._gives[victim.project] = self.world.version, self._may_give(victim.project)
        if victim.project not in self._gave:
            self._gave[victim.project] = known[1] is not None or self._full(victim.project)
        if known[1] is None or self.sheltered(victim) or (step is Step.CORE and not self.unprotected(victim)):
            return False
        mine, theirs, have = known[1]
        self._donors.setdefault(theirs, (mine, have))
        return True

    def gives(self, victim: Workload) -> bool:
        return self._gave.get(victim.project, False)

    def _full(self, project: str) -> bool:
        """True if we are below our quota and the project has all of its own."""
        mine, theirs = self._level(project)
        have, due = self.cycle.own(theirs, self.pool), self._standing[theirs].deserved
        lacks = any(
            asked and it < most < INFINITE for asked, it, most in zip(self.adding, have, due, strict=True)
        )
        return self._below_quota(mine) and not lacks

    def _may_give(self, project: str) -> tuple[str, str, Resources] | None:
        """Our queue and theirs where they differ, and what theirs has; None: it may keep that."""
        mine, theirs = self._level(project)
        have, standing = self.cycle.own(theirs, self.pool), self._standing[theirs]
        fair = standing.rank <= self._standing[mine].rank and self._exceeds(have, standing.allocatable)
        if not fair and not (self._below_quota(mine) and self._exceeds(have, standing.deserved)):
            return None
        return mine, theirs, have

    def guarantee(self, victim: Workload) -> Guarantee:
        return from_reclaim(self.world, self._level(victim.project)[1], self.pool)

    def within_reach(self) -> bool:
        """What is free, all bonus, and of every queue beside ours what it has above its due."""
        if not self.adding.gpu:
            return True
        world = self.world
        room = self.cycle.nodes_for(self.chunk.workload, self.pool).room
        room += sum(world.need(wid).bonus_gpu for wid in world.stretched)
        largest: dict[tuple[str, str], int] = {}
        for project, holders in world.holders.items():
            if holders and project in world.projects and project != self.chunk.workload.project:
                level = self._level(project)
                largest[level] = max(largest.get(level, 0), self.cycle.largest(project))
        for (mine, theirs), most in largest.items():
            if room >= self.adding.gpu:
                break
            have, fixed = self.cycle.own(theirs, self.pool), world.use(theirs, self.pool).non_preemptible
            it = self._standing[theirs]
            due = it.allocatable
            if self._below_quota(mine):
                due = Resources(*map(min, it.deserved, due))
            if self._exceeds(have._replace(gpu=0), due):
                return True  # it is above its due in cores or memory
            if have.gpu > due.gpu:  # the last that is taken may reach below its due
                room += min(have.gpu - fixed.gpu, have.gpu - due.gpu + max(0, most - 1))
        return room >= self.adding.gpu

    def lasts(self, units: Iterable[Unit], before: Before) -> bool:
        """Beyond our own quota we take nothing that theirs would give back: each had to be the last to go."""
        taken: dict[str, list[Unit]] = {}  # project -> what it loses
        for unit in units:
            project = self.world.workloads[unit.workload].project
            if unit.step is not Step.BONUS and unit.again is None and project != self.chunk.workload.project:
                taken.setdefault(project, []).append(unit)
        for project, mine in taken.items():
            ours, theirs = self._level(project)
            if self._below_quota(ours):
                continue
            left, quota = self.cycle.own(theirs, self.pool), self._standing[theirs].deserved
            if any(_within(unit.lost(before), left, quota) for unit in mine) or self._returns(
                project, mine, quota.gpu - left.gpu
            ):
                self.fleeting = True
                return False
        return True

    def _returns(self, project: str, taken: list[Unit], room: int) -> bool:
        """True if one of them may oust a lesser and larger workload of its project, so that there is room in
        its quota (`room` milli-GPUs now, negative: none) for another of them."""
        world = self.world
        world.settle()
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
        """Once we are above our fair share, no sibling that gave may be relatively worse off than we are."""
        for theirs, (mine, _) in self._donors.items():
            ours, their = self.cycle.own(mine, self.pool), self.cycle.own(theirs, self.pool)
            fair, their_fair = self._standing[mine].fair, self._standing[theirs].fair
            if their == self._donors[theirs][1]:
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
        quota = self._below_quota(mine)
        due, their_due = self._standing[mine], self._standing[theirs]
        before = self._donors[theirs][1] if theirs in self._donors else NOTHING
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
            before[at],
            -1 if its >= INFINITE else its,
            RESOURCES[at],
        )

    def _level(self, project: str) -> tuple[str, str]:
        """The first level from the root on which our queue and this project's differ."""
        known = self._levels.get(project)
        if known is None:
            theirs = tuple(reversed(self.world.path(project)))
            pairs = zip(self._path, theirs, strict=False)
            known = next((pair for pair in pairs if pair[0] != pair[1]), (self._path[-1], theirs[-1]))
            self._levels[project] = known
        return known

    def _below_quota(self, mine: str) -> bool:
        return all(
            not asked or have + asked <= quota
            for have, asked, quota in zip(
                self._own[mine], self.adding, self._standing[mine].deserved, strict=True
            )
        )

    def _exceeds(self, have: Resources, due: Resources) -> bool:
        gpu, cpu, memory = self.adding
        return bool((gpu and have[0] > due[0]) or (cpu and have[1] > due[1]) or (memory and have[2] > due[2]))


def reclaim(cycle: Cycle) -> None:
    serve(cycle, "reclaim", _rules)


def _rules(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Rules | None:
    """Only for a chunk that keeps its project within its fair share, what it holds as bonus left out."""
    project = chunk.workload.project
    refusal = cycle.refuse(chunk, pool, adding)
    if (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    mine = cycle.bare(pool)[project]
    have = cycle.own(project, pool)
    if any(asked and held + asked > due for held, asked, due in zip(have, adding, mine.fair, strict=True)):
        cycle.unentitled.add(cycle.kin(chunk, pool))
        return None
    if not cycle.donors(pool, project):
        return None
    return BelowDue(cycle, chunk, pool, adding)


def _within(amount: Resources, left: Resources, quota: Resources) -> bool:
    """True if it fits into a quota beside what is left there."""
    return not any(it and have + it > due for it, have, due in zip(amount, left, quota, strict=True))
