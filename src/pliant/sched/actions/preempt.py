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
from pliant.sched.shares.naming import workload_named
from pliant.sched.shares.protection import from_preemption
from pliant.sched.world.chunks import Chunk, Step, may_lose, priority_of


class Preempt(Policy):
    action = "preempt"
    resettles = True

    def __init__(self, grounds: Grounds, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(grounds, chunk, pool, adding)
        # As it was before the search. What is nobody's due may be had: nobody takes that back.
        self._fair = self.shares.bare(pool, lend=True)[chunk.workload.project].fair
        self._before = self._own()

    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        if step is Step.BONUS:
            return True
        winner = self.chunk.workload
        return (
            may_lose(victim, step)
            and victim.project == winner.project
            and priority < self.chunk.priority
            and not self._outwaits(attempt, victim, priority)
            and not self.sheltered(attempt, victim)
            and (step is not Step.CORE or self.unprotected(attempt, victim))
        )

    def within_reach(self) -> bool:
        """A queue that must give up GPUs before the chunk may have its own has so many to give."""
        if self.grounds.places.settings.ageing:
            return True  # a search tells who has waited for longer
        limits = self.shares.refuse(self.chunk, self.pool, self.adding), self.lacking()
        return all(it is None or it.resource != "gpu" or self._gives_enough(it) for it in limits)

    def _gives_enough(self, limit: Refusal) -> bool:
        """Protected or not, in whatever pool: a bound, so that no search begins that cannot succeed."""
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
        """The project gets no more by it than its fair share: others would take that back, and so on."""
        return all(
            not asked or now <= max(due, before)
            for asked, now, due, before in zip(
                self.adding, self._own(), self._fair, self._before, strict=True
            )
        )

    def lacking(self) -> Refusal | None:
        for at, resource in enumerate(RESOURCES):
            most, own = max(self._fair[at], self._before[at]), self._own()[at]
            if self.adding[at] and own + self.adding[at] > most:
                return Refusal(self.chunk.workload.project, resource, own, self.adding[at], most, False)
        return None

    def _own(self) -> Resources:
        return self.shares.own(self.chunk.workload.project, self.pool)

    def _outwaits(self, attempt: Attempt, victim: Workload, priority: int) -> bool:
        """True if it had waited for so long before that it goes before the one that asks for its place."""
        grown = aged(victim, priority, self.grounds.now, self.grounds.places.settings)
        if grown < self.chunk.priority:
            return False
        attempt.outwaited = attempt.outwaited or (victim.id, priority, grown)
        return True

    def guarantee(self, victim: Workload) -> Guarantee:
        return from_preemption(self.world, victim.project, self.pool)

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        winner = workload_named(self.world, self.chunk.workload.id)
        return Preempted(gpu, winner, self.chunk.priority, priority)


def preempt(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Policy | None:
    """Only for what its project may have, where somebody of it has a lower priority."""
    workload = chunk.workload
    lowest = cycle.shares.lowest_priority(workload.project)
    if lowest is None or lowest >= chunk.priority:
        return None
    refusal = cycle.shares.refuse(chunk, pool, adding)
    if (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    return Preempt(cycle.grounds, chunk, pool, adding)
