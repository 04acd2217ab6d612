"""The allocator: finds places and claims them, for real and in trials alike."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.model.machine import NodePool, Placement, Share, Strategy
from pliant.model.quantity import GPU
from pliant.model.workload import Request, TaskGroup, TaskKey
from pliant.sched.placement import eligibility, fraction, score, topology
from pliant.sched.placement.series import Series, chain_of
from pliant.sched.world import device_share
from pliant.sched.world.chunks import Chunk, Part
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import Device, NodeState
from pliant.sched.world.portions import whole
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import Level, constrained, tree


def fits(node: NodeState, request: Request) -> bool:
    """True if the node has this much unclaimed."""
    return _has_cores(node, request) and has_devices(node, request)


def has_devices(node: NodeState, request: Request) -> bool:
    """True if the devices of a request, or the parts of devices, are unclaimed on the node."""
    if whole(request):
        return request.devices <= node.free
    return not request.devices or fraction.shared_devices(node, request) is not None


def _has_cores(node: NodeState, request: Request) -> bool:
    """True if the cores, the memory and the task slot of a request are unclaimed on the node."""
    row = node.row
    if row.max_tasks is not None and node.claimants >= row.max_tasks:
        return False
    return not (
        (request.cpu and request.cpu > row.cpu - node.claimed_cpu)
        or (request.memory and request.memory > row.memory - node.claimed_memory)
    )


def fits_now(node: NodeState, request: Request) -> bool:
    """True if the node has this much neither claimed nor carried. Only for requests that fit."""
    if not _has_cores_now(node, request):
        return False
    if whole(request):
        return request.devices <= node.idle
    found = fraction.shared_devices(node, request)
    return found is not None and all(d.room_now(s) for d, s in found)


def _has_cores_now(node: NodeState, request: Request) -> bool:
    """True if the cores, the memory and the task slot of a request are neither claimed nor carried."""
    row = node.row
    if row.max_tasks is not None and len(node.tasks) >= row.max_tasks:
        return False
    return not (
        (request.cpu and request.cpu > row.cpu - node.held_cpu)
        or (request.memory and request.memory > row.memory - node.held_memory)
    )


def seat(node: NodeState, request: Request, pool: NodePool) -> Placement:
    """The placement of a request on a node on which it fits."""
    if whole(request):
        devices = fraction.whole_devices(node, request.devices) or []
        if len(devices) > 1:
            devices.sort(key=_index)
        shares = tuple(map(Device.whole, devices))
        return Placement(node.row.name, shares, request.cpu, request.memory)
    spread = pool.device_strategy is Strategy.SPREAD
    pairs = (fraction.shared_devices(node, request, spread) if request.devices else None) or []
    return Placement(node.row.name, in_order(pairs), request.cpu, request.memory)


def _index(device: Device) -> int:
    return device.gpu.index


def in_order(pairs: list[tuple[Device, Share]]) -> tuple[Share, ...]:
    return tuple(share for _, share in sorted(pairs, key=lambda pair: pair[0].gpu.index))


def find(
    cls: NodeClass,
    request: Request,
    pool: NodePool,
    most: int = 0,
    bars: eligibility.Bars = (),
    taste: score.Taste = score.PLAIN,
    admits: Callable[[NodeState], bool] | None = None,
) -> NodeState | None:
    """The best node with this much unclaimed, or None; within a tier, one where it can start now is first."""
    if whole(request) and request.devices > cls.free:
        return None
    fits_there = _has_cores if whole(request) else fits  # only nodes with so many free devices are looked at
    waits: bool | None = None  # True: it can start on no node now
    for nodes in score.tiers(cls, request, pool, most, taste):
        later = None
        for node in nodes:
            if fits_there(node, request) and (not bars or eligibility.allowed(node, bars)):
                if admits is not None and not admits(node):
                    continue
                if fits_now(node, request):
                    return node
                if waits is None:
                    waits = whole(request) and max(cls.idle, default=0) < request.devices
                if waits:
                    return node
                later = later or node
        if later is not None:
            return later
    return None


def _taste(world: World, request: Request, spared: frozenset[str] = frozenset()) -> score.Taste:
    return score.Taste(world.rates, spared, world.worth if request.shared else ())


def choose(
    world: World, classes: Sequence[NodeClass], key: TaskKey, request: Request, pool: NodePool, most: int = 0
) -> NodeState | None:
    """The best eligible node for a task in the first class that has one."""
    if not any(request.gpu <= cls.room for cls in classes):
        return None
    spared = eligibility.spared(world, key, request, pool.name) if world.reserves else frozenset[str]()
    taste, admits = _taste(world, request, spared), _admits(world, key, request, pool)
    if not world.shunned and world.demand(key) is None:  # neither labels nor taints matter
        for cls in classes:
            if (node := find(cls, request, pool, most, (), taste, admits)) is not None:
                return node
        return None
    bars = eligibility.bars(world, key)
    for cls in eligibility.best_first(world, classes, key):
        node = find(cls, request, pool, most, bars, taste, admits)
        if node is not None:
            return node
    return None


def _admits(
    world: World, key: TaskKey, request: Request, pool: NodePool
) -> Callable[[NodeState], bool] | None:
    """The check that bookings allow the task its place on a node; None if nothing is booked."""
    guard = world.guard
    return None if guard is None else lambda node: guard.admits(key, seat(node, request, pool))


def serial(world: World, chunk: Chunk) -> bool:
    """True if only its one request and its class of nodes decide where the chunk goes."""
    part = chunk.parts[0]
    return not (
        len(chunk.parts) > 1
        or chunk.by_memory
        or part.extends
        or part.most
        or world.reserves
        or world.shunned
        or world.guard is not None
        or world.demands(chunk.workload.id)
        or constrained(chunk.workload)
    )


def series_of(
    world: World, chunk: Chunk, cls: NodeClass, pool: NodePool, shape: tuple[object, ...]
) -> Series:
    """The series of such chunks: see serial()."""
    request = chunk.parts[0].request
    return Series(world, cls, score.ask_for(cls, request, pool, _taste(world, request)), shape)


def place_next(world: World, series: Series, chunk: Chunk, pool: NodePool) -> bool:
    """Claim a place for the next chunk of a series; False, with nothing changed, if there is none."""
    if series.ready():
        series.take(chunk, chain_of(world, chunk, series.cls.pool))
        series.tell_node()
        return True
    return series.best is not None and _seated(world, series, series.best, chunk, pool)


def _seated(world: World, series: Series, best: NodeState, chunk: Chunk, pool: NodePool) -> bool:
    """Claim a place that others may still carry or share, on the best node if possible; False without any."""
    node: NodeState | None = best
    key, request = chunk.parts[0].task, chunk.parts[0].request
    if not (_has_cores(best, request) and _has_cores_now(best, request)):
        node = None
    elif request.shared and pool.device_strategy is not Strategy.SPREAD:
        pairs = fraction.shared_devices(best, request)
        if pairs is not None and all(device.room_now(share) for device, share in pairs):
            world.claim(key, Placement(best.row.name, in_order(pairs), request.cpu, request.memory))
            return True
        node = None
    elif not fits_now(best, request):
        node = None
    if node is None:
        node = find(series.cls, request, pool, 0, (), _taste(world, request))
    if node is None:
        return False
    world.claim(key, seat(node, request, pool))
    return True


def extended(node: NodeState, claim: Placement, request: Request) -> Placement | None:
    """The claim plus the requested devices of its node; None if they are not free."""
    devices = fraction.whole_devices(node, request.devices) if node.open else None
    if devices is None:
        return None
    uuids = {share.gpu for share in claim.shares}
    mine = [(device, share) for share in claim.shares if (device := node.devices.get(share.gpu)) is not None]
    more = [
        (device, device_share.share_on(device.gpu, request))
        for device in devices
        if device.gpu.uuid not in uuids
    ]
    return replace(claim, shares=in_order(mine + more))


def place_part(world: World, classes: Sequence[NodeClass], part: Part, pool: NodePool) -> bool:
    """Claim a place for one task in the first class that has one; False, with nothing changed, if none."""
    if part.extends:
        claim = world.claim_of(part.task)
        node = world.nodes.get(claim.node) if claim is not None else None
        more = extended(node, claim, part.request) if node is not None and claim is not None else None
        return more is not None and world.seat(part.task, more)
    node = choose(world, classes, part.task, part.request, pool, part.most)
    if node is None:
        return False
    world.claim(part.task, seat(node, part.request, pool))
    return True


def relocate(world: World, cls: NodeClass, part: Part, pool: NodePool, group: TaskGroup) -> bool:
    """Give a task its next portion on another node, if it can start there now; False if there is none."""
    claim = world.claim_of(part.task)
    if claim is None:
        return False
    request = replace(group.request, devices=len(claim.shares) + part.request.devices)
    mark = world.checkpoint()
    world.claim(part.task, None)  # only its other tasks decide where it may go
    placed = place_again(world, cls, Part(part.task, request, most=group.request.devices), pool)
    now = world.claim_of(part.task) if placed else None
    if now is None or now.node == claim.node or not starts_now(world, part.task):
        world.undo(mark)
        return False
    return True


def starts_now(world: World, key: TaskKey) -> bool:
    """True if a task claims nothing, or nothing that other tasks still carry."""
    claim = world.claim_of(key)
    node = world.nodes.get(claim.node) if claim is not None else None
    if claim is None or node is None:
        return True
    devices = [node.devices[share.gpu] for share in claim.shares if share.gpu in node.devices]
    return (
        all(_undisputed(device) for device in devices)
        and (not claim.cpu or node.held_cpu <= node.row.cpu)
        and (not claim.memory or node.held_memory <= node.row.memory)
    )


def _undisputed(device: Device) -> bool:
    """True if all tasks that claim or carry the device fit on it together."""
    fits = device.held <= GPU and device.held_memory <= device.gpu.memory
    return fits and len(device.held_by) < 2 and not device.gpu.foreign


def by_size(parts: Sequence[Part]) -> list[Part]:
    """The largest first, because it has the fewest places; otherwise in their own order."""
    return sorted(
        parts, key=lambda part: (-part.request.devices * part.request.portion, -part.request.gpu_memory)
    )


def place(world: World, cls: NodeClass, chunk: Chunk, pool: NodePool) -> bool:
    """Claim places for all of a chunk; False, and nothing changed, if one of them has none."""
    near = constrained(chunk.workload)
    if len(chunk.parts) == 1 and not near:
        return place_part(world, (cls,), chunk.parts[0], pool)
    mark = world.checkpoint()
    if near:
        done = _place_branch(world, topology.NodeSet(cls), tree(chunk.workload), chunk.parts, pool)
    else:
        done = all(place_part(world, (cls,), part, pool) for part in by_size(chunk.parts))
    if not done:
        world.undo(mark)
    return done


def tidy(world: World, cls: NodeClass, chunk: Chunk, pool: NodePool) -> None:
    """Place a placed chunk again, as if there had been room for all of it from the start."""
    if len(chunk.parts) < 2:
        return
    mark = world.checkpoint()
    for part in chunk.parts:
        world.claim(part.task, None)
    if not place(world, cls, chunk, pool):
        world.undo(mark)


def place_again(world: World, cls: NodeClass, part: Part, pool: NodePool) -> bool:
    """Claim a place for a task that lost its own, as close to the rest of its workload as it must be."""
    workload = world.workloads[part.task[0]]
    if not constrained(workload):
        return place_part(world, (cls,), part, pool)
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
    bound, rest = topology.split(world, branch, parts)
    tries = where.tries()
    return all(_place_branch(world, where, child, parts, pool) for child in bound) and all(
        place_part(world, tries, part, pool) for part in by_size(rest)
    )
