"""What is claimed and carried where: tasks, nodes and queues with their sums, and a journal with undo."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pliant.model.booking import Booking
from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import DEFAULT_POOL, Node, NodePool, Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.tenancy import Department, Project, Queue
from pliant.model.topology import Topology
from pliant.model.workload import Task, TaskKey, Workload
from pliant.sched.world.asked import Asked, Rates, node_types
from pliant.sched.world.chunks import SERVED, Chunk, Need
from pliant.sched.world.guaranteed import guaranteed
from pliant.sched.world.holdings import Guard, Holdings
from pliant.sched.world.node_affinity import NO_DEMANDS, Demand
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.queue_tree import NOTHING, children_of, department_key, path_of
from pliant.sched.world.share_worth import Worth, mix_of, worth
from pliant.sched.world.subgroups import constrained
from pliant.sched.world.tally import QueueUse, Returned, Tally, plainly_charged

KEPT = "\0kept"
"""The workload id of placeholders, which keep places free."""


class Claims(Holdings):
    """The part of the world that a hypothesis changes. Sums are kept incrementally."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: dict[str, NodePool] = {DEFAULT_POOL: NodePool(DEFAULT_POOL, DEFAULT_POOL)}  # by name
        self.departments: dict[str, Department] = {}
        self.projects: dict[str, Project] = {}
        self.nodes: dict[str, NodeState] = {}
        self.topologies: dict[str, Topology] = {}  # by name
        self.past_uses: dict[tuple[str, str], PastUse] = {}  # by project and pool
        self.disruptions: dict[str, Disruptions] = {}  # by project
        self.bookings: dict[str, Booking] = {}  # by id
        self.guard: Guard | None = None  # only within a cycle, and only if something is booked
        self.capacity: dict[str, Resources] = {}  # of ready nodes, by pool
        self._tallies: dict[tuple[str, str], Tally] = {}  # by queue and pool
        self._paths: dict[str, tuple[str, ...]] = {}  # answers of path() since the tree changed
        self._children: Mapping[str | None, Sequence[str]] = {}  # likewise of children()
        self._chains: dict[tuple[str, str], list[Tally]] = {}  # (project, pool) -> tallies up to the root
        self._journal: list[tuple[TaskKey, Placement | None]] = []
        self.version = 0  # changes whenever a claim does
        self._kept = 0  # placeholders that were made in this cycle
        self._strays: dict[TaskKey, None] = {}
        self._demands: dict[str, Mapping[str, Demand]] = {}  # workload -> group; mostly empty
        self.asked = Asked()
        self.rates: Rates = (0, 0)  # of `asked`, at the last update of the sets
        self.worth: Worth = ()  # of what is left of a device, by the shares of `asked`; likewise
        self.reserves: dict[str, int] = {}  # node type -> milli-GPUs for work that can use few; likewise
        self._type_sizes: dict[str, int] = {}  # node type -> milli-GPUs of ready nodes
        self.bound_use: dict[tuple[str, str], int] = {}  # (pool, node type) -> what such work claims
        # Semi-preemptible workload -> pool -> its claims there, and what of them counts as non-preemptible.
        self._semi: dict[str, dict[str, dict[TaskKey, Placement]]] = {}
        self._guaranteed: dict[tuple[str, str], Resources] = {}
        self._touched: dict[str, None] = {}  # workloads whose needs may have changed
        self._needs: dict[str, Need] = {}
        self._needs_found: dict[str, Need | None] = {}  # what needs were before a hypothesis touched them

    # ------------------------------------------------------------------ reading
    def pool_of(self, node: Node | str) -> str:
        """The pool that a node is in; the default pool for an unknown one."""
        state = self.nodes.get(node if isinstance(node, str) else node.name)
        return state.pool if state is not None else DEFAULT_POOL

    def queue_of(self, key: str) -> Queue:
        """The row behind a key of the queue tree."""
        if key in self.projects:
            return self.projects[key]
        return self.departments[key.removeprefix(department_key(""))]

    def level_of(self, key: str) -> Literal["project", "department"]:
        """What is behind a key of the queue tree."""
        return "project" if key in self.projects else "department"

    def _forget_tree(self) -> None:
        """Drop what is cached of the queue tree."""
        self._paths.clear()
        self._chains.clear()
        self._children = {}

    def children(self) -> Mapping[str | None, Sequence[str]]:
        """Keys of the queues right below each department (by id), or below None at the top."""
        if not self._children:
            self._children = children_of(self.projects, self.departments)
        return self._children

    def knows(self, placement: Placement) -> bool:
        """True if its node and all its devices are there."""
        node = self.nodes.get(placement.node)
        return node is not None and node.knows(placement)

    def path(self, project: str) -> tuple[str, ...]:
        """Keys of the queue tree from a project to its root."""
        found = self._paths.get(project)
        if found is None:
            found = self._paths[project] = path_of(self.projects, self.departments, project)
        return found

    def tally(self, key: str, pool: str) -> Tally:
        """Sums of what a queue's tasks claim in a pool, by key of the queue tree; updated with the claims."""
        found = self._tallies.get((key, pool))
        if found is None:
            found = self._tallies[key, pool] = Tally()
        return found

    def claimed(self, key: str, pool: str) -> Resources:
        """What the tasks of a queue claim in a pool now."""
        return self.tally(key, pool).claimed

    def use(self, key: str, pool: str) -> QueueUse:
        """claimed() with the non-preemptible part of it."""
        return self.tally(key, pool).use

    def usage(self, queue: str, pool: str = DEFAULT_POOL) -> QueueUse:
        """(claimed, non-preemptible part of it) of a project or department by id."""
        return self.use(queue if queue in self.projects else department_key(queue), pool)

    def demand(self, key: TaskKey) -> Demand | None:
        """What a task asks of nodes besides room; None for most."""
        of_groups = self._demands.get(key[0])
        return of_groups.get(self.tasks[key].group) if of_groups else None

    def demands(self, workload: str) -> Mapping[str, Demand]:
        """demand() by group; empty for most."""
        return self._demands.get(workload) or NO_DEMANDS

    def nearness(self, workload: Workload, keys: Sequence[TaskKey]) -> tuple[object, ...]:
        """Its topology constraints, its demands and, if it has a place that binds it, its id; () for most."""
        near, asked = constrained(workload), self.demands(workload.id)
        if not (near or asked):
            return ()
        names = tuple(self.tasks[key].group for key in keys)
        demands = tuple(asked[name] for name in names) if asked else ()
        if not near and not any(demand.apart for demand in demands):
            return demands
        groups = tuple((group.name, group.parent, group.within) for group in workload.groups)
        begun = any(self.claim_of(key) is not None for key in self.keys_of(workload.id))
        return (workload.within, workload.subgroups, groups, names, workload.id if begun else "", demands)

    def claims_on(self, node: NodeState) -> Iterator[tuple[TaskKey, Placement]]:
        """What is claimed on a node, by task."""
        for key in node.tasks:
            claim = self.claim_of(key)
            if claim is not None and claim.node == node.row.name:
                yield key, claim

    # ------------------------------------------------------------------ hypotheses
    def checkpoint(self) -> int:
        """A mark to which undo() can return."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Undo every claim() since the mark, in one step for each task."""
        journal, returned, partly = self._journal, Returned(), mark > 0
        then = dict(reversed(journal[mark:])) if len(journal) > mark else {}
        del journal[mark:]
        for key, before in then.items():
            if before is not None or not self._given_back(key, returned, partly):
                returned.tell_node()
                if self._claims.get(key) is not before:
                    self._set(key, before)
        returned.tell_node()
        for (project, pool, fixed), (gpu, cpu, memory) in returned.sums.items():
            for tally in self._chains[project, pool]:
                tally.add(-gpu, -cpu, -memory, fixed)
        if not journal:
            self._as_found()

    def claim(self, key: TaskKey, placement: Placement | None) -> None:
        """Replace the claim of a task; undo() restores the old one."""
        before = self._claims.get(key)
        if before is not placement:
            self._journal.append((key, before))
            self._set(key, placement)

    def take(self, chunk: Chunk, place: Placement, chain: Sequence[Tally] | None) -> None:
        """Claim whole devices that no other task has, for the one task of a chunk, which has nothing.

        The node is told by NodeState.take(). `chain`: all sums in which it counts; None: look them up.
        """
        key = chunk.parts[0].task
        wid = key[0]
        self._journal.append((key, None))
        self.version += 1
        self._touched[wid] = None  # as _touch() does
        self._needs_found.setdefault(wid, self._needs.pop(wid, None))
        if chunk.alone:
            self._needs[wid] = SERVED
        self._claims[key] = place
        if chain is None:
            self._charge(key, place, self.nodes[place.node], 1)
        else:
            gpu, fixed = len(place.shares) * GPU, not chunk.workload.preemptible
            for tally in chain:
                tally.add(gpu, place.cpu, place.memory, fixed)

    def _given_back(self, key: TaskKey, returned: Returned, partly: bool) -> bool:
        """Undo take(), if the task is still alone on what it claims; else False, with nothing changed.

        What its node and its queues lose is added to `returned`.
        """
        place = self._claims.get(key)
        if place is None or self.tasks[key].carries is not None:
            return False
        wid = key[0]
        node, workload = self.nodes.get(place.node), self.workloads.get(wid)
        if node is None or workload is None or not plainly_charged(workload) or not node.give(key, place):
            return False
        self.version += 1
        del self._claims[key]
        if partly:
            self._touch(wid)
        else:
            self._touched[wid] = None  # _as_found() restores its need
        returned.add(node, place, (workload.project, node.pool, not workload.preemptible))
        return True

    def seat(self, key: TaskKey, place: Placement) -> bool:
        """Claim a place with room; False, with nothing changed, if it is kept for others."""
        if self.guard is not None and not self.guard.admits(key, place):
            return False
        self.claim(key, place)
        return True

    def keep_free(self, place: Placement) -> TaskKey:
        """Claim a place to keep it free for a while; returns the key of the placeholder."""
        key = (KEPT, str(self._kept))
        self._kept += 1
        self.tasks[key] = Task(*key, group="", index=0)
        self.claim(key, place)
        return key

    def forget_kept(self) -> None:
        """Delete the placeholders, once their claims are undone."""
        for number in range(self._kept):
            del self.tasks[KEPT, str(number)]
        self._kept = 0

    def since(self, mark: int) -> dict[TaskKey, Placement | None]:
        """The present claims of the tasks touched since the mark."""
        return {key: self._claims.get(key) for key, _ in self._journal[mark:]}

    def replay(self, claims: Mapping[TaskKey, Placement | None]) -> None:
        """Repeat the claims that since() returned before they were undone."""
        for key, claim in claims.items():
            self.claim(key, claim)

    def nodes_since(self, mark: int) -> dict[str, None]:
        """Names of the nodes on which something was claimed or given back since the mark."""
        both = [(before, self._claims.get(key)) for key, before in self._journal[mark:]]
        return {claim.node: None for claims in both for claim in claims if claim is not None}

    def changed(self, moved: bool = False) -> list[TaskKey]:
        """Tasks whose claims differ from their rows, sorted; `moved`: only those that claim and carry."""
        rows, claims, keys = self.tasks, self._claims, {key: None for key, _ in self._journal}
        if moved:
            keys = {key: None for key in keys if key in claims and rows[key].carries is not None}
        found: list[TaskKey] = []
        for key in keys:
            was, now = rows[key].claims, claims.get(key)
            if was is not now and (was is None or now is None or was != now):
                found.append(key)
        return sorted(found)

    # ------------------------------------------------------------------ sums
    def _set(self, key: TaskKey, placement: Placement | None) -> None:
        self.version += 1
        carries, before = self.tasks[key].carries, self._claims.get(key)
        somewhere = before or placement or carries
        node = self.nodes.get(somewhere.node) if somewhere is not None else None
        name = node.row.name if node is not None else ""
        here = placement is None or placement.node == name
        if node is None or not here or (carries is not None and carries.node != name):
            self._hold(key, carries, -1)
            self._assign(key, placement)
            self._hold(key, carries, 1)
            return
        self._touch(key[0])
        if before is not None:
            self._charge(key, before, node, -1)
        if placement is not None:
            self._charge(key, placement, node, 1)
        self._assign(key, placement)
        knew, knows = node.exchange(key, before, placement, carries)
        if not knew:
            self._strays.pop(key, None)
        if not knows:
            self._strays[key] = None

    def _hold(self, key: TaskKey, carries: Placement | None, sign: int) -> None:
        """Count (or discount) one task on its nodes and in its queues."""
        self._touch(key[0])
        claims, known = self._claims.get(key), True
        if claims is not None:
            node = self.nodes.get(claims.node)
            both = carries is not None and carries.node == claims.node
            if node is not None:
                self._charge(key, claims, node, sign)
            known = node is not None and node.account(key, claims, carries if both else None, sign)
            carries = None if both else carries
        if carries is not None:
            node = self.nodes.get(carries.node)
            known = node is not None and node.account(key, None, carries, sign) and known
        if not known:
            if sign > 0:
                self._strays[key] = None
            else:
                self._strays.pop(key, None)

    def _charge(self, key: TaskKey, claims: Placement, node: NodeState, sign: int) -> None:
        workload = self.workloads.get(key[0])
        if workload is None:
            return
        pool = node.pool
        chain = self._chains.get((workload.project, pool)) or self.chain(workload.project, pool)
        gpu, cpu, memory = sign * claims.gpu, sign * claims.cpu, sign * claims.memory
        fixed = not (workload.preemptible or workload.semi_preemptible)
        for tally in chain:
            tally.add(gpu, cpu, memory, fixed)
        if workload.semi_preemptible:
            held = self._semi.setdefault(workload.id, {}).setdefault(pool, {})
            if sign > 0:
                held[key] = claims
            else:
                del held[key]
            self._guarantee(workload)
        if gpu and (workload.node_type or workload.affinity is not None) and node_types(workload):
            seat = (pool, node.kind)
            self.bound_use[seat] = self.bound_use.get(seat, 0) + gpu

    def chain(self, project: str, pool: str) -> Sequence[Tally]:
        """The sums of a project and of the queues above it in a pool."""
        chain = self._chains.get((project, pool))
        if chain is None:
            chain = self._chains[project, pool] = [self.tally(it, pool) for it in self.path(project)]
        return chain

    def _guarantee(self, workload: Workload) -> None:
        """Count the core that a semi-preemptible workload holds as non-preemptible."""
        for pool, held in self._semi.get(workload.id, {}).items():
            now = guaranteed(workload, held, [self.tasks[key] for key in self._members.get(workload.id, ())])
            was = self._guaranteed.get((workload.id, pool), NOTHING)
            if now != was:
                self._guaranteed[workload.id, pool] = now
                for queue in self.path(workload.project):
                    self.tally(queue, pool).fix(*now.minus(was))

    def _charge_workload(self, wid: str, sign: int) -> None:
        for key in self._members.get(wid, ()):
            claims = self._claims.get(key)
            node = self.nodes.get(claims.node) if claims is not None else None
            if claims is not None and node is not None:
                self._charge(key, claims, node, sign)
        self._touch(wid)

    def _size(self, node: NodeState, sign: int) -> None:
        if node.row.ready:
            size = Resources(node.usable * GPU, node.row.cpu, node.row.memory)
            self.capacity[node.pool] = self.capacity.get(node.pool, NOTHING).plus(size.times(sign))
            self._type_sizes[node.kind] = self._type_sizes.get(node.kind, 0) + sign * node.usable * GPU

    def _weigh(self) -> None:
        """Order nodes by what has been asked for up to now."""
        if self.rates != self.asked.rates:
            self.rates = self.asked.rates
            for node in self.nodes.values():
                node.weigh(*self.rates)
        if self.asked.shares_changed:
            self.worth, self.asked.shares_changed = worth(mix_of(self.asked.shares)), False
        self.reserves = self.asked.reserves(self._type_sizes) if self.asked.bound else {}

    def _touch(self, wid: str) -> None:
        """Note that the need of a workload may have changed."""
        self._touched[wid] = None
        need = self._needs.pop(wid, None)
        if self._journal and wid not in self._needs_found:
            self._needs_found[wid] = need

    def _as_found(self) -> None:
        """Restore the needs, once no hypothesis is left."""
        for wid, need in self._needs_found.items():
            if need is not None:
                self._needs[wid] = need
            else:
                self._needs.pop(wid, None)
        self._needs_found.clear()
