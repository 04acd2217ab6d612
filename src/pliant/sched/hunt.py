"""The search for victims: make room where it costs least, place the chunk, give back what was not needed.

It tries things on the journal with the allocator that places for real, in a fixed order and within a budget
of steps, so that the same world always gives the same answer.
"""

from pliant.model.machine import Placement
from pliant.model.workload import Request
from pliant.sched import fit
from pliant.sched.clearing import Clearing
from pliant.sched.context import Cycle
from pliant.sched.kept import Kept, taken_over
from pliant.sched.machines import NodeClass, NodeState, TaskKey
from pliant.sched.nearby import Nearby
from pliant.sched.portions import Chunk, Part, Step
from pliant.sched.prices import Heaps, Prices
from pliant.sched.subgroups import constrained, tree
from pliant.sched.telling import told
from pliant.sched.victims import Cost, Rank, Rules, Unit, rank, unit_for

FEW = 16
"""Up to so many units, leaving each out is tried by placing everything anew."""


class Hunt:
    """One attempt to place one chunk by taking from others. Only success leaves the world changed."""

    def __init__(self, cycle: Cycle, rules: Rules) -> None:
        self._cycle = cycle
        self._world = cycle.world
        self._rules = rules
        self._chunk: Chunk = rules.chunk
        self._cls = cycle.nodes_for(self._chunk.workload, rules.pool)
        self._pool = cycle.pool(rules.pool)
        self._units: list[Unit] = []
        self._clearing = Clearing(cycle, rules)
        self._kept: Kept | None = None
        self._heaps: Heaps = {}  # prices that may serve the next chunk of the same kind

    def run(self) -> bool:
        if not self._rules.within_reach():
            return False
        mark = self._world.checkpoint()
        rules, kept = self._rules, self._cycle.kept
        kin = self._cycle.kin(self._chunk, rules.pool)
        self._kept = kept.pop(kin, None)
        found = self._search(mark)
        if found and self._heaps and not rules.spared:
            kept[kin] = Kept(self._heaps, rules.over, rules.ranks, mark)
        if self._rules.spared and self._better_later(mark, found):
            return False
        if not found and self._may_relocate():
            self._rules.relocates = True  # what may not be taken may stand in the way of what may
            found = self._search(mark)
        if not found:
            return False
        self._tidy()
        self._resettle()
        self._record()
        return True

    def _may_relocate(self) -> bool:
        """True if a core may be had by taking and moving together."""
        moves = self._rules.resettles and self._cycle.settings.consolidation_victims != 0
        return moves and self._chunk.step is Step.CORE and len(self._cls.nodes) > 1

    def _tidy(self) -> None:
        """Place the chunk once more, as the allocator does with the victims gone."""
        world = self._world
        if len(self._chunk.parts) < 2:
            return
        mark = world.checkpoint()
        for part in self._chunk.parts:
            world.claim(part.task, None)
        if not fit.place(world, self._cls, self._chunk, self._pool):
            world.undo(mark)

    def _rank(self, wid: str) -> Rank:
        return rank(self._rules, wid)

    def _search(self, mark: int) -> bool:
        """Find a set of victims and place the chunk; on failure the world is as at the mark."""
        self._units = []
        if self._relieve() and self._served():
            self._minimise(mark)
            if self._admitted() and self._rules.holds():
                return True
        self._world.undo(mark)
        return False

    def _better_later(self, mark: int, found: bool) -> bool:
        """True if less would be lost once the minimum run time of others has passed: worth waiting for.

        The world is as at the mark if so, otherwise as it was.
        """
        world, rules = self._world, self._rules
        units, solution = self._units, world.since(mark)
        price = self._clearing.price(units)
        world.undo(mark)
        rules.patient = False
        ideal = self._search(mark)
        better = ideal and (not found or self._clearing.price(self._units)[:2] < price[:2])
        waited_for = (
            {unit.workload for unit in self._units if unit.workload in rules.spared} if better else set()
        )
        world.undo(mark)
        rules.patient = True
        if waited_for:
            last = max(waited_for, key=lambda wid: (rules.spared[wid], wid))
            self._cycle.wake_at(rules.spared[last])
            kin = self._cycle.kin(self._chunk, rules.pool)
            self._cycle.protected[kin] = (world.workloads[last].name, rules.spared[last])
            return True
        self._units = units
        for key, claim in solution.items():
            world.claim(key, claim)
        return False

    # ------------------------------------------------------------------ limits
    def _admitted(self) -> bool:
        return not self._cycle.exceeded(self._chunk, self._rules.pool, self._rules.adding)

    def _relieve(self) -> bool:
        """Take from queues whose limit the chunk would break until it no longer does."""
        rules, world = self._rules, self._world
        while (refusal := self._cycle.refuse(self._chunk, rules.pool, rules.adding)) is not None:
            if refusal.quota:
                return False
            best: tuple[Cost, Unit] | None = None
            for project, holders in sorted(world.holders.items()):
                if refusal.key not in world.path(project):
                    continue
                for wid in sorted(holders):
                    unit = self._any_unit(wid, refusal.resource)
                    if unit is not None:
                        price = self._clearing.price([unit])
                        if best is None or price < best[0]:
                            best = (price, unit)
            if best is None or not self._clearing.spend(1):
                return False
            self._take(best[1])
        return True

    def _any_unit(self, wid: str, resource: str) -> Unit | None:
        """The least of a resource (gpu, cpu, memory) that this workload can lose in this pool."""
        found: list[Unit] = []
        for key in reversed(self._world.keys_of(wid)):
            claim = self._world.claim_of(key)
            if claim is None or self._world.pool_of(claim.node) != self._rules.pool:
                continue
            if not getattr(claim.resources, resource):
                continue
            uuid = claim.shares[-1].gpu if claim.shares else None
            unit = unit_for(self._rules, key, uuid)
            if unit is not None and unit.again is None:
                found.append(unit)
        return max(found, key=lambda unit: unit.step, default=None)

    # ------------------------------------------------------------------ one task
    def _served(self) -> bool:
        if constrained(self._chunk.workload):
            nearby = Nearby(self._world, self._units, self._clearing.price, self._serve)
            return nearby.place(self._cls, tree(self._chunk.workload), self._chunk.parts)
        parts, heaps, kept = fit.by_size(self._chunk.parts), None, self._kept
        if kept is not None:
            heaps = taken_over(kept, self._rules, self._cls, self._clearing.estimate)
        if heaps is None:
            heaps = {}
        self._kept = None  # good for one search
        self._heaps = heaps if len(parts) == 1 and not self._rules.moves else {}
        return all(self._serve(part, self._cls, heaps) for part in parts)

    def _serve(self, part: Part, cls: NodeClass, heaps: Heaps) -> bool:
        """Place one task, making room on the cheapest node."""
        if fit.place_part(self._world, cls, part, self._pool):
            return True
        if part.extends:
            claim = self._world.claim_of(part.task)
            node = self._world.nodes.get(claim.node) if claim is not None else None
            mark = self._world.checkpoint()
            return (
                node is not None
                and node.open
                and self._on(node, part) is not None
                and self._world.checkpoint() > mark
            )
        heap = heaps.get(part.request)
        if heap is None:
            heap = heaps[part.request] = self._priced(part.request, cls)
        rejected: list[tuple[Cost, str]] = []
        served = False
        while not served and (entry := heap.pop()) is not None:
            price, name = entry
            mark = self._world.checkpoint()
            now = self._on(cls.nodes[name], part, price)
            if now is None:
                continue
            if now > price:
                heap.put(name, now)
            elif self._world.checkpoint() > mark:
                served = True
                heap.put(name, now)
            else:
                rejected.append((now, name))
        for now, name in rejected:
            heap.put(name, now)
        return served

    def _priced(self, request: Request, cls: NodeClass) -> Prices:
        """All nodes that could be cleared for a request, by what that costs."""
        found = Prices()
        for name in cls.names:
            node = cls.nodes[name]
            if node.tasks and request.devices <= node.usable:
                found.put(name, self._clearing.estimate(node, request))
                if self._cycle.steps <= 0:
                    return Prices()
        return found

    def _on(self, node: NodeState, part: Part, most: Cost | None = None) -> Cost | None:
        """Clear a node and place a task there; None if that cannot be; nothing if it costs over `most`."""
        world = self._world
        mark, known = world.checkpoint(), len(self._units)
        units = self._clearing.clear(node, part.request)
        if units is None:
            return None
        price = self._clearing.price(units)
        if most is not None and price > most:
            world.undo(mark)
            return price
        self._units += units
        if not self._few() or not self._seated(node, part) or not self._moved(units):
            world.undo(mark)
            del self._units[known:]
        return price

    def _few(self) -> bool:
        """True if no more workloads move than one consolidation may."""
        most = self._cycle.settings.consolidation_victims
        if most < 0 or not (self._rules.moves or self._rules.relocates):
            return True
        moved = {unit.workload for unit in self._units if unit.again is not None}
        return most < 0 or len(moved) <= most

    def _seated(self, node: NodeState, part: Part) -> bool:
        if part.extends:
            return fit.place_part(self._world, self._cls, part, self._pool)
        self._world.claim(part.task, fit.seat(node, part.request))
        return True

    def _moved(self, units: list[Unit]) -> bool:
        """Place again what must not be lost, large before small."""
        parts = tuple(unit.again for unit in units if unit.again is not None)
        return all(self._clearing.spend(1) and self._replaced(part) for part in fit.by_size(parts))

    def _replaced(self, part: Part) -> bool:
        victim = self._world.workloads[part.task[0]]
        cls = self._cycle.nodes_for(victim, self._rules.pool)
        return fit.place_again(self._world, cls, part, self._pool)

    def _take(self, unit: Unit) -> None:
        self._clearing.apply(unit)
        self._units.append(unit)

    # ------------------------------------------------------------------ giving back
    def _minimise(self, mark: int) -> None:
        """Leave out every unit without which the chunk still fits, the most valuable first."""
        world = self._world
        if len(self._units) < 2:
            return
        if len(self._units) > FEW:
            self._restore()
            return
        solution = world.since(mark)
        for unit in sorted(self._units, key=lambda u: self._clearing.price([u]), reverse=True):
            rest = [kept for kept in self._units if kept.cause != unit.cause]  # a replay makes units anew
            known = self._units
            if len(rest) == len(known):
                continue
            if self._replay(mark, rest):
                solution = world.since(mark)
            else:
                self._units = known
                world.undo(mark)
                for key, claim in solution.items():
                    world.claim(key, claim)

    def _replay(self, mark: int, units: list[Unit]) -> bool:
        """Try a smaller set from the start; on success self._units are its units."""
        world = self._world
        world.undo(mark)
        self._units = []
        for unit in units:
            key, uuid = unit.cause
            claim = world.claim_of(key)
            if claim is None or (uuid is not None and uuid not in claim.uuids):
                continue
            again = unit_for(self._rules, key, uuid)
            if again is None or not self._clearing.spend(1):
                return False
            self._take(again)
        return (
            self._cycle.refuse(self._chunk, self._rules.pool, self._rules.adding) is None
            and self._clearing.spend(len(self._chunk.parts))
            and fit.place(world, self._cls, self._chunk, self._pool)
            and self._moved(self._units)
            and self._rules.holds()
        )

    def _restore(self) -> None:
        """Give back whole victims whose old places are still free."""
        world = self._world
        moved = {unit.workload for unit in self._units if unit.again is not None}
        kept: set[str] = set()
        for wid in sorted({unit.workload for unit in self._units} - moved, key=self._rank, reverse=True):
            before = self._clearing.before[wid]
            mark = world.checkpoint()
            for key in before:
                world.claim(key, None)
            if all(self._reclaimed(key, claim) for key, claim in before.items()) and self._admitted():
                kept.add(wid)
            else:
                world.undo(mark)
        self._units = [unit for unit in self._units if unit.workload not in kept]

    def _reclaimed(self, key: TaskKey, claim: Placement | None) -> bool:
        """Give a task its old claim back if there is still room for it."""
        if claim is None:
            return True
        node = self._world.nodes.get(claim.node)
        if (
            node is None
            or claim.cpu > node.free_cpu
            or claim.memory > node.free_memory
            or not all(node.devices[share.gpu].room(share.portion, share.memory) for share in claim.shares)
        ):
            return False
        self._world.claim(key, claim)
        return True

    def _resettle(self) -> None:
        """Place victims that lost their core on what is left, the most valuable first."""
        if not self._rules.resettles:
            return
        world = self._world
        self._cycle.room_freed()
        hopeless: set[object] = set()  # claims only grow here
        victims = {unit.workload for unit in self._units if unit.step is Step.CORE and unit.again is None}
        for wid in sorted(victims, key=self._rank, reverse=True):
            chunk = world.need(wid).chunk
            if chunk is not None and chunk.step is Step.CORE and not self._cycle.rests(chunk):
                kin = self._cycle.kin(chunk, self._rules.pool)
                adding = self._cycle.adding(chunk, self._rules.pool)
                if kin not in hopeless and not self._cycle.try_place(chunk, self._rules.pool, adding):
                    hopeless.add(kin)

    # ------------------------------------------------------------------ telling
    def _record(self) -> None:
        taken: dict[str, list[Unit]] = {}
        for unit in self._units:
            taken.setdefault(unit.workload, []).append(unit)
        for wid, units in taken.items():
            decision = told(self._rules, wid, units, self._clearing.before[wid])
            if decision is not None:
                self._cycle.record(decision)
