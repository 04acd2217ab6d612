"""For how long what was started is safe from others, and whose setting says so."""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from pliant.model.reason import Named
from pliant.model.tenancy import Quota
from pliant.sched.shares.naming import named_at
from pliant.sched.shares.standings import children, level_of, queue_of
from pliant.sched.world.queue_tree import ancestry, department_key
from pliant.sched.world.state import World

Level = Literal["pool", "project", "department"]


class Guarantee(NamedTuple):
    """A minimum runtime."""

    runtime: int  # ms from the start of the newest attempt; 0: none
    level: Level  # whose setting it is
    owner: Named | None  # that project or department; None: the pool


def of_pool(world: World, pool: str) -> Guarantee:
    """Where no queue says otherwise."""
    row = world.pools.get(pool)
    return Guarantee(row.min_runtime if row is not None else 0, "pool", None)


def from_reclaim(world: World, key: str, pool: str) -> Guarantee:
    """Against a sibling of the queue `key`: the nearest setting from that queue up, else the pool's."""
    return _nearest(world, key, pool, lambda quota: quota.reclaim_min_runtime)


def from_preemption(world: World, project: str, pool: str) -> Guarantee:
    """Against higher priorities of its own project."""
    return _nearest(world, project, pool, lambda quota: quota.preempt_min_runtime)


def _nearest(world: World, key: str, pool: str, setting: Callable[[Quota], int | None]) -> Guarantee:
    for at in _upwards(world, key):
        runtime = setting(queue_of(world, at).quota(pool))
        if runtime is not None:
            return Guarantee(runtime, level_of(world, at), named_at(world, at))
    return of_pool(world, pool)


def _upwards(world: World, key: str) -> tuple[str, ...]:
    """A queue and those above it, by key."""
    if key in world.projects:
        return world.path(key)
    return tuple(department_key(did) for did in ancestry(world.departments, queue_of(world, key).id))


class Protection(NamedTuple):
    """What protects the preemptible workloads of a project in a pool from eviction."""

    project: str  # id
    pool: str
    reclaim: Guarantee | None  # from any other project or department; None: there is none
    preemption: Guarantee  # from higher priorities of its own project

    @property
    def least(self) -> Guarantee:
        """Within this no other workload may evict one of them."""
        return min(self.preemption, self.reclaim or self.preemption, key=lambda it: it.runtime)


def protections(world: World) -> Iterator[Protection]:
    """Of every project and pool where a minimum runtime is set."""
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
    levels = [used.intersection(keys) for keys in children(world).values()]
    beside = {key for keys in levels if len(keys) > 1 for key in keys}
    for pool in pools:
        for project in sorted(world.projects):
            attacked = [key for key in world.path(project) if key in beside]
            found = [from_reclaim(world, key, pool) for key in attacked]
            reclaim = min(found, key=lambda it: it.runtime, default=None)
            preemption = from_preemption(world, project, pool)
            if preemption.runtime or (reclaim is not None and reclaim.runtime):
                yield Protection(project, pool, reclaim, preemption)
