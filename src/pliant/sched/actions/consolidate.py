"""Consolidate: move what runs so that a waiting core fits. Nothing is lost: every victim has a new place."""

from pliant.model.quantity import Resources
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.preemption.attempt import Attempt
from pliant.sched.preemption.policy import Policy
from pliant.sched.world.chunks import Chunk, Step


class Consolidate(Policy):
    action = "consolidate"
    moves = True

    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        if step is Step.BONUS:
            return True
        return (
            victim.preemptible and not self.sheltered(attempt, victim) and self.unprotected(attempt, victim)
        )


def consolidate(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Policy | None:
    """Of use only to what its queues may have and for which enough is free, if only in pieces."""
    if not cycle.settings.consolidation_victims:
        return None
    if chunk.step is not Step.CORE or cycle.shares.refuse(chunk, pool, adding) is not None:
        return None
    if cycle.never_fits(chunk, pool):
        return None
    cls = cycle.world.node_class(pool, ())  # who moves may go where the one that waits may not
    if len(cls.nodes) < 2 and not any(look.rests for look in cls.looks):
        return None  # nowhere to move to
    lent = sum(cycle.world.need(wid).bonus_gpu for wid in cycle.world.stretched)
    if adding.gpu > cls.room + lent:
        return None
    return Consolidate(cycle.grounds, chunk, pool, adding)
