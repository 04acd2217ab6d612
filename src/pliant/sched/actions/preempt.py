"""Preempt: inside a project, higher priority takes from strictly lower."""

from pliant.model.quantity import Resources
from pliant.model.reason import Preempted, Reason
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.actions.take import serve
from pliant.sched.preemption.victims import Rules
from pliant.sched.shares.admission import RESOURCES, Refusal
from pliant.sched.shares.naming import workload_named
from pliant.sched.shares.protection import Guarantee, from_preemption
from pliant.sched.world.portions import Chunk, Step, core_priority


class LowerPriority(Rules):
    action = "preempt"
    resettles = True

    def __init__(self, cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(cycle, chunk, pool, adding)
        # As it was before the search. What is nobody's due may be had: nobody takes that back.
        self._fair = cycle.bare(pool, lend=True)[chunk.workload.project].fair
        self._before = self._own()

    def may(self, victim: Workload, step: Step, priority: int) -> bool:
        if step is Step.BONUS:
            return True
        winner = self.chunk.workload
        return (
            victim.preemptible
            and victim.project == winner.project
            and priority < self.chunk.priority
            and not self._outwaits(victim, priority)
            and not self.sheltered(victim)
            and (step is not Step.CORE or self.unprotected(victim))
        )

    def gives(self, victim: Workload) -> bool:
        return victim.project == self.chunk.workload.project and core_priority(victim) < self.chunk.priority

    def holds(self) -> bool:
        """The project gets no more by it than its fair share: others would take that back, and so on."""
        return self.cycle.settings.preempts_beyond or all(
            not asked or now <= max(due, before)
            for asked, now, due, before in zip(
                self.adding, self._own(), self._fair, self._before, strict=True
            )
        )

    def lacking(self) -> Refusal | None:
        if self.cycle.settings.preempts_beyond:
            return None
        for at, resource in enumerate(RESOURCES):
            most, own = max(self._fair[at], self._before[at]), self._own()[at]
            if self.adding[at] and own + self.adding[at] > most:
                return Refusal(self.chunk.workload.project, resource, own, self.adding[at], most, False)
        return None

    def _own(self) -> Resources:
        return self.cycle.own(self.chunk.workload.project, self.pool)

    def _outwaits(self, victim: Workload, priority: int) -> bool:
        """True if it had waited for so long before that it goes before the one that asks for its place."""
        aged = self.cycle.aged(victim, priority)
        if aged < self.chunk.priority:
            return False
        kin = self.cycle.kin(self.chunk, self.pool)
        self.cycle.outwaited.setdefault(kin, (victim.id, priority, aged))
        return True

    def guarantee(self, victim: Workload) -> Guarantee:
        return from_preemption(self.world, victim.project, self.pool)

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        winner = workload_named(self.world, self.chunk.workload.id)
        return Preempted(gpu, winner, self.chunk.priority, priority)


def preempt(cycle: Cycle) -> None:
    serve(cycle, "preempt", _rules)


def _rules(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Rules | None:
    workload = chunk.workload
    lowest = cycle.lowest_priority(workload.project)
    if lowest is None or lowest >= chunk.priority:
        return None
    refusal = cycle.refuse(chunk, pool, adding)
    if (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    return LowerPriority(cycle, chunk, pool, adding)
