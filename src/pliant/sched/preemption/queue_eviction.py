"""Queue eviction: what queues must give up first because the chunk would exceed one of their limits."""

from operator import itemgetter

from pliant.sched.preemption.attempt import Attempt, Cost, Effort, Unit
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.world.chunks import Step


def relieved(policy: Policy, prices: PriceCache, effort: Effort, attempt: Attempt) -> bool:
    """Take all that the attempt begins with, then from queues until the chunk exceeds none of their limits.

    What a workload can lose is calculated once, and again only after it or its queue lost something.
    """
    world, mode = policy.world, attempt.mode
    while mode.first and world.gpu_of(mode.first):
        unit = _least(policy, attempt, mode.first, "gpu")
        if unit is None or not effort.spend(1):
            return False
        attempt.take(unit)
    known: dict[str, tuple[object, Unit | None, Cost]] = {}  # by workload: asked what, answer, cost
    while limit := (
        policy.shares.refuse(policy.chunk, policy.pool, policy.adding)
        or (policy.lacking() if mode.own_bound else None)
    ):
        if limit.quota:
            return False
        lacks = limit.used + limit.asked - limit.allowed
        found: list[tuple[tuple[bool, bool, int, Cost], Unit]] = []
        for project in sorted(world.holders):
            asked = policy.state(attempt, project), limit.resource
            for wid in sorted(world.holders[project]) if limit.key in world.path(project) else ():
                if wid not in known or known[wid][0] != asked:
                    least = _least(policy, attempt, wid, limit.resource)
                    known[wid] = asked, least, prices.of([] if least is None else [least])
                _, least, cost = known[wid]
                if least is not None:
                    # One that suffices alone; else portions before cores, the largest first.
                    enough = limit.resource != "gpu" or least.gpu >= lacks
                    core, size = not enough and least.step is Step.CORE, 0 if enough else -least.gpu
                    found.append(((not enough, core, size, cost), least))
        if not found or not effort.spend(1):
            return False
        unit = min(found, key=itemgetter(0))[1]
        attempt.take(unit)
        del known[unit.workload]
    return True


def _least(policy: Policy, attempt: Attempt, wid: str, resource: str) -> Unit | None:
    """The least of a resource (gpu, cpu, memory) that this workload can lose in this pool."""
    world, found = policy.world, []
    for key in reversed(world.keys_of(wid)):
        claim = world.claim_of(key)
        if claim is None or world.pool_of(claim.node) != policy.pool:
            continue
        if getattr(claim.resources, resource):
            unit = policy.unit(attempt, key, claim.shares[-1].gpu if claim.shares else None)
            if unit is not None and unit.again is None:
                found.append(unit)
    return max(found, key=lambda unit: unit.step, default=None)
