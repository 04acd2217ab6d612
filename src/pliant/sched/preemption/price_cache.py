"""Prices of victims and of clearing nodes, calculated once for many searches.

Its values are valid while the order of the projects that lose is the same. The price of a node is valid only
if the node has not changed since the mark; the others are calculated again.
"""

from collections.abc import Collection

from pliant.sched.preemption.attempt import Cost, Estimate, Heaps, Rank, Unit, UnitRank
from pliant.sched.preemption.eviction_order import EvictionOrder, Turn
from pliant.sched.shares.entitlement import Entitlement
from pliant.sched.world.chunks import Step, core_priority
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import Device
from pliant.sched.world.state import World

WALKED = 200
"""Up to this many holders the order is recalculated after each loss; above, queues keep their first order."""

Priced = tuple[Cost, int, Unit]  # the cost of freeing a device, its index, and the one unit to take


class PriceCache:
    """The prices for the chunks of one project and pool that one policy treats alike."""

    def __init__(self, shares: Entitlement, world: World, pool: str, *, youngest: bool, moves: bool) -> None:
        self._world = world
        self._shares = shares
        self._pool = pool
        self.youngest = youngest  # only the order of victims counts
        self._moves = moves
        walks = youngest and sum(map(len, world.holders.values())) <= WALKED
        self._order = EvictionOrder(world, pool, shares.standing(pool)) if walks else None
        self._ranks: dict[str, tuple[Rank, bool, bool]] = {}  # what _ranked() has answered
        self.alone: dict[Device, tuple[int, Priced]] = {}  # device -> stamp, answer of _only()
        self.simple: dict[str, tuple[int, list[Priced] | None]] = {}  # node -> stamp, answer of _simple()
        self.heaps: Heaps = {}  # from the previous search: valid for one attempt
        self.mark = 0  # the mark of the journal at which the heaps were valid
        self._turns = self._turns_now()

    def still_holds(self) -> bool:
        """True if the projects that lose are in the same order as before."""
        return self._order is None and self._turns_now() == self._turns

    def _turns_now(self) -> dict[str, int]:
        """Project -> its place among those that lose: by rank and excess over its due, from the root down."""
        world, standing, found = self._world, self._shares.standing(self._pool), dict[str, list[int]]()
        for project in [it for it, holders in world.holders.items() if holders and it in world.projects]:
            turn = found[project] = []
            for key in reversed(world.path(project)):
                have, due = world.tally(key, self._pool).gpu, standing[key].allocatable.gpu
                turn += standing[key].rank, -((have << 32) // max(1, due))
        order = sorted(found.values())
        return {project: order.index(turn) for project, turn in found.items()}

    def carried(self, cls: NodeClass, estimate: Estimate) -> Heaps:
        """The prices of the previous search, recalculated for changed nodes; {} at the second call."""
        heaps, self.heaps = self.heaps, {}
        for name in self._world.nodes_since(self.mark) if heaps else ():
            for (request, spec), heap in heaps.items():
                nodes = self._world.narrowed(cls, spec).nodes
                if name in nodes:
                    heap.put(name, estimate(nodes[name], request))
        return heaps

    def _queue(self, project: str, turn: Turn) -> int:
        """The place of a project among those that lose, or of this portion among all that could be lost."""
        return self._turns.get(project, 0) if self._order is None else self._order.place(project, turn)

    def rank(self, wid: str) -> Rank:
        """The sort key of a victim when nothing else decides: smaller is lost first.

        On each level the queue of the lowest rank, then the one most above its fair share; then the lowest
        priority, then the youngest.
        """
        return (self._ranks.get(wid) or self._ranked(wid))[0]

    def _ranked(self, wid: str) -> tuple[Rank, bool, bool]:
        """(rank(), True if taking all it has costs nothing, True if it is background work)."""
        row = self._world.workloads[wid]
        priority, age = core_priority(row), -row.serial
        queue = self._queue(row.project, (priority, -Step.CORE, age, 0, wid))
        free = (self.youngest and row.background) or self._world.given_now(wid)
        return self._ranks.setdefault(wid, ((queue, priority, age, wid), free, row.background))

    def of(self, units: Collection[Unit]) -> Cost:
        """The cost of a set of units."""
        cores: list[str] = []
        gpu, workloads = 0, self._world.workloads
        ranks: list[UnitRank] = []
        for unit in units:
            wid = unit.workload
            rank, free, background = self._ranks.get(wid) or self._ranked(wid)
            if free:
                continue
            queue, age, tail = rank[0], rank[2], 0
            if unit.again is not None:  # the fewest GPUs moved, then the last task
                moved = sum(it.gpu for it in units if it.workload == wid and it.again is not None)
                tail = (moved << 16) - self._world.tasks[unit.again.task].index
            elif unit.step is not Step.CORE:
                tail = self._tail(unit)
                queue = self._queue(workloads[wid].project, (unit.priority, -unit.step, age, tail, wid))
            ranks.append((queue, unit.priority, -unit.step, age, tail, wid))
            if not background:  # background work goes first
                gpu += unit.gpu
                if unit.step is Step.CORE and (self._moves or unit.again is None):
                    cores.append(wid)
        if len(ranks) > 1:
            ranks = sorted(set(ranks), reverse=True)
        return (0, 0, tuple(ranks)) if self.youngest else (len(set(cores)), gpu, tuple(ranks))

    def _tail(self, unit: Unit) -> int:
        """The place of a surplus task: the last of its group goes first; then sub-groups, the last first."""
        if len(unit.changes) == 1:  # of an elastic task 0: it is the only one of its group
            return -self._world.tasks[unit.cause[0]].index
        keys = self._world.keys_of(unit.workload)
        return len(keys) - keys.index(unit.changes[0][0])
