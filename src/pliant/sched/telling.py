"""What a victim is told: the decision about it, with its reason."""

from pliant.model.machine import Placement
from pliant.sched.machines import TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.portions import Step
from pliant.sched.victims import Rules, Unit


def told(
    rules: Rules, wid: str, mine: list[Unit], claimed: dict[TaskKey, Placement | None]
) -> Decision | None:
    """The decision about a victim that lost these units; None if it has all that it claimed before."""
    world = rules.world
    victim = world.workloads[wid]
    before = {key: claim for key, claim in claimed.items() if claim != world.claim_of(key)}
    if not before:
        return None
    after = {key: world.claim_of(key) for key in before}
    gpu_after = world.gpu_of(wid)
    had = sum(claim.gpu for claim in before.values() if claim is not None)
    gpu_before = gpu_after + had - sum(claim.gpu for claim in after.values() if claim is not None)
    chunk = world.need(wid).chunk
    lost_core = any(unit.step is Step.CORE and unit.again is None for unit in mine)
    moved = any(
        new is not None and old is not None and (new.node != old.node or not set(new.uuids) <= set(old.uuids))
        for old, new in ((before[key], after[key]) for key in before)
    )
    lost = gpu_before - gpu_after
    priority = max(unit.priority for unit in mine)
    bonus = all(unit.step is Step.BONUS for unit in mine)
    if lost_core and chunk is not None and chunk.step is Step.CORE:
        verb, reason = Verb.EVICT, rules.reason(victim, lost, priority)
    elif moved:
        verb = Verb.MOVE
        places = [claim.node for claim in before.values() if claim is not None]
        targets = [claim.node for claim in after.values() if claim is not None]
        wanted = any(unit.step is Step.WANTED for unit in mine)
        reason = rules.reason(victim, lost, priority) if wanted else rules.moved(places, targets, lost)
    else:
        verb, reason = Verb.SHRINK, rules.shrunk(lost) if bonus else rules.reason(victim, lost, priority)
    names = tuple(key[1] for key in sorted(before))
    winner = rules.chunk.workload.id
    return Decision(verb, rules.action, wid, names, gpu_before, gpu_after, reason, winner)
