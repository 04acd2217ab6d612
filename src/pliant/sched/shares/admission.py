"""Whether a chunk may be admitted: limits, and quota for non-preemptible work, on every level of the tree."""

from collections.abc import Mapping
from dataclasses import dataclass

from pliant.model.quantity import Resources
from pliant.sched.shares.fair_share import INFINITE, Standing
from pliant.sched.world import device_share
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.claims import Claims
from pliant.sched.world.queue_tree import NOTHING

RESOURCES = Resources._fields
BOUNDLESS = Resources(INFINITE, INFINITE, INFINITE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which bound of which queue a chunk would break."""

    key: str
    resource: str  # gpu, cpu or memory
    used: int
    asked: int
    allowed: int
    quota: bool  # the quota for non-preemptible work, else the limit


def asked(chunk: Chunk, device_memory: int) -> Resources:
    """What a chunk adds to its queues, GPU memory counted on devices of this size."""
    total = NOTHING
    for part in chunk.parts:
        gpu = device_share.estimate(part.request, device_memory)
        total = total.plus(Resources(gpu, part.request.cpu, part.request.memory))
    return total


def exceeded(
    world: Claims,
    standing: Mapping[str, Standing],
    project: str,
    pool: str,
    request: Resources,
    preemptible: bool,
) -> bool:
    """True if some bound on the path to the root is passed now, in a resource that `request` asks for."""
    for key in world.path(project):
        mine = standing[key]
        if mine.limit != BOUNDLESS and _passed(request, world.claimed(key, pool), mine.limit):
            return True
        if not preemptible and _passed(request, world.use(key, pool).non_preemptible, mine.deserved):
            return True
    return False


def _passed(request: Resources, used: Resources, most: Resources) -> bool:
    """True if a requested resource is used beyond its bound."""
    return any(asked_ and have > bound for asked_, have, bound in zip(request, used, most, strict=True))


def refuse(
    world: Claims,
    standing: Mapping[str, Standing],
    project: str,
    pool: str,
    request: Resources,
    preemptible: bool,
) -> Refusal | None:
    """The first bound on the path to the root that `request` more would break; None if it may be admitted.

    A quota goes before a limit: evictions can bring a project below its limit, but make no room in its quota.
    """
    over: Refusal | None = None
    for key in world.path(project):
        mine = standing[key]
        if preemptible and mine.limit == BOUNDLESS:
            continue
        claimed, most = world.claimed(key, pool), mine.limit
        for at, adding in enumerate(request):
            if adding and claimed[at] + adding > most[at]:
                over = over or Refusal(key, RESOURCES[at], claimed[at], adding, most[at], False)
        if preemptible:
            if over is not None:
                return over
            continue
        fixed, due = world.use(key, pool).non_preemptible, mine.deserved
        for at, adding in enumerate(request):
            if adding and fixed[at] + adding > due[at]:
                return Refusal(key, RESOURCES[at], fixed[at], adding, due[at], True)
    return over
