"""Preempt: inside a project, higher priority takes from strictly lower."""

from pliant.model.quantity import Resources
from pliant.model.reason import Preempted, Reason
from pliant.model.workload import Workload
from pliant.sched.actions.take import serve
from pliant.sched.context import Cycle
from pliant.sched.portions import Chunk, Step
from pliant.sched.share import queue_of
from pliant.sched.victims import Rules


class LowerPriority(Rules):
    action = "preempt"
    resettles = True

    def may(self, victim: Workload, step: Step, priority: int) -> bool:
        if step is Step.BONUS:
            return True
        winner = self.chunk.workload
        return (
            victim.preemptible
            and victim.project == winner.project
            and priority < self.chunk.priority
            and (step is not Step.CORE or self.unprotected(victim))
        )

    def min_runtime(self, victim: Workload) -> int:
        """The nearest that is set, from the project up."""
        for key in self.world.path(victim.project):
            quota = queue_of(self.world, key).quota(self.pool)
            if quota.preempt_min_runtime is not None:
                return quota.preempt_min_runtime
        return super().min_runtime(victim)

    def reason(self, victim: Workload, gpu: int, priority: int) -> Reason:
        return Preempted(gpu, self.chunk.workload.name, self.chunk.priority, priority)


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
