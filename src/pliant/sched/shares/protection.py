"""How long started work is protected from others, and by whose setting."""

from collections.abc import Callable, Iterator

from pliant.model.tenancy import Quota
from pliant.sched.plan import Guarantee, Protection
from pliant.sched.shares.naming import named_at
from pliant.sched.world.queue_tree import ancestry, department_key
from pliant.sched.world.state import World


def of_pool(world: World, pool: str) -> Guarantee:
    """The guarantee of a pool, which holds where no queue has its own."""
    row = world.pools.get(pool)
    return Guarantee(row.min_runtime if row is not None else 0, "pool", None)


def from_reclaim(world: World, key: str, pool: str) -> Guarantee:
    """The guarantee against siblings of the queue `key`: the nearest setting from it up, else the pool's."""
    return _nearest(world, key, pool, lambda quota: quota.reclaim_min_runtime)


def from_preemption(world: World, project: str, pool: str) -> Guarantee:
    """The guarantee against higher priorities of its own project."""
    return _nearest(world, project, pool, lambda quota: quota.preempt_min_runtime)


def _nearest(world: World, key: str, pool: str, setting: Callable[[Quota], int | None]) -> Guarantee:
    for at in _upwards(world, key):
        runtime = setting(world.queue_of(at).quota(pool))
        if runtime is not None:
            return Guarantee(runtime, world.level_of(at), named_at(world, at))
    return of_pool(world, pool)


def _upwards(world: World, key: str) -> tuple[str, ...]:
    """A queue and those above it, by key."""
    if key in world.projects:
        return world.path(key)
    return tuple(department_key(did) for did in ancestry(world.departments, world.queue_of(key).id))


def protections(world: World) -> Iterator[Protection]:
    """The protections of every project and pool where a minimum runtime is set."""
    queues = (*world.projects.values(), *world.departments.values())
    own = any(
        it.reclaim_min_runtime is not None or it.preempt_min_runtime is not None
        for queue in queues
        for _, it in queue.quotas
    )
    pools = [name for name in sorted(world.pools) if own or world.pools[name].min_runtime]
    if not pools:
        return
    used = {key for project in world.projects for key in world.path(project)}
    levels = [used.intersection(keys) for keys in world.children().values()]
    beside = {key for keys in levels if len(keys) > 1 for key in keys}
    for pool in pools:
        for project in sorted(world.projects):
            attacked = [key for key in world.path(project) if key in beside]
            found = [from_reclaim(world, key, pool) for key in attacked]
            reclaim = min(found, key=lambda it: it.runtime, default=None)
            preemption = from_preemption(world, project, pool)
            if preemption.runtime or (reclaim is not None and reclaim.runtime):
                yield Protection(project, pool, reclaim, preemption)


def protected_until(world: World, workload: str, least: int, now: int) -> int:
    """When (ms) its present attempts have run for `least` ms; 0 if it has none."""
    begun = 0
    for row in world.tasks_of(workload):
        if row.phase.live or (row.attempt and row.claims is not None):
            # An attempt that has not started yet is protected for the full time.
            begun = max(begun, row.started if row.started is not None else now)
    return begun + least if begun else 0
