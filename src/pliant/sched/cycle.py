"""One cycle: the actions in their order, then the plan that follows from what they changed."""

from collections.abc import Callable

from pliant.sched.actions.allocate import allocate
from pliant.sched.actions.consolidate import consolidate
from pliant.sched.actions.grow import grow
from pliant.sched.actions.hasten import hasten
from pliant.sched.actions.preempt import preempt
from pliant.sched.actions.reclaim import reclaim
from pliant.sched.actions.release import release
from pliant.sched.actions.shrink import shrink
from pliant.sched.actions.stale import stale
from pliant.sched.context import Cycle
from pliant.sched.intents import Deriver
from pliant.sched.plan import Decision, Plan
from pliant.sched.settings import Settings
from pliant.sched.verdicts import verdicts
from pliant.sched.world import World

ACTIONS: dict[str, Callable[[Cycle], None]] = {
    "allocate": allocate,
    "shrink": shrink,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stale": stale,
    "hasten": hasten,
    "grow": grow,
}


def decide(world: World, now: int, settings: Settings) -> Plan:
    """What to do about this world at this instant (ms since the epoch). The world is left as it was found.

    A function: the same world, instant and settings give the same plan, whatever the hash seed.
    """
    mark = world.checkpoint()
    try:
        world.settle()
        cycle = Cycle(world, now, settings)
        release(cycle)
        if "allocate" not in settings.actions:  # then nothing was tried yet that may now be taken for
            for lane, chunks in cycle.lanes().items():
                cycle.failures[lane] = {chunk.workload.id: chunk for chunk in chunks}
        ran: set[str] = set()
        for name in settings.actions:
            if name not in ran or cycle.released:  # again only if something was released meanwhile
                ACTIONS[name](cycle)
            ran.add(name)
        return _plan(cycle)
    finally:
        world.undo(mark)
        world.settle()


def _plan(cycle: Cycle) -> Plan:
    world = cycle.world
    changed = world.changed()
    cycle.decisions = net(cycle, {key[0] for key in changed})
    outcome = Deriver(cycle).run(changed)
    return Plan(
        tuple(cycle.decisions),
        tuple(outcome.rows[key] for key in sorted(outcome.rows)),
        tuple(outcome.starts),
        tuple(outcome.stops),
        tuple(outcome.resizes),
        verdicts(cycle, outcome),
        cycle.wake,
    )


def net(cycle: Cycle, changed: set[str]) -> list[Decision]:
    """The decisions for history: those of workloads for which they came to nothing are left out."""
    kept: list[Decision] = []
    for decision in cycle.decisions:
        wid = decision.workload
        if wid in changed:
            kept.append(decision)
    return kept
