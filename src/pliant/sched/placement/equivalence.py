"""Kin: chunks that every action treats alike; and where workloads may go, found out once a cycle."""

from pliant.model.machine import NodePool
from pliant.model.workload import Workload
from pliant.sched.placement import affinity, eligibility
from pliant.sched.settings import Settings
from pliant.sched.world.nodes import NodeClass
from pliant.sched.world.portions import Chunk
from pliant.sched.world.state import World

Kin = int
"""What chunks have in common that every action treats alike in one pool; see Destinations.kin."""


class Destinations:
    """Where workloads of a world may go, as long as nothing but claims changes."""

    def __init__(self, world: World, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self._choices: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # of those that hold nothing
        self._nodes: dict[tuple[object, ...], NodeClass] = {}
        self._nodes_of_kin: dict[Kin, NodeClass] = {}  # of those whose groups have no demands
        self._never: dict[Kin, bool] = {}
        self._kinds: dict[tuple[object, ...], Kin] = {}
        self._kins: dict[str, tuple[Chunk, str, Kin]] = {}  # workload -> what kin() has answered last

    def kin(self, chunk: Chunk, pool: str) -> Kin:
        """Equal for chunks of one project that ask for the same under the same conditions."""
        it = chunk.workload
        known = self._kins.get(it.id)
        if known is not None and known[0] is chunk and known[1] == pool:
            return known[2]
        fills = it.max_runtime if self.settings.reservation else None  # it tells who may fill in
        bound = chunk.parts[0].task if chunk.extends else None
        owner = (pool, it.project, it.kind, it.preemptible, it.node_type, fills)
        kind = (*owner, chunk.priority, chunk.step, chunk.shape, bound)
        kin = self._kinds.setdefault(kind, len(self._kinds))
        self._kins[it.id] = chunk, pool, kin
        return kin

    def placeable(self, workload: str) -> bool:
        """True if the workload and its project are known."""
        row = self.world.workloads.get(workload)
        return row is not None and row.project in self.world.projects

    def choices(self, workload: Workload) -> list[str]:
        """Pools to try, in order."""
        if self.world.need(workload.id).holds:
            return eligibility.choices(self.world, workload)
        key = (workload.project, workload.pools)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = eligibility.choices(self.world, workload)
        return found

    def nodes_for(self, workload: Workload, pool: str) -> NodeClass:
        wheres = affinity.wheres_of(self.world, workload)
        key = (pool, workload.project, workload.kind, workload.node_type, wheres)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = eligibility.nodes_for(self.world, workload, pool)
        return found

    def class_for(self, chunk: Chunk, pool: str) -> NodeClass:
        """The same, found by kin where all that decides is part of it."""
        if self.world.demands(chunk.workload.id):
            return self.nodes_for(chunk.workload, pool)
        kin = self.kin(chunk, pool)
        found = self._nodes_of_kin.get(kin)
        if found is None:
            found = self._nodes_of_kin[kin] = self.nodes_for(chunk.workload, pool)
        return found

    def pool(self, name: str) -> NodePool:
        return self.world.pools.get(name) or NodePool(name, name)

    def never_fits(self, chunk: Chunk, pool: str) -> bool:
        """True if even an empty pool could not hold it."""
        kin = self.kin(chunk, pool)
        found = self._never.get(kin)
        if found is None:
            found = self._never[kin] = eligibility.never_fits(
                self.world, chunk, self.nodes_for(chunk.workload, pool)
            )
        return found
