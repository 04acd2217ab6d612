"""What each queue deserves of a pool, and its fair share of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pliant.model.machine import DEFAULT_POOL
from pliant.model.quantity import Resources
from pliant.model.tenancy import Department, Project, Queue
from pliant.sched.placement import eligibility
from pliant.sched.placement.fraction import estimate
from pliant.sched.shares.fair_share import ALL, INFINITE, Member, Standing, bound, share_out
from pliant.sched.world.queue_tree import NOTHING, department_key, parent_of

if TYPE_CHECKING:
    from pliant.sched.world.state import World


def queue_of(world: "World", key: str) -> Queue:
    """The row behind a key of the queue tree."""
    if key in world.projects:
        return world.projects[key]
    return world.departments[key.removeprefix(department_key(""))]


def level_of(world: "World", key: str) -> Literal["project", "department"]:
    return "project" if key in world.projects else "department"


def deserved(world: "World", key: str, pool: str = DEFAULT_POOL) -> Resources:
    """The quota of a project or department in a pool, derived ones worked out; INFINITE for unlimited."""
    queue = queue_of(world, key)
    quota = queue.quota(pool)
    if isinstance(queue, Department) and queue.derived:
        return Resources(world.capacity.get(pool, NOTHING).gpu, INFINITE, INFINITE)
    if isinstance(queue, Project) and queue.derived:
        return Resources(_left_over(world, queue, pool), INFINITE, INFINITE)
    return Resources(bound(quota.gpu), bound(quota.cpu), bound(quota.memory))


def _left_over(world: "World", project: Project, pool: str) -> int:
    """What the other projects leave of the department's quota, shared by those without one of their own."""
    whole = world.capacity.get(pool, NOTHING).gpu
    if project.department in world.departments:
        whole = deserved(world, department_key(project.department), pool).gpu
    if whole >= INFINITE:
        return INFINITE
    siblings = [p for p in world.projects.values() if p.department == project.department]
    taken = sum(bound(p.quota(pool).gpu) for p in siblings if not p.derived)
    taken += sum(
        bound(d.quota(pool).gpu) for d in world.departments.values() if d.parent == project.department != ""
    )
    free = max(0, whole - taken) // sum(1 for p in siblings if p.derived)
    return max(free, world.use(project.id, pool).non_preemptible.gpu)


def children(world: "World") -> dict[str | None, list[str]]:
    """Keys of the queues right below each department (by id), or below None at the top."""
    below: dict[str | None, list[str]] = {}
    for pid, project in sorted(world.projects.items()):
        department = project.department if project.department in world.departments else None
        below.setdefault(department, []).append(pid)
    for did in sorted(world.departments):
        below.setdefault(parent_of(world.departments, did), []).append(department_key(did))
    return below


def standings(
    world: "World", pool: str, pending: Mapping[str, Resources], past_use: int = 0, lend: bool = False
) -> Mapping[str, Standing]:
    """Fair shares in a pool, by key; `pending` is what each project's workloads still ask for there.

    `past_use` is the setting of that name, `lend` as in divide().
    """
    below = children(world)

    def member(key: str) -> Member:
        if key in world.projects:
            return _member(world, key, pool, world.claimed(key, pool).plus(pending.get(key, NOTHING)))
        children = tuple(member(child) for child in below.get(queue_of(world, key).id, ()))
        wants = NOTHING
        for child in children:
            wants = wants.plus(Resources(*map(min, child.limit, child.wants)))
        return _member(world, key, pool, wants, children)

    total = world.capacity.get(pool, NOTHING)
    return share_out(total, [member(key) for key in below.get(None, ())], past_use, lend)


def _member(
    world: "World", key: str, pool: str, wants: Resources, children: tuple[Member, ...] = ()
) -> Member:
    queue = queue_of(world, key)
    quota = queue.quota(pool)
    limit = Resources(bound(quota.gpu_limit), bound(quota.cpu_limit), bound(quota.memory_limit))
    if children:
        past = sum(child.past for child in children)
    else:
        row = world.past_uses.get((key, pool))
        past = row.used * ALL // row.capacity if row is not None and row.capacity > 0 else 0
    return Member(
        key, deserved(world, key, pool), limit, quota.weight, quota.rank, queue.created, wants, children, past
    )


def pending(world: "World", first: bool = False, now: int | None = None) -> dict[str, dict[str, Resources]]:
    """What wanting workloads still ask for: pool -> project -> amount; GPU memory on the smallest device.

    A workload counts in every pool that it may use (or only in the first), except where it could never fit,
    so that nobody loses GPUs to it; with `now` (ms) also not while it is in back-off. The world must be
    settled.
    """
    found: dict[str, dict[str, Resources]] = {}
    for alike in world.kinds.values():
        wid, chunk = next(iter(alike.items()))
        workload, need = world.workloads[wid], world.need(wid)
        if workload.project not in world.projects:
            continue
        if now is not None and any((world.tasks[part.task].retry_at or 0) > now for part in chunk.parts):
            continue
        pools = eligibility.choices(world, workload)
        for pool in pools[:1] if first else pools:
            cls = eligibility.nodes_for(world, workload, pool)
            if eligibility.never_fits(world, chunk, cls):
                continue
            lacks = need.lacks.times(len(alike))
            for request, count in need.lacks_memory:
                lacks = lacks.plus(Resources(estimate(request, cls.smallest_device) * count * len(alike)))
            sums = found.setdefault(pool, {})
            sums[workload.project] = sums.get(workload.project, NOTHING).plus(lacks)
    return found


def fair_shares(world: "World", pool: str, past_use: int = 0) -> dict[str, int]:
    """Milli-GPUs of a pool that each department and project may have now, by id."""
    world.settle()
    standing = standings(world, pool, pending(world).get(pool, {}), past_use)
    found = {did: standing[department_key(did)].fair.gpu for did in sorted(world.departments)}
    return {**found, **{pid: standing[pid].fair.gpu for pid in sorted(world.projects)}}
