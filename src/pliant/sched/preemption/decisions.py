"""The decisions about victims, each with its reason."""

from collections.abc import Iterator

from pliant.model.machine import Placement
from pliant.model.workload import TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.preemption.attempt import Attempt, Unit
from pliant.sched.preemption.policy import Policy
from pliant.sched.world.chunks import Step


def decisions(policy: Policy, attempt: Attempt) -> Iterator[Decision]:
    """One decision for each workload that loses something.

    They are in the order in which workloads lost their last unit: each is justified once those before
    it are gone.
    """
    before, taken = attempt.before(), dict[str, list[Unit]]()
    for unit in attempt.units:
        mine = taken[unit.workload] = taken.pop(unit.workload, [])
        mine.append(unit)
    for wid, mine in taken.items():
        decision = _decision(policy, wid, mine, before[wid])
        if decision is not None:
            yield decision


def _decision(
    policy: Policy, wid: str, mine: list[Unit], claimed: dict[TaskKey, Placement]
) -> Decision | None:
    """The decision about a victim that lost these units; None if it has all that it claimed before."""
    world = policy.world
    victim = world.workloads[wid]
    if len(mine) == len(claimed) == 1 and mine[0].step is Step.CORE and mine[0].again is None:
        key, place = next(iter(claimed.items()))
        rest = world.need(wid)
        if not rest.holds and rest.chunk is not None and rest.chunk.step is Step.CORE:
            gpu, winner = place.gpu, policy.chunk.workload.id  # the most frequent case: it loses all it has
            reason = policy.why(victim, gpu, mine[0].priority)
            return Decision(Verb.EVICT, policy.action, wid, (key[1],), gpu, 0, reason, winner)
    before = {key: claim for key, claim in claimed.items() if claim != world.claim_of(key)}
    if not before:
        return None
    after = {key: world.claim_of(key) for key in before}
    gpu_after = world.gpu_of(wid)
    has = sum(claim.gpu for claim in after.values() if claim is not None)
    gpu_before = gpu_after - has + sum(claim.gpu for claim in before.values())
    chunk = world.need(wid).chunk
    lost_core = any(unit.step is Step.CORE and unit.again is None for unit in mine)
    moved = any(
        new is not None and (new.node != old.node or not set(new.uuids) <= set(old.uuids))
        for old, new in ((before[key], after[key]) for key in before)
    )
    lost = gpu_before - gpu_after
    priority = max(unit.priority for unit in mine)
    bonus = all(unit.step is Step.BONUS for unit in mine) and not victim.background
    if lost_core and (victim.background or (chunk is not None and chunk.step is Step.CORE)):
        verb, reason = Verb.EVICT, policy.why(victim, lost, priority)
    elif moved:
        verb = Verb.MOVE
        places = [claim.node for claim in before.values()]
        targets = [claim.node for claim in after.values() if claim is not None]
        wanted = lost > 0 and any(unit.step is Step.WANTED for unit in mine)
        reason = policy.reason(victim, lost, priority) if wanted else policy.moved(places, targets, lost)
    else:
        verb, reason = Verb.SHRINK, policy.shrunk(lost) if bonus else policy.why(victim, lost, priority)
    names = tuple(key[1] for key in sorted(before))
    winner = policy.chunk.workload.id
    return Decision(verb, policy.action, wid, names, gpu_before, gpu_after, reason, winner)
