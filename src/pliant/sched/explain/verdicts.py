"""Why each workload lacks what it asks for: one dominant reason each, with its numbers."""

from dataclasses import replace
from itertools import compress, filterfalse, islice, repeat
from operator import is_, is_not

from pliant.model.machine import OF_PROJECT
from pliant.model.quantity import GPU
from pliant.model.reason import (
    BackOff,
    BesideOthers,
    Cancelled,
    MinRuntime,
    Named,
    NeverFits,
    NoCapacity,
    NoMatchingNode,
    NonPreemptibleOverQuota,
    NotEntitled,
    NothingIdle,
    OverLimit,
    Overpromised,
    Reason,
    Suspended,
    UnknownProject,
    WaitingForGang,
    WaitingForRelease,
)
from pliant.model.reason.held import Booked, ChurnBudget, NotApart, Outwaited, PreemptionDelay, Unsuited
from pliant.model.reason.waiting import NoDomain
from pliant.model.tenancy import Department
from pliant.model.workload import Desired, TaskKey, TaskPhase, Workload
from pliant.sched.actions.context import Block, Cycle
from pliant.sched.actions.intents import Outcome
from pliant.sched.actions.reservation import Reserving
from pliant.sched.placement import eligibility, fit, topology
from pliant.sched.placement.booked import Books
from pliant.sched.placement.eligibility import Equivalence
from pliant.sched.shares.fair_share import ALL, INFINITE
from pliant.sched.shares.naming import named_at, queue_named, workload_named
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.device_share import share_on
from pliant.sched.world.membership import ELASTIC, WANTING
from pliant.sched.world.node_affinity import text_of
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.portions import next_chunk
from pliant.sched.world.queue_tree import NOTHING


def verdicts(cycle: Cycle, reserving: Reserving, outcome: Outcome) -> Verdicts:
    """In the order in which this cycle looked at the workloads; those it did not look at come last, by id."""
    world, looked = cycle.world, cycle.looked
    blocks, known, reasons = list(looked.values()), dict[Equivalence, Reason](), dict[int, Reason | None]()
    for block in compress(blocks, [*map(is_not, blocks, islice(blocks, 1, None)), True]):  # many share one
        if block is not None and block.equivalence not in known:
            known[block.equivalence] = explain(cycle, reserving, block)
        reasons[id(block)] = known[block.equivalence] if block is not None else None
    found: dict[str, Reason] = {}  # instead of those of their blocks
    for wid, until in cycle.delays.items():
        if (block := looked.get(wid)) is not None:
            found[wid] = PreemptionDelay(block.adding.gpu, world.workloads[wid].preemption_delay, until)
    for wid, key in cycle.resting.items():
        row = world.tasks[key]
        found[wid] = BackOff(row.name, row.retry_at or 0, row.failures)
    for wid, key in outcome.held_back.items():
        if wid not in found and looked.get(wid) is None:
            found[wid] = _release(cycle, key)
    for wid, key in outcome.apart.items():
        if wid not in found and looked.get(wid) is None:
            found[wid] = _gang(cycle, key)
    unseen: dict[Equivalence, Reason] = {}
    wanting = world.now_in(WANTING)
    rest = list(filterfalse(looked.__contains__, wanting))
    if None in reasons.values():
        rest += filter(set(compress(looked, map(is_, blocks, repeat(None)))).__contains__, wanting)
    for wid in sorted(filterfalse(found.__contains__, rest)):
        workload = world.workloads[wid]
        known_project = workload.project in world.projects
        found[wid] = (
            _unseen(cycle, reserving, workload, unseen) if known_project else UnknownProject(workload.project)
        )
    for wid in sorted(wid for wid in world.now_in(ELASTIC) if world.workloads[wid].background):
        has = wid in found or looked.get(wid) is not None
        if not has and next_chunk(world, world.workloads[wid]) is not None:
            found[wid] = _background(cycle, reserving, world.workloads[wid])
    for wid, reason in sorted(world.flaws.items()):
        held = world.workloads[wid].held and any(map(world.claim_of, world.keys_of(wid)))
        if workload_open(world.workloads[wid]) and not held:  # what is held and runs may go on
            found[wid] = reason
    for wid in sorted(world.ending):
        if world.workloads[wid].desired is Desired.STOPPED:
            found[wid] = Cancelled() if world.workloads[wid].cancelled_by else Suspended()
    why = list(map(reasons.__getitem__, map(id, blocks)))  # of those that were looked at, in that order
    for wid in filter(looked.__contains__, found):
        why[cycle.positions()[wid] - 1] = found[wid]
    last = sorted(filterfalse(looked.__contains__, found))
    order = [*compress(looked, why), *last]
    return Verdicts.of_each(order, [*filter(None, why), *map(found.__getitem__, last)])


def explain(cycle: Cycle, reserving: Reserving, block: Block) -> Reason:
    """The dominant reason for which a chunk was not placed in a pool."""
    world, chunk, workload = cycle.world, block.chunk, block.chunk.workload
    cls = cycle.nodes_for(workload, block.pool)
    if not cls.nodes:
        return _barred(cycle, block, cls) or _no_node(cycle, workload, block.pool)
    if cycle.never_fits(chunk, block.pool):
        return _no_domain(cycle, block, cls) or _crowded(cycle, block, cls, True) or _never(cycle, block, cls)
    refusal = block.refusal
    if refusal is not None:
        if refusal.quota and refusal.resource == "gpu" and (broken := _overpromised(cycle, block, cls)):
            return broken
        queue, level = named_at(world, refusal.key), world.level_of(refusal.key)
        kind = NonPreemptibleOverQuota if refusal.quota else OverLimit
        return kind(level, queue, block.pool, refusal.resource, refusal.allowed, refusal.used, refusal.asked)
    protected = cycle.protected.get(block.equivalence)
    if protected is not None:
        victim, until, rule = protected
        named = workload_named(world, victim)
        return MinRuntime(named, block.pool, until, block.adding.gpu, rule.level, rule.owner)
    reserved = reserving.why(chunk, block.pool, block.adding)
    if reserved is not None:
        return reserved
    if cycle.books is not None and (booked := _booked(cycle, cycle.books, block, cls)) is not None:
        return booked
    withheld = cycle.withheld.get(block.equivalence)
    if withheld is not None:
        churn, project = cycle.churn, queue_named(world.projects[withheld])
        return ChurnBudget(block.adding.gpu, project, churn.budget, churn.window, churn.until(withheld))
    outwaited = cycle.outwaited.get(block.equivalence)
    if outwaited is not None:
        holder, priority, aged = outwaited
        named = workload_named(world, holder)
        return Outwaited(named, priority, aged, chunk.priority, block.adding.gpu)
    short = _short_of(block, cls)
    if short == "gpu" and (beside := _beside(block, cls)):
        owner = block.chunk.parts[0].request.owner
        return BesideOthers(block.adding.gpu, beside, "project" if owner.startswith(OF_PROJECT) else "user")
    apart = _no_domain(cycle, block, cls) or _crowded(cycle, block, cls, False)
    if apart is not None and getattr(block.adding, short) <= _all(cls, short):
        return apart
    if short == "gpu" and block.equivalence in cycle.unentitled and _others_hold(cycle, block):
        standing = cycle.shares.bare(block.pool)[workload.project]
        quota = standing.deserved.gpu
        return NotEntitled(
            queue_named(world.projects[workload.project]),
            block.pool,
            block.adding.gpu,
            world.use(workload.project, block.pool).claimed.gpu,
            standing.fair.gpu,
            -1 if quota >= INFINITE else quota,
            _best(cls, "gpu"),
            _all(cls, "gpu"),
            (standing.past * 1000 + ALL // 2) // ALL if cycle.settings.past_use else None,
        )
    if apart is not None:
        return apart
    if short == "gpu" and (broken := _overpromised(cycle, block, cls)) is not None:
        return broken
    asked = getattr(block.adding, short)
    only = next(iter(cls.nodes)) if len(cls.nodes) == 1 else ""
    tasks, best, free = len(chunk.parts), _best(cls, short), _all(cls, short)
    return NoCapacity(asked, tasks, best, free, len(cls.nodes), short, only)


def _no_domain(cycle: Cycle, block: Block, cls: NodeClass) -> NoDomain | None:
    """For what must lie in one domain, while none has room for it."""
    found = topology.tightest(cycle.world, block.chunk, cls)
    if found is None or found[3] >= found[1]:
        return None
    level, tasks, best, room, domains = found
    ever = not topology.never(cycle.world, block.chunk, cls)
    return NoDomain(level, tasks, room, best, domains, ever)


def _booked(cycle: Cycle, books: Books, block: Block, cls: NodeClass) -> Booked | None:
    """For what would have its place if nothing were booked."""
    world, chunk, workload = cycle.world, block.chunk, block.chunk.workload
    mark, world.guard = world.checkpoint(), None
    placed = fit.place(world, cls, chunk, cycle.pool(block.pool))
    nodes = sorted({claim.node for part in chunk.parts if (claim := world.claim_of(part.task)) is not None})
    world.undo(mark)
    world.guard = books
    for name in nodes if placed else ():
        if (booking := books.blocking(workload, name)) is not None:
            project = None if booking.maintenance else queue_named(world.projects[booking.project])
            gpus, begun = dict(booking.places)[name] * GPU, booking in books.active_on(name)
            times = booking.start, booking.end, begun, workload.max_runtime
            return Booked(block.adding.gpu, name, gpus, project, *times)
    return None


def _beside(block: Block, cls: NodeClass) -> int:
    """On how many GPUs its one task would fit if it did not lie apart from the parts of other owners."""
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
    """For what its project's quota allows, while the quotas that others use leave too little of the pool."""
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


def _no_node(cycle: Cycle, workload: Workload, pool: str) -> Reason:
    types = eligibility.types(cycle.world, workload)
    names = workload.node_type if types == eligibility.NO_TYPE else ", ".join(types)
    count = sum(1 for node in cycle.world.nodes.values() if node.pool == pool)
    return NoMatchingNode(pool, names, count)


def _crowded(cycle: Cycle, block: Block, cls: NodeClass, ever: bool) -> NotApart | None:
    """For what must lie apart, while too few domains have room for one (`ever`: could have)."""
    if not cycle.world.demands(block.chunk.workload.id):
        return None
    found = eligibility.crowded(cycle.world, block.chunk, cls, empty=ever)
    return NotApart(*found, ever=not ever) if found is not None else None


def _barred(cycle: Cycle, block: Block, cls: NodeClass) -> Unsuited | None:
    """What rules out all nodes: of several pools the one where only taints keep it away."""
    workload = block.chunk.workload
    found = _unsuited(cycle, workload, block.pool, cls)
    for pool in cycle.choices(workload) if found is None or not found.tainted else ():
        other = _unsuited(cycle, workload, pool, cycle.nodes_for(workload, pool))
        if other is not None and other.tainted:
            return other
    return found


def _unsuited(cycle: Cycle, workload: Workload, pool: str, cls: NodeClass) -> Unsuited | None:
    """For what no node suits that would take it otherwise."""
    found = eligibility.ruled_out(cycle.world, workload, cls)
    if found is None:
        return None
    nodes, unlike, tainted, taint = found
    return Unsuited(pool, nodes, unlike, tainted, text_of(taint))


def _never(cycle: Cycle, block: Block, whole: NodeClass) -> Reason:
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


def _unseen(
    cycle: Cycle, reserving: Reserving, workload: Workload, known: dict[Equivalence, Reason]
) -> Reason:
    """For a workload that no pool looked at, or that lost its place in this very cycle."""
    chunk = next_chunk(cycle.world, workload)
    pools = cycle.choices(workload)
    if not pools or chunk is None:
        named = workload.pools or cycle.world.projects[workload.project].default_pools
        return NoMatchingNode(", ".join(named), workload.node_type, 0)
    equivalence = cycle.equivalence(chunk, pools[0])
    found = known.get(equivalence)
    if found is None:
        adding = cycle.adding(chunk, pools[0])
        refusal = cycle.shares.refuse(chunk, pools[0], adding)
        found = known[equivalence] = explain(
            cycle, reserving, Block(chunk, pools[0], adding, refusal, equivalence)
        )
    return found


def _background(cycle: Cycle, reserving: Reserving, workload: Workload) -> Reason:
    """Where it could run if enough were idle, that is all it waits for."""
    if workload.project not in cycle.world.projects:
        return UnknownProject(workload.project)
    reason = _unseen(cycle, reserving, workload, {})
    if not isinstance(reason, NoCapacity | NotEntitled | Overpromised):
        return reason
    nodes = [
        node
        for pool in cycle.choices(workload)
        for node in cycle.nodes_for(workload, pool).nodes.values()
        if node.open
    ]
    idle = [node.idle * GPU for node in nodes]
    return NothingIdle(reason.asked, max(idle, default=0), sum(idle))


def _gang(cycle: Cycle, key: TaskKey) -> Reason:
    """Which of its tasks keep a workload from starting together."""
    rows = cycle.world.tasks_of(key[0])
    away = [
        row.name
        for row in rows
        if row.phase is TaskPhase.STOPPING or (not row.phase.live and row.name != key[1])
    ]
    row = cycle.world.tasks[key]
    if not away and row.retry_at is not None and row.retry_at > cycle.now:
        return BackOff(row.name, row.retry_at, row.failures)  # it does not wait for other work
    return WaitingForGang(row.name, tuple(away))


def _release(cycle: Cycle, key: TaskKey) -> Reason:
    """Who still sits where this task has its place."""
    world = cycle.world
    claim = world.claim_of(key)
    assert claim is not None
    wanted = set(claim.uuids)
    holders: dict[str, Named] = {}
    node = world.nodes.get(claim.node)
    near: set[TaskKey] = set()  # those on its devices, and the rest of its workload
    if node is not None:
        near.update(world.keys_of(key[0]), *(node.devices[it].tasks for it in wanted & node.devices.keys()))
    for other in sorted(near):
        carries = world.tasks[other].carries
        if (
            other != key
            and carries is not None
            and carries.node == claim.node
            and (other[0] == key[0] or wanted & set(carries.uuids))
        ):
            known = other[0] in world.workloads
            holders[other[0]] = workload_named(world, other[0]) if known else Named("workload", other[0])
    grace = max((world.workloads[wid].launch.grace for wid in holders if wid in world.workloads), default=0)
    return WaitingForRelease(claim.node, claim.gpu, tuple(holders.values()), grace)
