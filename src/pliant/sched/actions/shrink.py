"""Shrink: bonus portions go back to any core or wanted portion that they let fit, whatever the priorities."""

from pliant.model.quantity import Resources
from pliant.model.workload import Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.actions.reservation import Reserving
from pliant.sched.actions.take import serve
from pliant.sched.preemption.victims import Rules
from pliant.sched.world.chunks import Chunk, Step


class OnlyBonus(Rules):
    action = "shrink"

    def may(self, victim: Workload, step: Step, priority: int) -> bool:
        return step is Step.BONUS


def shrink(cycle: Cycle, reserving: Reserving) -> None:
    if cycle.world.stretched:
        serve(cycle, reserving, "shrink", _rules)


def _rules(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Rules | None:
    refusal = cycle.shares.refuse(chunk, pool, adding)
    if (refusal is not None and refusal.quota) or cycle.never_fits(chunk, pool):
        return None
    return OnlyBonus(cycle, chunk, pool, adding)
