"""Tries changes of a waiting workload, its quotas or the machines with which it would start."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pliant.model.affinity import Taint
from pliant.model.quantity import GPU
from pliant.model.reason import Cure
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Request, Workload
from pliant.sched.explain.changes import machine, raised, sizes, with_group
from pliant.sched.explain.remedies import Remedy, cures, sized
from pliant.sched.explain.remedy_search import Search
from pliant.sched.explain.trial import Change
from pliant.sched.placement import eligibility
from pliant.sched.shares.entitlement import quota_of
from pliant.sched.shares.naming import queue_named
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
        search.add(Remedy(Cure("elastic"), change))


def tasks(search: Search, row: Workload, chunk: Chunk) -> None:
    """A smaller core: a smaller minimum of the group with the largest one."""
    at = max(range(len(row.groups)), key=lambda i: row.groups[i].min)
    group = row.groups[at]
    if group.min < 2 or chunk.step:
        return

    def fewer(count: int) -> Change:
        return Change((with_group(row, at, replace(group, min=group.min - count)),))

    count = search.least(group.min - 1, fewer)
    if count:
        search.add(Remedy(Cure("tasks", count, before=group.min), **sized(fewer, count)))


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
            search.add(Remedy(Cure("request", count * unit, unit, have, resource), **sized(less, count)))
            return


def _size(row: Workload, at: int) -> tuple[int, int]:
    asked = row.groups[at].request
    return asked.devices, asked.cpu


def placement(search: Search, row: Workload, chunk: Chunk) -> None:
    choices = [(Cure("node-type", where=row.node_type), replace(row, node_type=""))] if row.node_type else []
    if row.pools:
        choices.append((Cure("node-pool", where=", ".join(row.pools)), replace(row, pools=())))
    if row.affinity is not None:
        choices.append((Cure("node-affinity"), replace(row, affinity=None)))
    if row.within is not None or any(group.within for group in row.groups):
        groups = tuple(replace(group, within=None) for group in row.groups)
        choices.append((Cure("topology"), replace(row, within=None, groups=groups)))
    for cure, other in choices:
        if search.works(Change((other,))):
            search.add(Remedy(cure, Change((other,))))
            return


def preemptible(search: Search, row: Workload, chunk: Chunk | None = None) -> None:
    change = Change((replace(row, preemptible=True, semi_preemptible=False),))
    if not row.preemptible and search.works(change):
        search.add(Remedy(Cure("preemptible"), change))


def fair_share(search: Search, row: Workload, chunk: Chunk) -> None:
    """A larger quota of its project; if that is not enough, of the departments above, too."""
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
            whom = tuple(queue_named(queue) for queue in queues)
            cure = Cure("fair-share", count * unit, unit, due, "gpu", pool, whom=whom)
            search.add(Remedy(cure, **sized(change, count)))
            return


def priority(search: Search, row: Workload, chunk: Chunk) -> None:
    """A higher priority, at most one above the others of its project."""
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
        search.add(Remedy(Cure("priority", count, before=row.priority), **sized(higher, count)))


def reopened(search: Search, row: Workload, chunk: Chunk) -> None:
    """A node takes work again."""
    shut = [node.row for node in search.world.nodes.values() if not node.open]
    for node in sorted(shut, key=lambda node: (not node.ready, node.name))[:4]:
        change = Change((replace(node, ready=True, draining=False),))
        if search.works(change):
            search.add(Remedy(Cure("uncordon" if node.ready else "node-ready", where=node.name), change))
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
            taints = tuple(node_affinity.text_of(taint) for taint in gone)
            back = [replace(clean, taints=(*clean.taints, taint)) for taint in gone] if gone[1:] else []
            less = tuple(Change((node,)) for node in back)
            search.add(Remedy(Cure("taint", where=clean.name, taints=taints), Change((clean,)), less))
            return


def machines(search: Search, row: Workload, chunk: Chunk) -> None:
    """One more node, as small as possible."""
    asked = max(-(-chunk.resources.gpu // GPU), sum(part.request.devices for part in chunk.parts), 1)
    for pool in eligibility.choices(search.world, row):

        def more(count: int, pool: str = pool) -> Change:
            return Change((machine(search.world, row, chunk, pool, count),))

        count = search.least(max(16, 2 * asked), more, asked)
        if count:
            cure = Cure("machines", count * GPU, GPU, where=pool, needs=_beyond(search, chunk))
            search.add(Remedy(cure, **sized(more, count)))
            return


def _beyond(search: Search, chunk: Chunk) -> tuple[tuple[str, int], ...]:
    """(resource, amount) that a task asks for and no node has today."""
    nodes = [state.row for state in search.world.nodes.values()]
    found = []
    card = max((part.request.gpu_memory for part in chunk.parts), default=0)
    if card > max((gpu.memory for node in nodes for gpu in node.gpus), default=card):
        found.append(("GPU memory", card))
    for resource in ("cpu", "memory"):
        asked = max((getattr(part.request, resource) for part in chunk.parts), default=0)
        if asked > max((getattr(node, resource) for node in nodes), default=asked):
            found.append((resource, asked))
    return tuple(found)


Offer = Callable[[Search, Workload, Chunk], None]

OFFERS: Mapping[str, Offer] = {
    "node-type": placement,
    "elastic": elastic,
    "tasks": tasks,
    "request": request,
    "fair-share": fair_share,
    "priority": priority,
    "preemptible": preemptible,
    "uncordon": reopened,
    "taint": untainted,
    "machines": machines,
}
"""By kind of cure, in the order in which they are tried: first what the owner of the job can do alone."""

DEEP = ("node-type", "priority", "fair-share", "machines", *OFFERS)
"""The order for a workload far back in the queue: first what brings it before the others."""


def fitting(code: str, deep: bool) -> list[Offer]:
    """The offers whose cures fit a reason."""
    kinds = cures(code)
    return [OFFERS[kind] for kind in dict.fromkeys(DEEP if deep else OFFERS) if kind in kinds]
