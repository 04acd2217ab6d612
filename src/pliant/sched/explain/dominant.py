"""Why a chunk was not placed: the one dominant reason of all that are in its way, with its numbers."""

from dataclasses import replace
from functools import partial

from pliant.model.machine import OF_PROJECT
from pliant.model.quantity import GPU
from pliant.model.reason import (
    BesideOthers,
    MinRuntime,
    NeverFits,
    NoCapacity,
    NoMatchingNode,
    NonPreemptibleOverQuota,
    NotEntitled,
    OverLimit,
    Overpromised,
    Reason,
)
from pliant.model.reason.held import Booked, ChurnBudget, NotApart, Outwaited, Unsuited
from pliant.model.reason.waiting import NoDomain
from pliant.model.tenancy import Department
from pliant.model.workload import Workload
from pliant.sched.actions.context import Block, Cycle
from pliant.sched.actions.reservation import Reserving
from pliant.sched.placement import eligibility, fit, topology
from pliant.sched.shares.fair_share import ALL, INFINITE
from pliant.sched.shares.naming import named_at, queue_named, workload_named
from pliant.sched.world.device_share import share_on
from pliant.sched.world.node_affinity import text_of
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.queue_tree import NOTHING


def dominant(cycle: Cycle, reserving: Reserving, block: Block) -> Reason:
    """The dominant reason for which a chunk was not placed in a pool."""
    cls = cycle.nodes_for(block.chunk.workload, block.pool)
    reserved = partial(_reserved, reserving)
    causes = (_no_node, _never, _refused, _protected, reserved, _booked, _withheld, _outwaited)
    for cause in causes:
        if (found := cause(cycle, block, cls)) is not None:
            return found
    return _short(cycle, block, cls)


def _no_node(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """No node of the pool may take it."""
    if cls.nodes:
        return None
    workload = block.chunk.workload
    barred = _barred(cycle, block, cls)
    if barred is not None:
        return barred
    types = eligibility.types(cycle.world, workload)
    names = workload.node_type if types == eligibility.NO_TYPE else ", ".join(types)
    count = sum(1 for node in cycle.world.nodes.values() if node.pool == block.pool)
    return NoMatchingNode(block.pool, names, count)


def _never(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """It would not fit even if nothing else were there."""
    if not cycle.never_fits(block.chunk, block.pool):
        return None
    return _no_domain(cycle, block, cls) or _crowded(cycle, block, cls, True) or _too_large(cycle, block, cls)


def _refused(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """A queue above it may not hold more."""
    refusal = block.refusal
    if refusal is None:
        return None
    if refusal.quota and refusal.resource == "gpu" and (broken := _overpromised(cycle, block, cls)):
        return broken
    queue, level = named_at(cycle.world, refusal.key), cycle.world.level_of(refusal.key)
    kind = NonPreemptibleOverQuota if refusal.quota else OverLimit
    return kind(level, queue, block.pool, refusal.resource, refusal.allowed, refusal.used, refusal.asked)


def _protected(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """It waits for the end of a victim's minimum run time."""
    protected = cycle.protected.get(block.equivalence)
    if protected is None:
        return None
    victim, until, rule = protected
    named = workload_named(cycle.world, victim)
    return MinRuntime(named, block.pool, until, block.adding.gpu, rule.level, rule.owner)


def _reserved(reserving: Reserving, cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """What is free is reserved for a waiting gang."""
    return reserving.why(block.chunk, block.pool, block.adding)


def _booked(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """It would have its place if nothing were booked."""
    if cycle.books is None:
        return None
    world, chunk, workload = cycle.world, block.chunk, block.chunk.workload
    mark, world.guard = world.checkpoint(), None
    placed = fit.place(world, cls, chunk, cycle.pool(block.pool))
    nodes = sorted({claim.node for part in chunk.parts if (claim := world.claim_of(part.task)) is not None})
    world.undo(mark)
    world.guard = cycle.books
    for name in nodes if placed else ():
        if (booking := cycle.books.blocking(workload, name)) is not None:
            project = None if booking.maintenance else queue_named(world.projects[booking.project])
            gpus, begun = dict(booking.places)[name] * GPU, booking in cycle.books.active_on(name)
            times = booking.start, booking.end, begun, workload.max_runtime
            return Booked(block.adding.gpu, name, gpus, project, *times)
    return None


def _withheld(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """The disruption budget of a project protects its victims."""
    withheld = cycle.withheld.get(block.equivalence)
    if withheld is None:
        return None
    churn, project = cycle.churn, queue_named(cycle.world.projects[withheld])
    return ChurnBudget(block.adding.gpu, project, churn.budget, churn.window, churn.until(withheld))


def _outwaited(cycle: Cycle, block: Block, cls: NodeClass) -> Reason | None:
    """Its priority is higher, but that of a victim has risen while the victim was pending."""
    outwaited = cycle.outwaited.get(block.equivalence)
    if outwaited is None:
        return None
    holder, priority, aged = outwaited
    named = workload_named(cycle.world, holder)
    return Outwaited(named, priority, aged, block.chunk.priority, block.adding.gpu)


# ---------------------------------------------------------------------- nothing else is in its way
def _short(cycle: Cycle, block: Block, cls: NodeClass) -> Reason:
    """Which resource is short, and why."""
    short, chunk = _short_of(block, cls), block.chunk
    if short == "gpu" and (beside := _beside(block, cls)):
        owner = chunk.parts[0].request.owner
        return BesideOthers(block.adding.gpu, beside, "project" if owner.startswith(OF_PROJECT) else "user")
    asked, free = getattr(block.adding, short), _all(cls, short)
    apart = _no_domain(cycle, block, cls) or _crowded(cycle, block, cls, False)
    if apart is not None and asked <= free:
        return apart
    if short == "gpu" and block.equivalence in cycle.unentitled and _others_hold(cycle, block):
        return _not_entitled(cycle, block, cls)
    if apart is not None:
        return apart
    if short == "gpu" and (broken := _overpromised(cycle, block, cls)) is not None:
        return broken
    only = next(iter(cls.nodes)) if len(cls.nodes) == 1 else ""
    return NoCapacity(asked, len(chunk.parts), _best(cls, short), free, len(cls.nodes), short, only)


def _not_entitled(cycle: Cycle, block: Block, cls: NodeClass) -> NotEntitled:
    """With it, its project would hold more than its fair share, and others hold the rest."""
    world, project, pool = cycle.world, block.chunk.workload.project, block.pool
    standing = cycle.shares.bare(pool)[project]
    quota = standing.deserved.gpu
    return NotEntitled(
        queue_named(world.projects[project]),
        pool,
        block.adding.gpu,
        world.use(project, pool).claimed.gpu,
        standing.fair.gpu,
        -1 if quota >= INFINITE else quota,
        _best(cls, "gpu"),
        _all(cls, "gpu"),
        (standing.past * 1000 + ALL // 2) // ALL if cycle.settings.past_use else None,
    )


def _no_domain(cycle: Cycle, block: Block, cls: NodeClass) -> NoDomain | None:
    """The reason of a chunk that must be in one domain, if none has room for it; else None."""
    found = topology.tightest(cycle.world, block.chunk, cls)
    if found is None or found[3] >= found[1]:
        return None
    level, tasks, best, room, domains = found
    ever = not topology.never(cycle.world, block.chunk, cls)
    return NoDomain(level, tasks, room, best, domains, ever)


def _beside(block: Block, cls: NodeClass) -> int:
    """On how many GPUs its one task would fit if it might share them with the parts of other owners."""
    request = block.chunk.parts[0].request
    if len(block.chunk.parts) > 1 or not (request.shared and request.owner):
        return 0
    devices = [device for node in cls.nodes.values() for device in node.devices.values()]
    shares = [(device, share_on(device.gpu, request)) for device in devices]
    return sum(
        1
        for device, share in shares
        if device.others(share) and any(device.room(replace(share, owner=it)) for it in device.claimed_by)
    )


def _others_hold(cycle: Cycle, block: Block) -> bool:
    """True if another project holds GPUs of this pool: only then it matters what ours is due."""
    own = block.chunk.workload.project
    return any(
        project != own and cycle.world.use(project, block.pool).claimed.gpu
        for project in cycle.world.projects
    )


def _overpromised(cycle: Cycle, block: Block, cls: NodeClass) -> Overpromised | None:
    """The reason if its quotas allow it, but the quotas that others use leave too little of the pool."""
    world, pool, own, asked = cycle.world, block.pool, block.chunk.workload.project, block.adding.gpu
    has, standing = world.capacity.get(pool, NOTHING).gpu, cycle.shares.standing(pool)
    rows = ((key, world.queue_of(key)) for key in world.path(own))
    bounds = (key for key, row in rows if not (isinstance(row, Department) and row.derived))
    if asked <= _all(cls, "gpu") or any(
        world.claimed(key, pool).gpu + asked > standing[key].deserved.gpu for key in bounds
    ):
        return None
    promised = cycle.promised(pool)
    if promised <= has:
        return None
    held = {
        key: min(world.claimed(key, pool).gpu, standing[key].deserved.gpu)
        for key in world.projects
        if key != own
    }
    mine, others = world.claimed(own, pool).gpu, sum(held.values())
    if not others or mine + asked + others <= has:
        return None
    holders = sorted((key for key in held if held[key]), key=lambda key: (-held[key], key))
    named = tuple(queue_named(world.projects[key]) for key in holders)
    quota, project = standing[own].deserved.gpu, queue_named(world.projects[own])
    return Overpromised(project, pool, asked, mine, quota, promised, has, others, named)


def _crowded(cycle: Cycle, block: Block, cls: NodeClass, ever: bool) -> NotApart | None:
    """The reason of tasks to be kept apart, if too few domains have room for one (`ever`: could have)."""
    if not cycle.world.demands(block.chunk.workload.id):
        return None
    found = eligibility.crowded(cycle.world, block.chunk, cls, empty=ever)
    return NotApart(*found, ever=not ever) if found is not None else None


def _barred(cycle: Cycle, block: Block, cls: NodeClass) -> Unsuited | None:
    """What rules out all nodes; of several pools, that of one where taints keep it away goes first."""
    workload = block.chunk.workload
    found = _unsuited(cycle, workload, block.pool, cls)
    for pool in cycle.choices(workload) if found is None or not found.tainted else ():
        other = _unsuited(cycle, workload, pool, cycle.nodes_for(workload, pool))
        if other is not None and other.tainted:
            return other
    return found


def _unsuited(cycle: Cycle, workload: Workload, pool: str, cls: NodeClass) -> Unsuited | None:
    """The reason if labels or taints rule out all nodes that would take it otherwise; else None."""
    found = eligibility.ruled_out(cycle.world, workload, cls)
    if found is None:
        return None
    nodes, unlike, tainted, taint = found
    return Unsuited(pool, nodes, unlike, tainted, text_of(taint))


def _too_large(cycle: Cycle, block: Block, whole: NodeClass) -> Reason:
    for part in block.chunk.parts:
        cls = eligibility.for_task(cycle.world, whole, part.task)
        devices, _, cpu, memory = cls.largest
        request = part.request
        if request.devices > devices:
            return NeverFits(request.devices * GPU, devices * GPU, len(cls.nodes))
        if request.cpu > cpu:
            return NeverFits(request.cpu, cpu, len(cls.nodes), "cpu")
        if request.memory > memory:
            return NeverFits(request.memory, memory, len(cls.nodes), "memory")
        if request.gpu_memory > cls.largest[1]:
            return NeverFits(request.gpu_memory, cls.largest[1], len(cls.nodes), "GPU memory")
    return NeverFits(block.adding.gpu, whole.usable * GPU, len(whole.nodes), "gpu", len(block.chunk.parts))


def _short_of(block: Block, cls: NodeClass) -> str:
    """The resource that is short: GPUs, unless there are enough on a node, or on all nodes together."""
    for part in block.chunk.parts:
        request = part.request
        some = request.devices * GPU <= _best(cls, "gpu")
        enough = [node for node in cls.nodes.values() if node.free >= request.devices] if some else []
        if enough and (request.devices or not block.adding.gpu):
            if all(node.free_cpu < request.cpu for node in enough):
                return "cpu"
            if all(node.free_memory < request.memory for node in enough):
                return "memory"
    if block.adding.gpu <= _all(cls, "gpu"):
        for resource in ("cpu", "memory"):
            if getattr(block.adding, resource) > _all(cls, resource):
                return resource
    return "gpu" if block.adding.gpu else "cpu"


def _best(cls: NodeClass, resource: str) -> int:
    if resource == "gpu":
        return max((look.free for look in cls.looks), default=0) * GPU
    return max(
        (node.free_cpu if resource == "cpu" else node.free_memory for node in cls.nodes.values()), default=0
    )


def _all(cls: NodeClass, resource: str) -> int:
    if resource == "gpu":
        return cls.free * GPU
    return sum(node.free_cpu if resource == "cpu" else node.free_memory for node in cls.nodes.values())
