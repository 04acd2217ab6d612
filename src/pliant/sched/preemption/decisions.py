"""The decisions about victims, each with its reason."""

from collections.abc import Iterator, Mapping

from pliant.model.machine import Placement
from pliant.model.workload import TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.preemption.attempt import Attempt, Unit, before
from pliant.sched.preemption.policy import Policy
from pliant.sched.world.chunks import Step


def decisions(policy: Policy, attempt: Attempt) -> Iterator[Decision]:
    """One decision for each workload that has not all that it claimed before.

    They are in the order in which workloads lost their last unit: each is justified once those before
    it are gone.
    """
    now = policy.world.claim_of
    for wid, mine in attempt.losses().items():
        was = before(mine)
        gone = {it: (old, new) for it, old in was.items() if (new := now(it)) is None or new != old}
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
    verb = Verb.MOVE if moved else Verb.SHRINK
    if Step.CORE in steps and (victim.background or (chunk is not None and chunk.step is Step.CORE)):
        verb = Verb.EVICT
    if verb is Verb.MOVE and (lost <= 0 or Step.WANTED not in steps):
        reason = policy.moved([old.node for old, _ in gone.values()], [new.node for _, new in kept], lost)
    elif victim.background or all(unit.step is Step.BONUS for unit in mine):
        reason = policy.shrunk(lost, victim.background)
    else:
        reason = policy.reason(victim, lost, priority)
    names = tuple(key[1] for key in sorted(gone))
    winner = policy.chunk.workload.id
    return Decision(verb, policy.action, wid, names, gpu_after + lost, gpu_after, reason, winner)
