"""Queue eviction: what queues must give up first because the chunk would exceed one of their limits."""

from pliant.sched.preemption.attempt import Attempt, Cost, Effort, Unit
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.shares.admission import Refusal
from pliant.sched.world.chunks import Step


def relieved(policy: Policy, prices: PriceCache, effort: Effort, attempt: Attempt) -> bool:
    """Take from the queues whose limits the chunk would exceed until it no longer does.

    What a workload can lose is calculated once, and again only after it or its queue lost something.
    """
    world = policy.world
    known: dict[str, tuple[tuple[bool, str], Unit | None, Cost]] = {}  # by workload: asked what, answer, cost
    below: dict[str, list[tuple[str, list[str]]]] = {}  # queue -> projects below it, holders there
    while (limit := _limit(policy, attempt)) is not None:
        if limit.quota:
            return False
        lacks = limit.used + limit.asked - limit.allowed
        best: tuple[tuple[bool, bool, int, Cost], Unit] | None = None
        if limit.key not in below:
            held = sorted(world.holders.items())
            below[limit.key] = [(it, sorted(wids)) for it, wids in held if limit.key in world.path(it)]
        for project, holders in below[limit.key]:
            asked = policy.gives(project), limit.resource
            for wid in holders:
                if wid not in known or known[wid][0] != asked:
                    least = _least(policy, attempt, wid, limit.resource)
                    known[wid] = asked, least, prices.of([] if least is None else [least])
                _, unit, cost = known[wid]
                if unit is not None:
                    # One that suffices alone; else portions before cores, the largest first.
                    enough = limit.resource != "gpu" or unit.gpu >= lacks
                    core, size = not enough and unit.step is Step.CORE, 0 if enough else -unit.gpu
                    found = (not enough, core, size, cost)
                    if best is None or found < best[0]:
                        best = (found, unit)
        if best is None or not effort.spend(1):
            return False
        attempt.take(best[1])
        attempt.units.append(best[1])
        del known[best[1].workload]
    return True


def _limit(policy: Policy, attempt: Attempt) -> Refusal | None:
    """The limit that the chunk would exceed now, or the policy's own bound if the attempt asks for it."""
    found = policy.shares.refuse(policy.chunk, policy.pool, policy.adding)
    return policy.lacking() if found is None and attempt.mode.own_bound else found


def _least(policy: Policy, attempt: Attempt, wid: str, resource: str) -> Unit | None:
    """The least of a resource (gpu, cpu, memory) that this workload can lose in this pool."""
    world, found = policy.world, []
    for key in reversed(world.keys_of(wid)):
        claim = world.claim_of(key)
        if (
            claim is None
            or world.pool_of(claim.node) != policy.pool
            or not getattr(claim.resources, resource)
        ):
            continue
        unit = policy.unit(attempt, key, claim.shares[-1].gpu if claim.shares else None)
        if unit is not None and unit.again is None:
            found.append(unit)
    return max(found, key=lambda unit: unit.step, default=None)
