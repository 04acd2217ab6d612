"""Consolidate: move what runs so that a waiting core fits. Nothing is lost; every victim has its new place at once."""

from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Workload
from pliant.sched.actions.take import serve
from pliant.sched.context import Cycle
from pliant.sched.portions import Chunk, Step, whole
from pliant.sched.victims import Rules


class Moves(Rules):
    action = "consolidate"
    moves = True

    def __init__(self, cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(cycle, chunk, pool, adding)
        self._most = cycle.settings.consolidation_victims

    def may(self, victim: Workload, step: Step) -> bool:
        return step is Step.BONUS or (victim.preemptible and self.unprotected(victim))

    def few(self, workloads: int) -> bool:
        return self._most < 0 or workloads <= self._most


def consolidate(cycle: Cycle) -> None:
    if cycle.settings.consolidation_victims:
        serve(cycle, "consolidate", _rules)


def _rules(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Rules | None:
    """Of use only to a core that its queues may have and for which enough is free, if only in pieces."""
    if chunk.step is not Step.CORE or cycle.refuse(chunk, pool, adding) is not None:
        return None
    cls = cycle.nodes_for(chunk.workload, pool)
    if len(cls.nodes) < 2 or cycle.never_fits(chunk, pool):
        return None
    devices = sum(part.request.devices for part in chunk.parts if whole(part.request))
    lent = sum(cycle.world.need(wid).bonus for wid in cycle.world.stretched)
    if devices > cls.free + lent:
        return None
    shared = sum(1 for part in chunk.parts if part.request.shared)
    if shared and not cls.free * GPU + len(cls.partly):
        return None
    return Moves(cycle, chunk, pool, adding)
