"""The allocator: finds places and claims them. What places for real is also what tries things out."""

from collections.abc import Sequence
from dataclasses import replace

from pliant.model.machine import NodePool, Placement, Share
from pliant.model.workload import Request, TaskGroup
from pliant.sched import fraction, score, topology
from pliant.sched.machines import Device, NodeClass, NodeState
from pliant.sched.portions import Chunk, Part, whole
from pliant.sched.subgroups import Level, constrained, tree
from pliant.sched.world import World


def fits(node: NodeState, request: Request) -> bool:
    """True if the node has this much unclaimed."""
    if (request.cpu and request.cpu > node.free_cpu) or (
        request.memory and request.memory > node.free_memory
    ):
        return False
    if whole(request):
        return request.devices <= node.free
    return not request.devices or fraction.shared_devices(node, request) is not None


def fits_now(node: NodeState, request: Request) -> bool:
    """True if the node has this much neither claimed nor carried. Only for requests that fit."""
    row = node.row
    if (request.cpu and request.cpu > row.cpu - node.held_cpu) or (
        request.memory and request.memory > row.memory - node.held_memory
    ):
        return False
    if whole(request):
        return request.devices <= node.idle
    found = fraction.shared_devices(node, request)
    return found is not None and all(d.room_now(s.portion, s.memory) for d, s in found)


def seat(node: NodeState, request: Request) -> Placement:
    """The placement of a request on a node on which it fits."""
    if whole(request):
        devices = fraction.whole_devices(node, request.devices) or []
        pairs = [(device, fraction.share_on(device.gpu, request)) for device in devices]
    else:
        pairs = (fraction.shared_devices(node, request) if request.devices else None) or []
    return Placement(node.row.name, in_order(pairs), request.cpu, request.memory)


def in_order(pairs: list[tuple[Device, Share]]) -> tuple[Share, ...]:
    return tuple(share for _, share in sorted(pairs, key=lambda pair: pair[0].gpu.index))


def find(cls: NodeClass, request: Request, pool: NodePool, most: int = 0) -> NodeState | None:
    """The best node with so much unclaimed; one that could start it now before one where it must wait."""
    if whole(request):
        tiers = score.by_free_devices(cls, request.devices, most, pool.gpu_strategy)
    elif request.devices:
        tiers = score.for_fraction(cls, pool.gpu_strategy)
    else:
        tiers = score.for_cores(cls, request, pool.cpu_strategy)
    waits = whole(request) and max(cls.idle, default=0) < request.devices  # nowhere can it start now
    for nodes in tiers:
        later = None
        for node in nodes:
            if fits(node, request):
                if waits or fits_now(node, request):
                    return node
                later = later or node
        if later is not None:
            return later
    return None


def extended(node: NodeState, claim: Placement, request: Request) -> Placement | None:
    """The claim with so many devices of its node more; None if they are not free."""
    devices = fraction.whole_devices(node, request.devices) if node.open else None
    if devices is None:
        return None
    uuids = {share.gpu for share in claim.shares}
    mine = [(device, share) for share in claim.shares if (device := node.devices.get(share.gpu)) is not None]
    more = [
        (device, fraction.share_on(device.gpu, request)) for device in devices if device.gpu.uuid not in uuids
    ]
    return replace(claim, shares=in_order(mine + more))


def place_part(world: World, cls: NodeClass, part: Part, pool: NodePool) -> bool:
    """Claim a place for one task; False, and nothing changed, if there is none."""
    if part.extends:
        claim = world.claim_of(part.task)
        node = world.nodes.get(claim.node) if claim is not None else None
        more = extended(node, claim, part.request) if node is not None and claim is not None else None
        if more is None:
            return False
        world.claim(part.task, more)
        return True
    node = find(cls, part.request, pool, part.most)
    if node is None:
        return False
    world.claim(part.task, seat(node, part.request))
    return True


def relocate(world: World, cls: NodeClass, part: Part, pool: NodePool, group: TaskGroup) -> bool:
    """Give a task its next portion on another node, if it can start there now; False if there is none."""
    claim = world.claim_of(part.task)
    if claim is None:
        return False
    request = replace(group.request, devices=len(claim.shares) + part.request.devices)
    node = find(cls, request, pool, group.request.devices)
    if node is None or node.row.name == claim.node or not fits_now(node, request):
        return False
    world.claim(part.task, seat(node, request))
    return True


def by_size(parts: Sequence[Part]) -> list[Part]:
    """Large before small, otherwise in their own order: large ones have fewer places to go."""
    return sorted(
        parts, key=lambda part: (-part.request.devices * part.request.portion, -part.request.gpu_memory)
    )


def place(world: World, cls: NodeClass, chunk: Chunk, pool: NodePool) -> bool:
    """Claim places for all of a chunk; False, and nothing changed, if one of them has none."""
    mark = world.checkpoint()
    if constrained(chunk.workload):
        done = _place_branch(world, topology.NodeSet(cls), tree(chunk.workload), chunk.parts, pool)
    else:
        done = all(place_part(world, cls, part, pool) for part in by_size(chunk.parts))
    if not done:
        world.undo(mark)
    return done


def place_again(world: World, cls: NodeClass, part: Part, pool: NodePool) -> bool:
    """Claim a place for a task that lost its own, as close to the rest of its workload as it must be."""
    workload = world.workloads[part.task[0]]
    if not constrained(workload):
        return place_part(world, cls, part, pool)
    return _place_branch(world, topology.NodeSet(cls), tree(workload), (part,), pool)


def _place_branch(
    world: World, where: topology.NodeSet, branch: Level | TaskGroup, parts: Sequence[Part], pool: NodePool
) -> bool:
    """Place what belongs to one part of a workload's tree, in the first node set that takes all of it.

    On failure some of it may be placed: the caller undoes.
    """
    mine = topology.parts_of(world, branch, parts)
    if not mine:
        return True
    if branch.within is None or all(part.extends for part in mine):
        return _place_inside(world, where, branch, mine, pool)
    for nodes in topology.node_sets(world, where.nodes, branch.within, branch, mine):
        mark = world.checkpoint()
        if _place_inside(world, nodes, branch, mine, pool):
            return True
        world.undo(mark)
    return False


def _place_inside(
    world: World, where: topology.NodeSet, branch: Level | TaskGroup, parts: Sequence[Part], pool: NodePool
) -> bool:
    rest = list(parts)
    for child in branch.children if isinstance(branch, Level) else ():
        if topology.branch_within(child):
            if not _place_branch(world, where, child, parts, pool):
                return False
            placed = topology.parts_of(world, child, parts)
            rest = [part for part in rest if part not in placed]
    tries = where.tries()
    return all(any(place_part(world, cls, part, pool) for cls in tries) for part in by_size(rest))
