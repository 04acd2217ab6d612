"""Topology search: for work that must be in one domain each domain is tried, and the cheapest is kept."""

from collections.abc import Callable, Sequence

from pliant.model.machine import Placement
from pliant.model.workload import TaskGroup, TaskKey
from pliant.sched.placement import fit, topology
from pliant.sched.preemption.attempt import Cost, Heaps, Unit
from pliant.sched.world.chunks import Part
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import Level


class TopologySearch:
    """Places a chunk along its tree. `units` is what was taken: undone together with the journal."""

    def __init__(
        self,
        world: World,
        units: list[Unit],
        price: Callable[[list[Unit]], Cost],
        serve: Callable[[Part, NodeClass, Heaps], bool],
    ) -> None:
        self._world = world
        self._units = units
        self._price = price
        self._serve = serve

    def place(self, cls: NodeClass, branch: Level | TaskGroup, parts: Sequence[Part]) -> bool:
        """Place one part of the tree; after a failure some of it may be placed."""
        world, units = self._world, self._units
        mine = topology.parts_of(world, branch, parts)
        if branch.within is None or not branch.within.required or not mine or mine[0].extends:
            return self._inside(cls, branch, mine)
        best: tuple[Cost, dict[TaskKey, Placement | None], list[Unit]] | None = None
        mark, known = world.checkpoint(), len(units)
        for nodes in topology.bounds(world, cls, branch.within, branch, mine):
            if topology.holds(nodes, mine, empty=True) < len(mine):
                continue
            if self._inside(nodes, branch, mine):
                price = self._price(units[known:])
                if best is None or price < best[0]:
                    best = (price, world.since(mark), units[known:])
            world.undo(mark)
            del units[known:]
        if best is None:
            return False
        for key, claim in best[1].items():
            world.claim(key, claim)
        units += best[2]
        return True

    def _inside(self, cls: NodeClass, branch: Level | TaskGroup, parts: Sequence[Part]) -> bool:
        rest = list(parts)
        for child in branch.children if isinstance(branch, Level) else ():
            if topology.branch_within(child):
                if not self.place(cls, child, parts):
                    return False
                placed = topology.parts_of(self._world, child, parts)
                rest = [part for part in rest if part not in placed]
        heaps: Heaps = {}
        return all(self._serve(part, cls, heaps) for part in fit.by_size(rest))
