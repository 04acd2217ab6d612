"""Moving: victims that must not be lost are placed elsewhere, others where there is room left."""

from collections.abc import Iterable
from functools import partial

from pliant.sched.placement import fit
from pliant.sched.preemption.node_eviction import Clearing
from pliant.sched.preemption.victims import Rules, Unit, rank
from pliant.sched.world.chunks import Part, Step


def placed_again(rules: Rules, clearing: Clearing, units: Iterable[Unit]) -> bool:
    """Place again what must not be lost, large before small; False if something finds no place."""
    parts = tuple(unit.again for unit in units if unit.again is not None)
    return all(clearing.spend(1) and _placed(rules, part) for part in fit.by_size(parts))


def _placed(rules: Rules, part: Part) -> bool:
    cycle, victim = rules.cycle, rules.world.workloads[part.task[0]]
    cls = cycle.nodes_for(victim, rules.pool)
    return fit.place_again(rules.world, cls, part, cycle.pool(rules.pool))


def resettle(rules: Rules, units: Iterable[Unit]) -> None:
    """Place victims on what is left, if the rules let them: cores first, then of others one portion each.

    In both the most valuable first.
    """
    if not rules.resettles:
        return
    cycle, world = rules.cycle, rules.world
    cycle.room_freed()
    hopeless: set[object] = set()  # claims only grow here
    victims = {unit.workload for unit in units if unit.step is not Step.BONUS and unit.again is None}
    order = sorted(victims, key=partial(rank, rules), reverse=True)
    chunks = [chunk for wid in order if (chunk := world.need(wid).chunk) is not None]
    for chunk in sorted(chunks, key=lambda chunk: chunk.step is not Step.CORE):
        if not cycle.rests(chunk):
            kin = cycle.kin(chunk, rules.pool)
            adding = cycle.adding(chunk, rules.pool)
            if kin not in hopeless and not cycle.try_place(chunk, rules.pool, adding):
                hopeless.add(kin)
