"""The decisions about victims, each with its reason."""

from collections.abc import Iterator, Mapping

from pliant.model.machine import Placement
from pliant.model.workload import TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.preemption.attempt import Attempt, Unit
from pliant.sched.preemption.policy import Policy
from pliant.sched.world.chunks import Step


def decisions(policy: Policy, attempt: Attempt) -> Iterator[Decision]:
    """One decision for each workload that has not all that it claimed before.

    They are in the order in which workloads lost their last unit: each is justified once those before
    it are gone.
    """
    before, taken = attempt.before(), dict[str, list[Unit]]()
    for unit in attempt.units:
        mine = taken[unit.workload] = taken.pop(unit.workload, [])
        mine.append(unit)
    now = policy.world.claim_of
    for wid, mine in taken.items():
        gone = {it: (old, new) for it, old in before[wid].items() if (new := now(it)) is None or new != old}
        if gone:
            yield _decision(policy, wid, mine, gone)


def _decision(
    policy: Policy, wid: str, mine: list[Unit], gone: Mapping[TaskKey, tuple[Placement, Placement | None]]
) -> Decision:
    """The decision about a victim that lost these units; `gone`: what its tasks claimed and claim now."""
    world = policy.world
    victim, chunk, gpu_after = world.workloads[wid], world.need(wid).chunk, world.gpu_of(wid)
    kept = [(old, new) for old, new in gone.values() if new is not None]
    lost = sum([old.gpu for old, _ in gone.values()]) - sum([new.gpu for _, new in kept])
    steps = {unit.step for unit in mine if unit.again is None}
    priority = max([unit.priority for unit in mine])
    moved = any(new.node != old.node or not set(new.uuids) <= set(old.uuids) for old, new in kept)
    if Step.CORE in steps and (victim.background or (chunk is not None and chunk.step is Step.CORE)):
        verb, reason = Verb.EVICT, policy.why(victim, lost, priority)
    elif moved and (lost <= 0 or Step.WANTED not in steps):
        places = [old.node for old, _ in gone.values()], [new.node for _, new in kept]
        verb, reason = Verb.MOVE, policy.moved(*places, lost)
    else:
        bonus = all(unit.step is Step.BONUS for unit in mine) and not victim.background
        verb = Verb.MOVE if moved else Verb.SHRINK
        reason = policy.shrunk(lost) if bonus else policy.why(victim, lost, priority)
    names = tuple(key[1] for key in sorted(gone))
    winner = policy.chunk.workload.id
    return Decision(verb, policy.action, wid, names, gpu_after + lost, gpu_after, reason, winner)
