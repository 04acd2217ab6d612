"""What a waiting workload itself, its quotas or the machines could be like, so that it would start."""

from collections.abc import Callable
from dataclasses import replace

from pliant.model.affinity import Taint
from pliant.model.quantity import GPU
from pliant.model.reason.base import amount
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Request, Workload
from pliant.sched.explain.changes import machine, raised, sizes, with_group
from pliant.sched.explain.remedies import Named, Remedy, named, sized
from pliant.sched.explain.remedy_search import Search
from pliant.sched.explain.trial import Change
from pliant.sched.placement import eligibility
from pliant.sched.shares.entitlement import quota_of
from pliant.sched.world import node_affinity
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.portions import whole


def elastic(search: Search, row: Workload, chunk: Chunk) -> None:
    group = row.groups[0]
    if len(row.groups) > 1 or group.max > 1 or group.elastic or not whole(group.request):
        return
    if group.request.devices < 2 or chunk.extends:
        return
    change = Change((replace(row, groups=(replace(group, elastic=True),)),))
    if search.works(change):
        search.add(Remedy("elastic", change=change))


def tasks(search: Search, row: Workload, chunk: Chunk) -> None:
    """A smaller core: the group with the most tasks without which it does not run."""
    at = max(range(len(row.groups)), key=lambda i: row.groups[i].min)
    group = row.groups[at]
    if group.min < 2 or chunk.step:
        return

    def fewer(count: int) -> Change:
        return Change((with_group(row, at, replace(group, min=group.min - count)),))

    count = search.least(group.min - 1, fewer)
    if count:
        search.add(Remedy("tasks", count, before=group.min, **sized(fewer, count)))


def request(search: Search, row: Workload, chunk: Chunk) -> None:
    """Smaller tasks, of the group that asks for most."""
    if chunk.extends or any(search.world.claim_of(key) for key in search.world.keys_of(row.id)):
        return
    at = max(range(len(row.groups)), key=lambda i: _size(row, i))
    group = row.groups[at]
    for resource, have, unit, smaller in sizes(group.request):
        if search.done:
            return

        def less(count: int, make: Callable[[int], Request] = smaller, unit: int = unit) -> Change:
            return Change((with_group(row, at, replace(group, request=make(count * unit))),))

        count = search.least((have - 1) // unit, less)
        if count:
            search.add(Remedy("request", count * unit, unit, have, resource, **sized(less, count)))
            return


def _size(row: Workload, at: int) -> tuple[int, int]:
    asked = row.groups[at].request
    return asked.devices, asked.cpu


def placement(search: Search, row: Workload, chunk: Chunk) -> None:
    choices = [(f"node type {row.node_type}", replace(row, node_type=""))] if row.node_type else []
    if row.pools:
        choices.append((f"node pool {', '.join(row.pools)}", replace(row, pools=())))
    if row.affinity is not None:
        choices.append(("the labels of nodes that it names", replace(row, affinity=None)))
    if row.within is not None or any(group.within for group in row.groups):
        groups = tuple(replace(group, within=None) for group in row.groups)
        choices.append(("lying close together", replace(row, within=None, groups=groups)))
    for what, other in choices:
        if search.works(Change((other,))):
            search.add(Remedy("placement", where=what, change=Change((other,))))
            return


def preemptible(search: Search, row: Workload, chunk: Chunk | None = None) -> None:
    change = Change((replace(row, preemptible=True),))
    if not row.preemptible and search.works(change):
        search.add(Remedy("preemptible", change=change))


def quota(search: Search, row: Workload, chunk: Chunk) -> None:
    """Of its project; with it of the departments above, where they have too little for that."""
    world = search.world
    adding = chunk.resources.gpu or GPU
    unit = search.unit("gpu")
    for pool in eligibility.choices(world, row):
        used = world.use(row.project, pool).claimed.gpu
        due = quota_of(world, row.project, pool).gpu
        if due < 0:
            continue
        guess = max(1, -(-(used + adding - due) // unit))
        queues: list[Project | Department] = [world.projects[row.project]]
        change = raised(world, queues, pool, "quota", "gpu", unit)
        count = search.least(max(guess, 16 * GPU // unit), change, guess)
        for key in world.path(row.project)[1:] if not count else ():
            above = world.queue_of(key)
            if (
                isinstance(above, Department)
                and not above.derived
                and quota_of(world, above.id, pool).gpu >= 0
            ):
                queues.append(above)
        if not count and len(queues) > 1:
            change = raised(world, queues, pool, "quota", "gpu", unit)
            count = search.least(max(guess, 16 * GPU // unit), change, guess)
        if count:
            whom = tuple(named(queue) for queue in queues)
            search.add(Remedy("quota", count * unit, unit, due, "gpu", pool, whom, **sized(change, count)))
            return


def priority(search: Search, row: Workload, chunk: Chunk) -> None:
    """Above the others of its project, as far as that helps."""
    others = (other.priority for other in search.world.workloads.values() if other.project == row.project)
    highest = max(others, default=0)

    def higher(count: int) -> Change:
        groups = tuple(
            group if group.priority is None else replace(group, priority=group.priority + count)
            for group in row.groups
        )
        return Change((replace(row, priority=row.priority + count, groups=groups),))

    count = search.least(max(1, highest + 1 - row.priority), higher)
    if count:
        search.add(Remedy("priority", count, before=row.priority, **sized(higher, count)))


def reopened(search: Search, row: Workload, chunk: Chunk) -> None:
    """A node takes work again."""
    shut = [node.row for node in search.world.nodes.values() if not node.open]
    for node in sorted(shut, key=lambda node: (not node.ready, node.name))[:4]:
        change = Change((replace(node, ready=True, draining=False),))
        if search.works(change):
            search.add(Remedy("open", where=node.name, change=change))
            return


def untainted(search: Search, row: Workload, chunk: Chunk) -> None:
    """A node loses the taints that keep it away."""
    wheres = eligibility.wheres_of(search.world, row)
    tried = 0
    for state in sorted(search.world.nodes.values(), key=lambda state: state.row.name):
        clean = state.row
        gone: list[Taint] = []
        for where in wheres:
            while (taint := node_affinity.blocking(where.tolerations, clean)) is not None:
                gone.append(taint)
                clean = replace(clean, taints=tuple(other for other in clean.taints if other != taint))
        if not gone or not state.open or tried == 4:
            continue
        tried += 1
        if search.works(Change((clean,))):
            whom = tuple(Named(node_affinity.text_of(taint)) for taint in gone)
            back = [replace(clean, taints=(*clean.taints, taint)) for taint in gone] if gone[1:] else []
            less = tuple(Change((node,)) for node in back)
            search.add(Remedy("taint", where=clean.name, whom=whom, change=Change((clean,)), less=less))
            return


def machines(search: Search, row: Workload, chunk: Chunk) -> None:
    """One node more, as small as it can be."""
    asked = max(-(-chunk.resources.gpu // GPU), sum(part.request.devices for part in chunk.parts), 1)
    for pool in eligibility.choices(search.world, row):

        def more(count: int, pool: str = pool) -> Change:
            return Change((machine(search.world, row, chunk, pool, count),))

        count = search.least(max(16, 2 * asked), more, asked)
        if count:
            beyond = _beyond(search, chunk)
            search.add(Remedy("machines", count * GPU, GPU, where=pool, whom=beyond, **sized(more, count)))
            return


def _beyond(search: Search, chunk: Chunk) -> tuple[Named, ...]:
    """What a task asks for that no node has today, so that a node like them would not do."""
    nodes = [state.row for state in search.world.nodes.values()]
    found = []
    card = max((part.request.gpu_memory for part in chunk.parts), default=0)
    if card > max((gpu.memory for node in nodes for gpu in node.gpus), default=card):
        found.append(f"{amount('memory', card)} on each")
    for resource in ("cpu", "memory"):
        asked = max((getattr(part.request, resource) for part in chunk.parts), default=0)
        if asked > max((getattr(node, resource) for node in nodes), default=asked):
            found.append(amount(resource, asked))
    return tuple(map(Named, found))


OFFERS = (placement, elastic, tasks, request, quota, priority, preemptible, reopened, untainted, machines)
"""In the order in which they are looked at: first what the owner of the workload can do alone."""

DEEP = (placement, priority, quota, machines, elastic, tasks, request, preemptible, reopened, untainted)
"""The order for what stands far behind in the queue: what brings it before the others."""
