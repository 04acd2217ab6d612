"""Eligibility: the pools and nodes a workload may use, its preferences, and tasks that must be kept apart."""

from collections.abc import Iterator, Sequence

from pliant.model.affinity import Taint
from pliant.model.machine import DEFAULT_POOL, NodePool
from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Kind, Request, TaskKey, Workload
from pliant.sched.settings import Settings
from pliant.sched.world.asked import node_types
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.device_share import estimate
from pliant.sched.world.node_affinity import ANYWHERE, Apart, Where, alike, blocking, liking, place_of, suits
from pliant.sched.world.node_classes import PLAIN, NodeClass, spec_of
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.state import World

# ---------------------------------------------------------------- pools and nodes
NO_TYPE = ("\0",)
"""Allowed node types when a workload asks for one that its project does not allow: no node matches."""


def all_pools(world: World) -> list[str]:
    """Names of pools, `default` first."""
    return [DEFAULT_POOL, *sorted(name for name in world.pools if name != DEFAULT_POOL)]


def choices(world: World, workload: Workload) -> list[str]:
    """Pools to try, in order; only the one where it already holds something. Its project must be known.

    Independent runs may be in several pools.
    """
    independent = workload.groups and all(group.at_once for group in workload.groups)
    for key in world.keys_of(workload.id) if not independent else ():
        claim = world.claim_of(key)
        if claim is not None and claim.node in world.nodes:
            return [world.pool_of(claim.node)]
    names = workload.pools or world.projects[workload.project].default_pools
    return [name for name in names if name in world.pools] if names else all_pools(world)


def types(world: World, workload: Workload) -> tuple[str, ...]:
    """Allowed values of the node type label; empty: any."""
    project = world.projects[workload.project]
    interactive = workload.kind in (Kind.WORKSPACE, Kind.INFERENCE)
    allowed = project.interactive_node_types if interactive else project.training_node_types
    if workload.node_type:
        return (workload.node_type,) if not allowed or workload.node_type in allowed else NO_TYPE
    return allowed


def nodes_for(world: World, workload: Workload, pool: str) -> NodeClass:
    """The nodes that some of its tasks may use."""
    wheres = wheres_of(world, workload)
    return world.node_class(pool, types(world, workload), PLAIN._replace(wheres=wheres))


def never_fits(world: World, chunk: Chunk, cls: NodeClass) -> bool:
    """True if these nodes could not hold it even when empty."""
    devices, gpu_memory, cpu, memory = cls.largest
    picky = bool(world.demands(chunk.workload.id))
    whole = 0
    for part in chunk.parts:
        request = part.request
        if request.portion >= GPU and not request.gpu_memory:
            whole += request.devices
        if picky:
            devices, gpu_memory, cpu, memory = for_task(world, cls, part.task).largest
        if not part.extends and (
            request.devices > devices
            or request.gpu_memory > gpu_memory
            or request.cpu > cpu
            or request.memory > memory
        ):
            return True
    return whole > cls.usable or (picky and crowded(world, chunk, cls, empty=True) is not None)


# ---------------------------------------------------------------- one task
def spared(world: World, key: TaskKey, request: Request, pool: str) -> frozenset[str]:
    """Node types that a task without a type constraint should leave to those with one."""
    workload = world.workloads.get(key[0])
    if not request.devices or workload is None or node_types(workload):
        return frozenset()
    found = set()
    for kind, reserve in world.reserves.items():
        cls = world.node_class(pool, (kind,))
        if cls.nodes and cls.room - request.gpu < reserve - world.bound_use.get((pool, kind), 0):
            found.add(kind)
    return frozenset(found)


Bars = tuple[tuple[str, frozenset[str]], ...]
"""(label key, its taken values): a task may not use nodes with these values or without the label."""


def wheres_of(world: World, workload: Workload) -> tuple[Where, ...]:
    """The distinct node demands of its groups."""
    asked = world.demands(workload.id)
    return tuple(dict.fromkeys(demand.where for demand in asked.values())) if asked else PLAIN.wheres


def for_task(world: World, cls: NodeClass, key: TaskKey) -> NodeClass:
    """The nodes of a class that are eligible for this task."""
    demand = world.demand(key)
    if demand is None:
        return cls
    return world.narrowed(cls, spec_of(cls)._replace(wheres=(demand.where,)))


def best_first(world: World, classes: Sequence[NodeClass], key: TaskKey) -> Iterator[NodeClass]:
    """The classes reduced to the eligible nodes of a task, by preference, then in their order."""
    demand = world.demand(key)
    where = demand.where if demand is not None else ANYWHERE
    if demand is not None:
        classes = [for_task(world, cls, key) for cls in classes]
    if not where.preferred and not world.shunned:
        yield from classes
        return
    found = [(score, cls) for cls in classes for score in _scores(world, cls, where)]
    for score, cls in sorted(found, key=lambda entry: -entry[0]):
        yield world.narrowed(cls, spec_of(cls)._replace(wheres=(where,), liked=score))


def _scores(world: World, cls: NodeClass, where: Where) -> tuple[int, ...]:
    """The distinct preference values of its nodes, the best first."""
    key = (cls.pool, cls.types, spec_of(cls), where)
    found = world.likings.get(key)
    if found is None:
        scores = {liking(where, node.row) for node in cls.nodes.values()}
        found = world.likings[key] = tuple(sorted(scores, reverse=True))
    return found


# ---------------------------------------------------------------- apart
def bars(world: World, key: TaskKey) -> Bars:
    """Nodes that other tasks of its workload exclude for a task now."""
    demand = world.demand(key)
    if demand is None or not demand.apart:
        return ()
    return tuple((apart.key, frozenset(taken(world, apart, key[0], key))) for apart in demand.apart)


def taken(world: World, apart: Apart, wid: str, but: TaskKey | None = None) -> set[str]:
    """Values of the label on the nodes where such tasks of a workload are."""
    found = set()
    for other in world.keys_of(wid):
        claim = world.claim_of(other) if other != but else None
        if claim is None or claim.node not in world.nodes:
            continue
        if not apart.group or world.tasks[other].group == apart.group:
            found.add(place_of(apart.key, world.nodes[claim.node].row))
    return found


def left(world: World, key: TaskKey, node: NodeState) -> bool:
    """False while a task that must be on another domain still runs in this one."""
    demand = world.demand(key)
    for apart in demand.apart if demand is not None else ():
        value = place_of(apart.key, node.row)
        for other in world.keys_of(key[0]):
            row = world.tasks[other]
            near = other != key and (not apart.group or row.group == apart.group)
            at = world.nodes.get(row.carries.node) if near and row.carries is not None else None
            if at is not None and place_of(apart.key, at.row) == value:
                return False
    return True


def allowed(node: NodeState, taken_by_others: Bars) -> bool:
    for key, values in taken_by_others:
        value = place_of(key, node.row)
        if not value or value in values:
            return False
    return True


def crowded(world: World, chunk: Chunk, cls: NodeClass, empty: bool) -> tuple[str, int, int, int] | None:
    """(key, tasks to keep apart, domains, domains with room for one) if too few domains have room for one.

    None if there are enough, by counting alone. `empty`: as if nothing else were claimed.
    """
    asked: dict[Apart, list[TaskKey]] = {}
    for part in chunk.parts:
        demand = world.demand(part.task)
        for apart in demand.apart if demand is not None and not part.extends else ():
            asked.setdefault(apart, []).append(part.task)
    requests = {part.task: part.request for part in chunk.parts}
    for apart, keys in asked.items():
        mine = taken(world, apart, chunk.workload.id)
        all_: set[str] = set()
        room: set[str] = set()
        for key in keys:
            request = requests[key]
            for node in for_task(world, cls, key).nodes.values():
                value = place_of(apart.key, node.row)
                if not value or value in mine:
                    continue
                all_.add(value)
                if request.devices <= (node.usable if empty else _open_devices(node, request)):
                    room.add(value)
            if len(room) >= len(keys):
                break
        if len(room) < len(keys):
            return apart.key, len(keys), len(all_), len(room)
    return None


def _open_devices(node: NodeState, request: Request) -> int:
    """An upper bound of the devices that may take a part of a request."""
    return node.free + node.partly if request.shared else node.free


# ---------------------------------------------------------------- why none suits
def ruled_out(world: World, workload: Workload, cls: NodeClass) -> tuple[int, int, int, Taint | None] | None:
    """(nodes of pool and types, those without the labels, those kept away by a taint, one of these taints).

    None if some node is eligible for some of its tasks, or if there is no node at all.
    """
    plain = [node for node in world.nodes.values() if cls.reaches(node)]
    wheres = wheres_of(world, workload)
    if not plain or any(suits(where, node.row) for where in wheres for node in plain):
        return None
    like = [node for node in plain if any(alike(where, node.row) for where in wheres)]
    taints = [
        taint
        for node in sorted(like, key=lambda node: node.row.name)
        for where in wheres
        if (taint := blocking(where.tolerations, node.row)) is not None
    ]
    return len(plain), len(plain) - len(like), len(like), taints[0] if taints else None


# ---------------------------------------------------------------- what is asked for
def pending(world: World, first: bool = False, now: int | None = None) -> dict[str, dict[str, Resources]]:
    """What wanting workloads still ask for: pool -> project -> amount; GPU memory as on the smallest device.

    A workload counts in every pool that it may use (or only in the first), but not where it could never fit:
    it takes no GPUs from others there. With `now` (ms) it does not count while it is in back-off. The world
    must be settled.
    """
    found: dict[str, dict[str, Resources]] = {}
    for same in world.alike.values():
        wid, chunk = next(iter(same.items()))
        workload, need = world.workloads[wid], world.need(wid)
        if workload.project not in world.projects:
            continue
        if now is not None and any((world.tasks[part.task].retry_at or 0) > now for part in chunk.parts):
            continue
        pools = choices(world, workload)
        for pool in pools[:1] if first else pools:
            cls = nodes_for(world, workload, pool)
            if never_fits(world, chunk, cls):
                continue
            lacks = need.lacks.times(len(same))
            for request, count in need.lacks_memory:
                lacks = lacks.plus(Resources(estimate(request, cls.smallest_device) * count * len(same)))
            sums = found.setdefault(pool, {})
            sums[workload.project] = sums.get(workload.project, NOTHING).plus(lacks)
    return found


# ---------------------------------------------------------------- equivalence classes
Equivalence = int
"""Number of a class of chunks that every action treats alike in one pool: see Destinations.equivalence()."""


class Destinations:
    """Where the workloads of a world may go. Valid while only claims change."""

    def __init__(self, world: World, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self._choices: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # of those that hold nothing
        self._nodes: dict[tuple[object, ...], NodeClass] = {}
        self._nodes_by_equivalence: dict[Equivalence, NodeClass] = {}  # of those whose groups have no demands
        self._never: dict[Equivalence, bool] = {}
        self._numbers: dict[tuple[object, ...], Equivalence] = {}
        # Workload -> the last answer of equivalence().
        self._latest: dict[str, tuple[Chunk, str, Equivalence]] = {}

    def equivalence(self, chunk: Chunk, pool: str) -> Equivalence:
        """Equal for chunks of one project that ask for the same under the same conditions."""
        it = chunk.workload
        known = self._latest.get(it.id)
        if known is not None and known[0] is chunk and known[1] == pool:
            return known[2]
        # The maximum runtime decides which jobs may run before a reservation or booking begins.
        fills = it.max_runtime if self.settings.reservation or self.world.guard is not None else None
        bound = chunk.parts[0].task if chunk.extends else None
        owner = (pool, it.project, it.kind, it.preemptible, it.semi_preemptible, it.node_type, fills)
        key = (*owner, chunk.priority, chunk.step, chunk.shape, bound)
        equivalence = self._numbers.setdefault(key, len(self._numbers))
        self._latest[it.id] = chunk, pool, equivalence
        return equivalence

    def placeable(self, workload: str) -> bool:
        """True if the workload and its project are known."""
        row = self.world.workloads.get(workload)
        return row is not None and row.project in self.world.projects

    def choices(self, workload: Workload) -> list[str]:
        """Pools to try, in order."""
        if self.world.need(workload.id).holds:
            return choices(self.world, workload)
        key = (workload.project, workload.pools)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = choices(self.world, workload)
        return found

    def nodes_for(self, workload: Workload, pool: str) -> NodeClass:
        wheres = wheres_of(self.world, workload)
        key = (pool, workload.project, workload.kind, workload.node_type, wheres)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = nodes_for(self.world, workload, pool)
        return found

    def class_for(self, chunk: Chunk, pool: str) -> NodeClass:
        """nodes_for() of a chunk, cached by its equivalence class if it has no demands."""
        if self.world.demands(chunk.workload.id):
            return self.nodes_for(chunk.workload, pool)
        equivalence = self.equivalence(chunk, pool)
        found = self._nodes_by_equivalence.get(equivalence)
        if found is None:
            found = self._nodes_by_equivalence[equivalence] = self.nodes_for(chunk.workload, pool)
        return found

    def pool(self, name: str) -> NodePool:
        return self.world.pools.get(name) or NodePool(name, name)

    def never_fits(self, chunk: Chunk, pool: str) -> bool:
        """True if the pool could not hold it even when empty."""
        equivalence = self.equivalence(chunk, pool)
        found = self._never.get(equivalence)
        if found is None:
            found = self._never[equivalence] = never_fits(
                self.world, chunk, self.nodes_for(chunk.workload, pool)
            )
        return found
