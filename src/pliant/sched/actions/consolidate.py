"""Consolidate: move what runs so that a waiting core fits. Nothing is lost: every victim has a new place."""

from pliant.model.quantity import Resources
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.actions.reservation import Reserving
from pliant.sched.actions.take import serve
from pliant.sched.preemption.victims import Rules
from pliant.sched.world.chunks import Chunk, Step


class Moves(Rules):
    action = "consolidate"
    moves = True

    def may(self, victim: Workload, step: Step, priority: int) -> bool:
        if step is Step.BONUS:
            return True
        return victim.preemptible and not self.sheltered(victim) and self.unprotected(victim)


def consolidate(cycle: Cycle, reserving: Reserving) -> None:
    if cycle.settings.consolidation_victims:
        serve(cycle, reserving, "consolidate", _rules)


def _rules(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Rules | None:
    """Of use only to what its queues may have and for which enough is free, if only in pieces."""
    if chunk.step is not Step.CORE or cycle.shares.refuse(chunk, pool, adding) is not None:
        return None
    if cycle.never_fits(chunk, pool):
        return None
    cls = cycle.world.node_class(pool, ())  # who moves may go where the one that waits may not
    if len(cls.nodes) < 2 and not cls.partly:
        return None  # nowhere to move to
    lent = sum(cycle.world.need(wid).bonus_gpu for wid in cycle.world.stretched)
    if adding.gpu > cls.room + lent:
        return None
    return Moves(cycle, chunk, pool, adding)
