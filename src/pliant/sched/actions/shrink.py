"""Shrink: takes bonus portions so that a core or wanted portion fits, whatever the priorities."""

from pliant.model.quantity import Resources
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.preemption.attempt import Attempt
from pliant.sched.preemption.policy import Policy
from pliant.sched.world.chunks import Chunk, Step


class Shrink(Policy):
    action = "shrink"

    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        return False


def shrink(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Policy | None:
    """Only while some workload holds bonus."""
    refusal = cycle.shares.refuse(chunk, pool, adding)
    if not cycle.world.stretched or (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    return Shrink(cycle.grounds, chunk, pool, adding)
