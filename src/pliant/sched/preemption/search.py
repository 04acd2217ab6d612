"""The search for victims: make room where it costs least, place the chunk, give back what was not needed.

It tries things on the journal with the allocator that places for real, in a fixed order and within a budget
of steps, so that the same world always gives the same answer.
"""

from functools import partial

from pliant.model.quantity import GPU
from pliant.model.workload import Request
from pliant.sched.actions.context import Cycle
from pliant.sched.placement import affinity, fit
from pliant.sched.placement.staying import given_back
from pliant.sched.preemption.kept import Kept, taken_over
from pliant.sched.preemption.moving import placed_again, resettle
from pliant.sched.preemption.nearby import Nearby
from pliant.sched.preemption.node_eviction import Clearing
from pliant.sched.preemption.price_cache import Heaps, Prices
from pliant.sched.preemption.refine import begun_with_another, lighter
from pliant.sched.preemption.relief import Relief
from pliant.sched.preemption.telling import tell
from pliant.sched.preemption.victims import Cost, Rules, Unit, rank, unit_for
from pliant.sched.world.node_classes import spec_of
from pliant.sched.world.nodes import NodeClass, NodeState
from pliant.sched.world.portions import Chunk, Part, Step
from pliant.sched.world.subgroups import constrained, tree

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
        self._effort = len(self._cls.nodes) * len(self._chunk.parts)  # of one more search
        self._clearing = Clearing(cycle, rules)
        self._kept: Kept | None = None
        self._last: Part | None = None  # with it the whole outcome can be judged
        self._puts_off = False  # who moves is placed again when there is room for all of the chunk
        self._heaps: Heaps = {}  # prices that may serve the next chunk of the same kind

    def run(self) -> bool:
        if not self._rules.within_reach():
            return False
        mark = self._world.checkpoint()
        rules, kept = self._rules, self._cycle.kept
        kin = self._cycle.kin(self._chunk, rules.pool)
        self._kept = kept.pop(kin, None)
        found = self._search(mark)
        if found and self._heaps and not (rules.spared or rules.shelter):
            kept[kin] = Kept(self._heaps, rules, self._clearing.by_node, mark)
        if self._rules.spared and self._better_later(mark, found):
            return False
        if not found and self._may_relocate():
            self._rules.relocates = True  # what may not be taken may stand in the way of what may
            found = self._search(mark)
        if not found:
            self._withheld(mark)
            return False
        fit.tidy(self._world, self._cls, self._chunk, self._pool)
        resettle(rules, self._units)
        if rules.in_turn and not rules.holds():  # with victims in their places again it is another outcome
            self._world.undo(mark)
            kept.pop(kin, None)
            return False
        tell(self._rules, self._units, self._clearing.before)
        return True

    def _may_relocate(self) -> bool:
        """True if a core may be had by taking and moving together."""
        moves = self._rules.resettles and self._cycle.settings.consolidation_victims != 0
        return moves and self._chunk.step is Step.CORE and len(self._cls.nodes) > 1

    def _withheld(self, mark: int) -> None:
        """Remember whose budget it is that the chunk waits for, if it would fit without."""
        rules, cycle = self._rules, self._cycle
        if not rules.denied:
            return
        rules.shelter, rules.unbounded = set(), True
        if self._search(mark):
            self._world.undo(mark)
            project = min(rules.denied, key=lambda each: (cycle.churn.until(each), each))
            cycle.withheld[cycle.kin(self._chunk, rules.pool)] = project
            cycle.wake_at(cycle.churn.until(project))

    def _search(self, mark: int) -> bool:
        """Find a set of victims and place the chunk; on failure the world is as at the mark.

        Where it takes more from a project than its budget allows, another is sought without that project.
        """
        rules = self._rules
        while not self._sought(mark):
            more = rules.overdrawn - rules.shelter
            rules.overdrawn.clear()
            if not more:
                return False
            rules.shelter |= more
            rules.denied |= more
        return True

    def _sought(self, mark: int) -> bool:
        """What would come straight back is avoided from the start only where it was found otherwise."""
        rules = self._rules
        rules.wary = rules.fleeting = False
        if self._found(mark):
            return True
        rules.wary = rules.fleeting
        return rules.wary and self._found(mark)

    def _found(self, mark: int) -> bool:
        rules = self._rules
        if self._tried(mark, False) or (rules.lacking() is not None and self._tried(mark, True)):
            return True
        again = partial(self._again, mark)
        if not (rules.in_turn and begun_with_another(rules, self._clearing, mark, self._effort, again)):
            return False
        self._refine(mark)
        return True

    def _tried(self, mark: int, own_rule: bool) -> bool:
        """`own_rule`: it takes first what its own rule asks for, not what is cheapest."""
        if self._taken(mark, [], own_rule):
            self._refine(mark)
            return True
        self._world.undo(mark)
        return False

    def _taken(self, mark: int, first: list[Unit], own_rule: bool) -> bool:
        """Place the chunk; what was taken first is among the victims. On failure the caller undoes."""
        self._units = first
        if not (Relief(self._clearing, self._rules, own_rule).taken(self._units) and self._served()):
            return False
        self._minimise(mark)
        return self._kept_to() and self._rules.lasts(self._units, self._clearing.before)

    def _refine(self, mark: int) -> None:
        """Put a lighter set of victims in the place of the one that was found, if there is one."""
        if self._rules.moves or not self._units or len(self._units) > FEW:
            return
        if len(self._units) == 1 and self._units[0].gpu <= self._rules.adding.gpu:
            return  # what is taken of one alone, and no more than is asked for
        found, heaps, again = self._units, self._heaps, partial(self._again, mark)
        self._units = lighter(self._rules, self._clearing, mark, found, self._effort, again)
        self._heaps = heaps if self._units is found else {}  # prices of nodes that changed are not known then

    def _again(self, mark: int, first: list[Unit]) -> list[Unit] | None:
        return self._units if self._taken(mark, first, False) else None

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
            self._cycle.wake_at(min(rules.spared.values()))  # another, as good, may be free to go before
            kin = self._cycle.kin(self._chunk, rules.pool)
            self._cycle.protected[kin] = last, rules.spared[last], rules.guarantee(world.workloads[last])
            return True
        self._units = units
        for key, claim in solution.items():
            world.claim(key, claim)
        return False

    # ------------------------------------------------------------------ limits
    def _admitted(self) -> bool:
        return not self._cycle.exceeded(self._chunk, self._rules.pool, self._rules.adding)

    def _kept_to(self) -> bool:
        """True if what stands now keeps all limits and rules."""
        return self._admitted() and self._rightful() and self._rules.bearable(self._units)

    def _rightful(self) -> bool:
        rules = self._rules
        return rules.holds() and (not rules.wary or rules.lasts(self._units, self._clearing.before))

    # ------------------------------------------------------------------ one task
    def _served(self) -> bool:
        """Place the chunk, making room for it; on failure the caller undoes.

        Where work is moved, room is made for all before anybody is placed again: so nobody is moved to where
        room is made next, and who moves does not depend on what nodes are called.
        """
        if len(self._chunk.parts) < 2 or not (self._rules.moves or self._rules.relocates):
            return self._all_served()
        mark, known = self._world.checkpoint(), len(self._units)
        self._puts_off = True
        served = self._all_served()
        self._puts_off = False
        if not served or self._settled(self._units[known:]):
            return served
        self._world.undo(mark)
        del self._units[known:]
        return self._all_served()

    def _all_served(self) -> bool:
        if constrained(self._chunk.workload):
            nearby = Nearby(self._world, self._units, self._clearing.price, self._serve)
            return nearby.place(self._cls, tree(self._chunk.workload), self._chunk.parts)
        parts, heaps, kept = fit.by_size(self._chunk.parts), None, self._kept
        if kept is not None:
            mine, self._clearing.by_node = self._clearing.by_node, kept.by_node
            heaps = taken_over(kept, self._rules, self._cls, self._clearing.estimate)
            if heaps is None:
                self._clearing.by_node = mine
        if heaps is None:
            heaps = {}
        self._kept = None  # good for one search
        self._heaps = heaps if len(parts) == 1 and not self._rules.moves else {}
        self._last = parts[-1]
        return all(self._serve(part, self._cls, heaps) for part in parts)

    def _serve(self, part: Part, cls: NodeClass, heaps: Heaps) -> bool:
        """Place one task, making room on the cheapest node."""
        vain = not (self._units or part.extends or len(self._chunk.parts) > 1 or self._chunk.by_memory)
        if not vain and fit.place_part(self._world, (cls,), part, self._pool):
            return True  # a single one was tried before the hunt began
        cls = affinity.for_task(self._world, cls, part.task)
        bars = affinity.bars(self._world, part.task)
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
        kind = (part.request, spec_of(cls))
        heap = heaps.get(kind)
        if heap is None:
            heap = heaps[kind] = self._priced(part.request, cls)
        rejected: list[tuple[Cost, str]] = []
        served = False
        while not served and (entry := heap.pop()) is not None:
            price, name = entry
            if bars and not affinity.allowed(cls.nodes[name], bars):
                rejected.append(entry)
                continue
            mark, known = self._world.checkpoint(), len(self._units)
            now = self._on(cls.nodes[name], part, price)
            if now is None:
                continue
            if now > price:
                heap.put(name, now)
            elif self._world.checkpoint() > mark and (part is not self._last or self._kept_to()):
                served = True
                if part.request.devices <= self._takeable(cls.nodes[name]):
                    heap.put(name, now)
            else:
                self._world.undo(mark)
                del self._units[known:]
                rejected.append((now, name))
        for now, name in rejected:
            heap.put(name, now)
        return served

    def _takeable(self, node: NodeState) -> int:
        """Devices of a node that are not wholly the chunk's own: no more of them can be made free."""
        mine = self._world.keys_of(self._chunk.workload.id)
        if len(mine) < 2:
            return node.usable
        own = (self._world.claim_of(key) for key in node.tasks if key[0] == self._chunk.workload.id)
        shares = (share for claim in own if claim is not None for share in claim.shares)
        return node.usable - sum(1 for share in shares if share.portion >= GPU)

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
        if not self._few() or not self._seated(node, part) or not self._settled(units):
            world.undo(mark)
            del self._units[known:]
        return price

    def _few(self) -> bool:
        """True if no more workloads move than one consolidation may."""
        most = self._cycle.settings.consolidation_victims
        if most < 0 or not (self._rules.moves or self._rules.relocates):
            return True
        moved = {unit.workload for unit in self._units if unit.again is not None}
        return len(moved) <= most

    def _settled(self, units: list[Unit]) -> bool:
        """True if those of them that must not be lost have another place, or get theirs later."""
        return self._puts_off or placed_again(self._rules, self._clearing, units)

    def _seated(self, node: NodeState, part: Part) -> bool:
        if part.extends:
            return fit.place_part(self._world, (self._cls,), part, self._pool)
        self._world.claim(part.task, fit.seat(node, part.request, self._pool))
        return True

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
            and placed_again(self._rules, self._clearing, self._units)
            and self._rightful()
        )

    def _restore(self) -> None:
        """Give back whole victims whose old places are still free."""
        world = self._world
        moved = {unit.workload for unit in self._units if unit.again is not None}
        kept: set[str] = set()
        victims = {unit.workload for unit in self._units} - moved
        for wid in sorted(victims, key=partial(rank, self._rules), reverse=True):
            before = self._clearing.before[wid]
            mark = world.checkpoint()
            for key in before:
                world.claim(key, None)
            if given_back(world, before.items()) and self._admitted():
                kept.add(wid)
            else:
                world.undo(mark)
        self._units = [unit for unit in self._units if unit.workload not in kept]
