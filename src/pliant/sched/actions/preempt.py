"""Preempt: inside a project, higher priority takes from strictly lower."""

from pliant.model.quantity import Resources
from pliant.model.reason import Preempted, Reason
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.plan import Guarantee
from pliant.sched.preemption.attempt import Attempt
from pliant.sched.preemption.policy import Grounds, Policy
from pliant.sched.shares.admission import RESOURCES, Refusal
from pliant.sched.shares.ageing import aged
from pliant.sched.shares.fair_share import INFINITE
from pliant.sched.shares.naming import workload_named
from pliant.sched.shares.protection import from_preemption
from pliant.sched.world.chunks import Chunk, Step, may_lose, priority_of
from pliant.sched.world.queue_tree import NOTHING


class Preempt(Policy):
    action = "preempt"
    resettles = True

    def __init__(self, grounds: Grounds, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(grounds, chunk, pool, adding)
        # As before the search. GPUs that are in no fair share may be used: no project reclaims them.
        fair, whole = self.shares.bare(pool, lend=True), self.world.capacity.get(pool, NOTHING)
        self._most: dict[str, Resources] = {}
        for key in self.world.path(chunk.workload.project):
            most = Resources(*map(max, fair[key].fair, self.shares.own(key, pool)))
            if key != chunk.workload.project:  # a department that may have the whole pool is no bound
                most = Resources(
                    *(INFINITE if it >= all_ else it for it, all_ in zip(most, whole, strict=True))
                )
            self._most[key] = most

    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        return (
            may_lose(victim, step)
            and victim.project == self.chunk.workload.project
            and priority < self.chunk.priority
            and not self._outwaits(attempt, victim, priority)
        )

    def within_reach(self) -> bool:
        """True if each queue that must give up GPUs for the chunk has enough to give."""
        if self.grounds.places.settings.ageing:
            return True  # only a search tells which victims have waited longer
        limits = self.shares.refuse(self.chunk, self.pool, self.adding), self.lacking()
        return all(it is None or it.resource != "gpu" or self._gives_enough(it) for it in limits)

    def _gives_enough(self, limit: Refusal) -> bool:
        """False if a queue has too few GPUs to give, even with protected ones and those of other pools."""
        world, lacks = self.world, limit.used + limit.asked - limit.allowed
        for project, holders in world.holders.items():
            if limit.key in world.path(project):
                mine = project == self.chunk.workload.project
                for wid in holders:
                    below = mine and self._ranks_below(world.workloads[wid])
                    lacks -= world.gpu_of(wid) if below else world.need(wid).bonus_gpu
                    if lacks <= 0:
                        return True
        return False

    def _ranks_below(self, victim: Workload) -> bool:
        return any(priority_of(victim, group) < self.chunk.priority for group in victim.groups)

    def holds(self) -> bool:
        """False if a queue then has more than its fair share and than before: others would take that back."""
        return all(
            not asked or now <= most
            for key, bound in self._most.items()
            for asked, now, most in zip(self.adding, self.shares.own(key, self.pool), bound, strict=True)
        )

    def lacking(self) -> Refusal | None:
        for key, bound in self._most.items():
            own = self.shares.own(key, self.pool)
            for at, resource in enumerate(RESOURCES):
                if self.adding[at] and own[at] + self.adding[at] > bound[at]:
                    return Refusal(key, resource, own[at], self.adding[at], bound[at], False)
        return None

    def _outwaits(self, attempt: Attempt, victim: Workload, priority: int) -> bool:
        """True if its aged priority is not below the chunk's; the attempt notes the first such victim."""
        grown = aged(victim, priority, self.grounds.now, self.grounds.places.settings)
        if grown < self.chunk.priority:
            return False
        attempt.met.outwaited = attempt.met.outwaited or (victim.id, priority, grown)
        return True

    def guarantee(self, victim: Workload) -> Guarantee:
        return from_preemption(self.world, victim.project, self.pool)

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        winner = workload_named(self.world, self.chunk.workload.id)
        return Preempted(gpu, winner, self.chunk.priority, priority)


def preempt(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Policy | None:
    """Only if the quota allows the chunk and some workload of its project has a lower priority."""
    world = cycle.world
    world.update_sets()
    lowest = world.lowest_priority(chunk.workload.project, world.workloads)
    if lowest is None or lowest >= chunk.priority:
        return None
    refusal = cycle.shares.refuse(chunk, pool, adding)
    if (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    return Preempt(cycle.grounds, chunk, pool, adding)
