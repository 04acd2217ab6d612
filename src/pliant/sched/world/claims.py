"""What is claimed and carried where: tasks, nodes and queues with their sums, and a journal with undo."""

from collections.abc import Mapping

from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import DEFAULT_POOL, Node, NodePool, Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Request, Task, Workload
from pliant.sched.world.asked import Asked, Rates, node_types
from pliant.sched.world.node_affinity import NO_DEMANDS, Demand
from pliant.sched.world.node_classes import PLAIN, Domain, Spec, spec_of
from pliant.sched.world.nodes import NodeClass, NodeState, TaskKey
from pliant.sched.world.queue_tree import NOTHING, ancestry, department_key
from pliant.sched.world.tally import Tally, Use

KEPT = "\0kept"
"""In place of a workload: what is kept free."""


class Claims:
    """The part of the world that a hypothesis changes. Sums are kept incrementally."""

    def __init__(self) -> None:
        self.pools: dict[str, NodePool] = {DEFAULT_POOL: NodePool(DEFAULT_POOL, DEFAULT_POOL)}  # by name
        self.departments: dict[str, Department] = {}
        self.projects: dict[str, Project] = {}
        self.nodes: dict[str, NodeState] = {}
        self.topologies: dict[str, Topology] = {}  # by name
        self.past_uses: dict[tuple[str, str], PastUse] = {}  # by project and pool
        self.disruptions: dict[str, Disruptions] = {}  # by project
        self.workloads: dict[str, Workload] = {}
        self.tasks: dict[TaskKey, Task] = {}
        self.capacity: dict[str, Resources] = {}  # of ready nodes, by pool
        self._members: dict[str, list[TaskKey]] = {}
        self._claims: dict[TaskKey, Placement] = {}
        self._tallies: dict[tuple[str, str], Tally] = {}  # by queue and pool
        self._shapes: dict[tuple[object, ...], int] = {}
        self._paths: dict[str, tuple[str, ...]] = {}  # what path() has answered since the tree changed
        self._chains: dict[tuple[str, str], list[Tally]] = {}  # (project, pool) -> those up to the root
        self._classes: dict[tuple[object, ...], NodeClass] = {}
        self.places: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}  # see topology.paths
        self._journal: list[tuple[TaskKey, Placement | None]] = []
        self.version = 0  # changes whenever a claim does
        self._kept = 0  # places that were kept free in this cycle
        self._strays: dict[TaskKey, None] = {}
        self._demands: dict[str, Mapping[str, Demand]] = {}  # workload -> group; mostly empty
        self.likings: dict[object, tuple[int, ...]] = {}  # see suited.best_first
        self.shunned: dict[str, None] = {}  # nodes with a taint that puts off
        self.asked = Asked()
        self.rates: Rates = (0, 0)  # those of `asked` since the world was last settled
        self.reserves: dict[
            str, int
        ] = {}  # node type -> milli-GPUs for work that can use few types; likewise
        self._type_sizes: dict[str, int] = {}  # node type -> milli-GPUs of ready nodes
        self._bound_use: dict[
            tuple[str, str], int
        ] = {}  # (pool, node type) -> milli-GPUs that such work claims
        self._touched: dict[str, None] = {}  # workloads whose needs may have changed

    # ------------------------------------------------------------------ reading
    def tasks_of(self, workload: str) -> list[Task]:
        """Its tasks in the order of its groups and their index."""
        return [self.tasks[key] for key in self._members.get(workload, ())]

    def keys_of(self, workload: str) -> list[TaskKey]:
        return self._members.get(workload, [])

    def claim_of(self, key: TaskKey) -> Placement | None:
        """What the task claims now, hypotheses included."""
        return self._claims.get(key)

    def gpu_of(self, workload: str) -> int:
        """Milli-GPUs that it claims now."""
        total = 0
        for key in self._members.get(workload, ()):
            claim = self._claims.get(key)
            if claim is not None:
                total += claim.gpu
        return total

    def pool_of(self, node: Node | str) -> str:
        """The pool that a node is in; the default pool for an unknown one."""
        state = self.nodes.get(node if isinstance(node, str) else node.name)
        return state.pool if state is not None else DEFAULT_POOL

    def knows(self, placement: Placement) -> bool:
        """True if its node and all its devices are there."""
        node = self.nodes.get(placement.node)
        return node is not None and node.knows(placement)

    def path(self, project: str) -> tuple[str, ...]:
        """Keys of the queue tree from a project to its root."""
        found = self._paths.get(project)
        if found is None:
            row = self.projects.get(project)
            above = ancestry(self.departments, row.department) if row is not None else ()
            found = self._paths[project] = (project, *(department_key(did) for did in above))
        return found

    def tally(self, key: str, pool: str) -> Tally:
        """Sums of what a queue's tasks claim in a pool, by key of the queue tree; they follow the claims."""
        found = self._tallies.get((key, pool))
        if found is None:
            found = self._tallies[key, pool] = Tally()
        return found

    def claimed(self, key: str, pool: str) -> Resources:
        """What they claim now."""
        return self.tally(key, pool).claimed

    def use(self, key: str, pool: str) -> Use:
        """The same with the non-preemptible part of it."""
        return self.tally(key, pool).use

    def usage(self, queue: str, pool: str = DEFAULT_POOL) -> Use:
        """(claimed, non-preemptible part of it) of a project or department by id."""
        return self.use(queue if queue in self.projects else department_key(queue), pool)

    def shape_of(self, requests: tuple[object, ...]) -> int:
        """A number for what a chunk asks for: equal for equal requests."""
        return self._shapes.setdefault(requests, len(self._shapes))

    def node_class(self, pool: str, types: tuple[str, ...], spec: Spec = PLAIN) -> NodeClass:
        """Open nodes of a pool, of these types (none: all), narrowed further."""
        cls = self._classes.get((pool, types, spec))
        if cls is None:
            cls = Domain(pool, types, spec) if spec != PLAIN else NodeClass(pool, types)
            self._classes[pool, types, spec] = cls
            for name in sorted(self.nodes):
                if cls.takes(self.nodes[name]):
                    cls.add(self.nodes[name])
        return cls

    def narrowed(self, cls: NodeClass, spec: Spec) -> NodeClass:
        """The same nodes as far as they meet another spec."""
        return cls if spec == spec_of(cls) else self.node_class(cls.pool, cls.types, spec)

    def spared(self, key: TaskKey, request: Request, pool: str) -> set[str]:
        """Node types that a task that may use any should leave to those that may not."""
        workload = self.workloads.get(key[0])
        if not request.devices or workload is None or node_types(workload):
            return set()
        found = set()
        for kind, reserve in self.reserves.items():
            cls = self.node_class(pool, (kind,))
            if cls.nodes and cls.room - request.gpu < reserve - self._bound_use.get((pool, kind), 0):
                found.add(kind)
        return found

    def demand(self, key: TaskKey) -> Demand | None:
        """What a task asks of nodes besides room; None for most."""
        of_groups = self._demands.get(key[0])
        return of_groups.get(self.tasks[key].group) if of_groups else None

    def demands(self, workload: str) -> Mapping[str, Demand]:
        """The same by group; empty for most."""
        return self._demands.get(workload) or NO_DEMANDS

    # ------------------------------------------------------------------ hypotheses
    def checkpoint(self) -> int:
        """A mark to which undo() can return."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back every claim() since the mark."""
        while len(self._journal) > mark:
            key, before = self._journal.pop()
            self._set(key, before)
        if not self._journal:
            self._as_found()

    def claim(self, key: TaskKey, placement: Placement | None) -> None:
        """Let a task claim just this from now on; undone with the journal."""
        before = self._claims.get(key)
        if before is not placement:
            self._journal.append((key, before))
            self._set(key, placement)

    def keep_free(self, place: Placement) -> TaskKey:
        """Claim a place for nobody, to keep it from others for a while; under a key that no workload has."""
        key = (KEPT, str(self._kept))
        self._kept += 1
        self.tasks[key] = Task(*key, group="", index=0)
        self.claim(key, place)
        return key

    def forget_kept(self) -> None:
        """Once all of that is undone."""
        for number in range(self._kept):
            del self.tasks[KEPT, str(number)]
        self._kept = 0

    def since(self, mark: int) -> dict[TaskKey, Placement | None]:
        """What the tasks touched since the mark claim now."""
        return {key: self._claims.get(key) for key, _ in self._journal[mark:]}

    def nodes_since(self, mark: int) -> dict[str, None]:
        """Names of the nodes on which something was claimed or given back since the mark."""
        found: dict[str, None] = {}
        for key, before in self._journal[mark:]:
            for claim in (before, self._claims.get(key)):
                if claim is not None:
                    found[claim.node] = None
        return found

    def changed(self, carried: bool = False) -> list[TaskKey]:
        """Tasks whose claims are not those of their rows, sorted; `carried`: only those that carry any."""
        rows, claims = self.tasks, self._claims
        keys = {key for key, _ in self._journal if not carried or rows[key].carries is not None}
        return sorted([key for key in keys if claims.get(key) != rows[key].claims])

    # ------------------------------------------------------------------ sums
    def _set(self, key: TaskKey, placement: Placement | None) -> None:
        self.version += 1
        carries, before = self.tasks[key].carries, self._claims.get(key)
        somewhere = before or placement or carries
        node = self.nodes.get(somewhere.node) if somewhere is not None else None
        if (
            node is not None
            and (placement is None or placement.node == node.row.name)
            and (carries is None or carries.node == node.row.name)
        ):
            self._touch(key[0])
            if before is not None:
                self._charge(key, before, -1)
            if placement is None:
                self._claims.pop(key, None)
            else:
                self._claims[key] = placement
                self._charge(key, placement, 1)
            knew, knows = node.exchange(key, before, placement, carries)
            if not knew:
                self._strays.pop(key, None)
            if not knows:
                self._strays[key] = None
            return
        self._hold(key, carries, -1)
        if placement is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = placement
        self._hold(key, carries, 1)

    def _hold(self, key: TaskKey, carries: Placement | None, sign: int) -> None:
        """Count (or discount) one task on its nodes and in its queues."""
        self._touch(key[0])
        claims = self._claims.get(key)
        if claims is not None:
            self._charge(key, claims, sign)
            if carries is not None and carries.node == claims.node:
                self._seat(key, claims.node, claims, carries, sign)
                return
            self._seat(key, claims.node, claims, None, sign)
        if carries is not None:
            self._seat(key, carries.node, None, carries, sign)

    def _seat(
        self, key: TaskKey, name: str, claims: Placement | None, carries: Placement | None, sign: int
    ) -> None:
        node = self.nodes.get(name)
        if node is None or not node.account(key, claims, carries, sign):
            if sign > 0:
                self._strays[key] = None
            else:
                self._strays.pop(key, None)

    def _charge(self, key: TaskKey, claims: Placement, sign: int) -> None:
        workload = self.workloads.get(key[0])
        node = self.nodes.get(claims.node)
        if workload is None or node is None:
            return
        project, pool = workload.project, node.pool
        chain = self._chains.get((project, pool))
        if chain is None:
            chain = self._chains[project, pool] = [self.tally(it, pool) for it in self.path(project)]
        gpu, cpu, memory = sign * claims.gpu, sign * claims.cpu, sign * claims.memory
        fixed = not workload.preemptible
        for tally in chain:
            tally.add(gpu, cpu, memory, fixed)
        if gpu and (workload.node_type or workload.affinity is not None) and node_types(workload):
            seat = (pool, node.kind)
            self._bound_use[seat] = self._bound_use.get(seat, 0) + gpu

    def _charge_workload(self, wid: str, sign: int) -> None:
        for key in self._members.get(wid, ()):
            claims = self._claims.get(key)
            if claims is not None:
                self._charge(key, claims, sign)
        self._touch(wid)

    def _size(self, node: NodeState, sign: int) -> None:
        if node.row.ready:
            size = Resources(node.usable * GPU, node.row.cpu, node.row.memory)
            self.capacity[node.pool] = self.capacity.get(node.pool, NOTHING).plus(size.times(sign))

            self._type_sizes[node.kind] = self._type_sizes.get(node.kind, 0) + sign * node.usable * GPU

    def _weigh(self) -> None:
        """Let nodes be ordered by what has been asked for up to now."""
        if self.rates != self.asked.rates:
            self.rates = self.asked.rates
            for node in self.nodes.values():
                node.weigh(*self.rates)
        self.reserves = self.asked.reserves(self._type_sizes) if self.asked.bound else {}

    def _touch(self, wid: str) -> None:
        self._touched[wid] = None

    def _as_found(self) -> None:
        """No hypothesis is left."""
