"""Stale: evicts what is left of a gang that has been below its minimum for too long."""

from pliant.model.reason import StaleGang
from pliant.model.workload import Phase
from pliant.sched.actions.context import Cycle
from pliant.sched.plan import Decision, Verb
from pliant.sched.world.membership import BROKEN
from pliant.sched.world.subgroups import core_size


def stale(cycle: Cycle) -> None:
    """A gang counts as broken since its phase became Degraded."""
    world = cycle.world
    for wid in sorted(world.now_in(BROKEN)):
        workload = world.workloads[wid]
        grace = cycle.settings.stale_grace if workload.stale_grace is None else workload.stale_grace
        if workload.phase is not Phase.DEGRADED or grace < 0:
            continue
        if workload.phase_since + grace > cycle.now:
            cycle.wake_at(workload.phase_since + grace)
            continue
        held = [key for key in world.keys_of(wid) if world.claim_of(key) is not None]
        before = world.gpu_of(wid)
        for key in held:
            world.claim(key, None)
        reason = StaleGang(workload.phase_since, len(held), core_size(workload))
        cycle.record(Decision(Verb.EVICT, "stale", wid, tuple(key[1] for key in held), before, 0, reason))
        cycle.room_freed()
