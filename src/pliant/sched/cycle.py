"""One cycle: the actions in their order, then the plan that follows from what they changed."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pliant.sched.actions.allocate import allocate
from pliant.sched.actions.consolidate import consolidate
from pliant.sched.actions.context import Cycle
from pliant.sched.actions.grow import grow
from pliant.sched.actions.hasten import hasten
from pliant.sched.actions.intents import Deriver
from pliant.sched.actions.preempt import preempt
from pliant.sched.actions.reclaim import reclaim
from pliant.sched.actions.release import release
from pliant.sched.actions.shrink import shrink
from pliant.sched.actions.stale import stale
from pliant.sched.actions.stay import stay
from pliant.sched.explain.verdicts import verdicts
from pliant.sched.plan import Decision, Plan, Verb
from pliant.sched.preemption.victims import fresh
from pliant.sched.settings import Settings
from pliant.sched.shares.protection import protections
from pliant.sched.world.state import World

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
    with _unswept():
        return _decided(world, now, settings)


@contextmanager
def _unswept() -> Iterator[None]:
    """No search for garbage meanwhile: it would walk the whole world for what goes with the cycle anyway."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _decided(world: World, now: int, settings: Settings) -> Plan:
    mark = world.checkpoint()
    try:
        world.settle()
        cycle = Cycle(world, now, settings)
        release(cycle)
        if "allocate" not in settings.actions:  # then nothing was tried yet that may now be taken for
            for lane, rows in cycle.lanes().items():
                for row in rows:
                    cycle.failed(lane, cycle.kin(row[0], lane[1]), row)
        ran: set[str] = set()
        for name in settings.actions:
            if name not in ran or cycle.released:  # again only if something was released meanwhile
                ACTIONS[name](cycle)
            ran.add(name)
        stay(cycle)
        return _plan(cycle)
    finally:
        world.undo(mark)
        world.forget_kept()
        world.settle()


def _plan(cycle: Cycle) -> Plan:
    world = cycle.world
    cycle.reserving.lift_all()
    changed = world.changed()
    cycle.decisions = net(cycle, {key[0] for key in changed})
    outcome = Deriver(cycle).run(changed)
    return Plan(
        tuple(cycle.decisions),
        tuple(outcome.rows.values()),
        tuple(outcome.starts),
        tuple(outcome.stops),
        tuple(outcome.resizes),
        verdicts(cycle, outcome),
        cycle.wake,
        cycle.churn.rows(cycle.decisions),
        tuple(cycle.standings()),
        tuple(protections(world)),
    )


def net(cycle: Cycle, changed: set[str]) -> list[Decision]:
    """The decisions for history: those of workloads for which they came to nothing are left out.

    So is what a workload that had nothing before was given and lost again; unless something was taken from
    others in between, whose reasons count what it held then.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, decision in enumerate(cycle.decisions):
        wid = decision.workload
        first.setdefault(wid, at)
        if wid not in changed or (decision.verb is Verb.EVICT and fresh(cycle.world, wid)):
            last[wid] = at
    taken = [
        (at, d)
        for at, d in enumerate(cycle.decisions)
        if d.gpu_after < d.gpu_before and d.workload in changed
    ]
    idle = {
        wid
        for wid, end in last.items()
        if not any(first[wid] < at < end and d.workload != wid for at, d in taken)
    }
    return [d for at, d in enumerate(cycle.decisions) if d.workload not in idle or at > last[d.workload]]
