"""Domains: sets of nodes that are close to each other, in the order in which a workload tries them.

Levels of a topology are node labels, the widest first. A domain is the set of nodes with equal values on a
level and all above it. Its order and its room count only what is unclaimed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pliant.model.quantity import GPU
from pliant.model.topology import Topology, Within
from pliant.model.workload import Request, TaskGroup
from pliant.sched.world import device_share
from pliant.sched.world.chunks import Chunk, Part
from pliant.sched.world.node_classes import NodeClass, labels_of, spec_of
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import Level, constrained, groups_of, tree

Path = tuple[str, ...]
"""Values of the levels of a topology from the widest down: names a domain. Empty: all nodes."""

Amounts = tuple[int, int, int]
"""Milli-GPUs, millicores and bytes of memory."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """Nodes to try, and which of them first."""

    nodes: NodeClass
    favourites: tuple[NodeClass, ...] = ()  # its preferred domains, the first to fill first

    def tries(self) -> tuple[NodeClass, ...]:
        return (*self.favourites, self.nodes)


def branch_within(branch: Level | TaskGroup) -> bool:
    """True if it, or any part below it, has a topology constraint."""
    if branch.within is not None:
        return True
    return isinstance(branch, Level) and any(branch_within(child) for child in branch.children)


def parts_of(world: World, branch: Level | TaskGroup, parts: Sequence[Part]) -> list[Part]:
    """The parts whose tasks belong to this branch of the tree."""
    names = {group.name for group in groups_of(branch)}
    return [part for part in parts if world.tasks[part.task].group in names]


def split(
    world: World, branch: Level | TaskGroup, parts: Sequence[Part]
) -> tuple[list[Level | TaskGroup], list[Part]]:
    """(children of this part of the tree with topology constraints, the parts that belong to none)."""
    children = branch.children if isinstance(branch, Level) else ()
    bound = [child for child in children if branch_within(child)]
    near = {part.task for child in bound for part in parts_of(world, child, parts)}
    return bound, [part for part in parts if part.task not in near]


# ---------------------------------------------------------------- domains
def paths(world: World, cls: NodeClass, levels: tuple[str, ...]) -> Iterator[tuple[NodeState, Path]]:
    """The path of each node; it ends before the first label that the node lacks."""
    known = world.places.setdefault(levels, {})
    for name in cls.names:
        path = known.get(name)
        if path is None:
            labels = dict(cls.nodes[name].row.labels)
            path = known[name] = tuple(takewhile(bool, (labels.get(level, "") for level in levels)))
        yield cls.nodes[name], path


def domain(world: World, cls: NodeClass, levels: tuple[str, ...], path: Path) -> NodeClass:
    """The nodes of one domain among those of a class."""
    spec = spec_of(cls)
    labels = tuple(sorted({*spec.labels, *zip(levels, path, strict=False)}))
    return world.narrowed(cls, spec._replace(labels=labels))


def ordered(world: World, cls: NodeClass, levels: tuple[str, ...], asked: Amounts) -> list[Path]:
    """Domains of the narrowest level in the tree's order: of siblings the fullest first, ties by name."""
    free: dict[Path, list[int]] = {}
    for node, path in paths(world, cls, levels):
        for depth in range(1, len(path) + 1):
            sums = free.setdefault(path[:depth], [0, 0, 0])
            sums[0] += node.room
            sums[1] += node.free_cpu
            sums[2] += node.free_memory
    rank = {
        path: -max(_part(want, have) for want, have in zip(asked, sums, strict=True))
        for path, sums in free.items()
    }
    narrow = [path for path in free if len(path) == len(levels)]
    return sorted(
        narrow, key=lambda path: [(rank[path[:at]], path[at - 1]) for at in range(1, len(path) + 1)]
    )


def _part(want: int, have: int) -> int:
    """The requested part of what is free, times 2**32."""
    return (want << 32) // max(1, have) if want else 0


def amounts(parts: Sequence[Part], device_memory: int) -> Amounts:
    """The total request of the parts, GPU memory counted on devices of this size."""
    gpu = sum(device_share.estimate(part.request, device_memory) for part in parts)
    return gpu, sum(part.request.cpu for part in parts), sum(part.request.memory for part in parts)


def holds(cls: NodeClass, parts: Sequence[Part], empty: bool = False) -> int:
    """How many of the parts fit into a node set (`empty`: into the empty set), by counting alone.

    Equal requests are counted node by node. For different ones the answer is all if the sums fit, else 0.
    """
    requests = {part.request for part in parts}
    if len(requests) == 1:
        request, count = next(iter(requests)), 0
        for node in cls.nodes.values():
            count += room_for(node, request, empty)
            if count >= len(parts):
                break
        return min(count, len(parts))
    asked = amounts(parts, cls.largest[1])
    nodes = cls.nodes.values()
    have = (
        cls.usable * GPU if empty else cls.room,
        sum(node.row.cpu if empty else node.free_cpu for node in nodes),
        sum(node.row.memory if empty else node.free_memory for node in nodes),
    )
    fits = all(not want or want <= most for want, most in zip(asked, have, strict=True))
    return len(parts) if fits else 0


def room_for(node: NodeState, request: Request, empty: bool) -> int:
    """An upper bound of the tasks of one request that fit on a node; it may be too high for fractions."""
    bounds = []
    if request.cpu:
        bounds.append((node.row.cpu if empty else node.free_cpu) // request.cpu)
    if request.memory:
        bounds.append((node.row.memory if empty else node.free_memory) // request.memory)
    if request.devices:
        slots = 0
        for device in node.devices.values():
            share = device_share.share_on(device.gpu, request)
            if device.gpu.foreign or not share.portion or share.memory > device.gpu.memory:
                continue
            slots += (GPU if empty else max(0, GPU - device.claimed)) // share.portion
        bounds.append(slots // request.devices)
    return max(0, min(bounds, default=1 << 32))


# ---------------------------------------------------------------- what a workload may use
def topology_of(world: World, within: Within, pool: str) -> Topology | None:
    """The topology that the constraint names, else that of the pool; None if unknown."""
    row = world.pools.get(pool)
    return world.topologies.get(within.topology or (row.topology if row is not None else ""))


def fixed(
    world: World, levels: tuple[str, ...], branch: Level | TaskGroup, parts: Sequence[Part]
) -> Path | None:
    """The domain, on the last of these levels, of most other tasks of a branch; None if none is placed."""
    names = {group.name for group in groups_of(branch)}
    mine = {part.task for part in parts}
    found: dict[Path, int] = {}
    wid = parts[0].task[0]
    for key in world.keys_of(wid):
        claim = world.claim_of(key)
        if (
            claim is None
            or key in mine
            or world.tasks[key].group not in names
            or claim.node not in world.nodes
        ):
            continue
        row = world.nodes[claim.node].row
        path = tuple(row.label(level) or "" for level in levels)
        found[path] = found.get(path, 0) + 1
    return min(found, key=lambda path: (-found[path], path), default=None)


def bounds(
    world: World, cls: NodeClass, within: Within, branch: Level | TaskGroup, parts: Sequence[Part]
) -> list[NodeClass]:
    """Domains of the required level among these nodes, the fullest first; only its own if it has one."""
    topology = topology_of(world, within, cls.pool)
    if topology is None or within.required not in topology.levels:
        return []
    levels = topology.levels[: topology.levels.index(within.required) + 1]
    known = fixed(world, levels, branch, parts)
    if known is not None:
        return [domain(world, cls, levels, known)]
    return [
        domain(world, cls, levels, path)
        for path in ordered(world, cls, levels, amounts(parts, cls.largest[1]))
    ]


def node_sets(
    world: World, cls: NodeClass, within: Within, branch: Level | TaskGroup, parts: Sequence[Part]
) -> Iterator[NodeSet]:
    """What to try for these parts, best first: from the preferred level up to the required one, or all."""
    topology = topology_of(world, within, cls.pool)
    levels = topology.levels if topology is not None else ()
    if within.required:
        if within.required not in levels:
            return
        highest = levels.index(within.required) + 1
        known = fixed(world, levels[:highest], branch, parts)
        if known is not None:
            cls = domain(world, cls, levels, known)
    else:
        highest = 0
    deepest = max(highest, levels.index(within.preferred) + 1 if within.preferred in levels else 0)
    asked = amounts(parts, cls.largest[1])
    inner = ordered(world, cls, levels[:deepest], asked) if deepest else []
    for depth in range(deepest, highest - 1, -1):
        # A wider domain may have nodes without the deeper labels: these levels are ordered by themselves.
        tried = dict.fromkeys(path[:depth] for path in inner) if depth else {(): None}
        if depth and depth < deepest:
            tried = dict.fromkeys(ordered(world, cls, levels[:depth], asked))
        for path in tried:
            nodes = domain(world, cls, levels, path)
            if holds(nodes, parts) < len(parts):
                continue
            near = [one for one in inner if one[:depth] == path] if depth < deepest else []
            yield NodeSet(nodes, tuple(domain(world, cls, levels, one) for one in reversed(near)))


def never(world: World, chunk: Chunk, cls: NodeClass) -> bool:
    """True if some part of it must be in one domain, and no domain could hold it even when empty."""
    return constrained(chunk.workload) and _never(world, tree(chunk.workload), cls, chunk.parts)


def _never(world: World, branch: Level | TaskGroup, cls: NodeClass, parts: Sequence[Part]) -> bool:
    mine = parts_of(world, branch, parts)
    if not mine:
        return False
    if branch.within is not None and branch.within.required and not mine[0].extends:
        sets = bounds(world, cls, branch.within, branch, mine)
        if all(holds(nodes, mine, empty=True) < len(mine) for nodes in sets):
            return True
    return isinstance(branch, Level) and any(_never(world, child, cls, mine) for child in branch.children)


def tightest(world: World, chunk: Chunk, cls: NodeClass) -> tuple[str, int, str, int, int] | None:
    """(level, tasks, the best domain, tasks that fit there, domains) of a part that must be in one domain.

    It is the first part of the tree for which no domain has room, else the first such part; or None.
    """
    if not constrained(chunk.workload):
        return None
    found: list[tuple[str, int, str, int, int]] = []
    waiting: list[Level | TaskGroup] = [tree(chunk.workload)]
    while waiting:
        branch = waiting.pop(0)
        mine = parts_of(world, branch, chunk.parts)
        if not mine:
            continue
        if branch.within is not None and branch.within.required:
            sets = bounds(world, cls, branch.within, branch, mine)
            level = branch.within.required
            rooms = [(holds(nodes, mine), dict(labels_of(nodes)).get(level, "")) for nodes in sets]
            room, name = max(rooms, key=lambda entry: entry[0], default=(0, ""))
            found.append((level, len(mine), name, room, len(sets)))
        if isinstance(branch, Level):
            waiting += branch.children
    short = [entry for entry in found if entry[3] < entry[1]]
    return next(iter([*short, *found]), None)
