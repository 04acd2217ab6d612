"""The victim search: generates modes, simulates each, validates the outcome, until one is valid.

It makes its changes on the journal with the allocator that also places for real, in a fixed order and within
a budget of steps, so that the same world always gives the same answer.
"""

from pliant.model.quantity import GPU
from pliant.model.workload import Request
from pliant.sched.placement import eligibility, fit
from pliant.sched.placement.staying import given_back
from pliant.sched.preemption.attempt import Aim, Attempt, Cost, Effort, Heaps, NodePrices, SearchMode, Unit
from pliant.sched.preemption.modes import FEW, Modes
from pliant.sched.preemption.node_eviction import NodeEviction
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.preemption.queue_eviction import relieved
from pliant.sched.preemption.topology_search import TopologySearch
from pliant.sched.world.chunks import Part, Step
from pliant.sched.world.node_classes import NodeClass, spec_of
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.subgroups import constrained, tree


def search(policy: Policy, effort: Effort, prices: PriceCache) -> Attempt:
    """Place one chunk by taking from other workloads: the valid attempt, applied to the world.

    If none is valid, the attempt holds the obstacles found and the world is unchanged.
    """
    cls = policy.grounds.places.nodes_for(policy.chunk.workload, policy.pool)
    modes = Modes(policy, effort, prices, cls)
    for mode in modes:
        modes.back()
        modes.note(Simulation(policy, effort, prices, cls, mode).run())
    chosen = modes.chosen()
    if chosen is not modes.shown:
        modes.back()
        for key, claim in (chosen.claims or {}).items():
            policy.world.claim(key, claim)
    return chosen


class Simulation:
    """One attempt: make room where it costs least, place the chunk, give back what is not needed."""

    def __init__(
        self, policy: Policy, effort: Effort, prices: PriceCache, cls: NodeClass, mode: SearchMode
    ) -> None:
        self._policy = policy
        self._world = policy.world
        self._chunk = policy.chunk
        self._effort = effort
        self._prices = prices
        self._cls = cls
        self._places = policy.grounds.places
        self._pool = self._places.pool(policy.pool)
        self._mark = self._world.checkpoint()
        self._attempt = Attempt(self._world, mode)
        self._eviction = NodeEviction(policy, prices, effort, self._attempt)
        self._moves = policy.moves or mode.relocates
        self._final: Part | None = None  # with it the whole outcome can be judged
        self._puts_off = False  # moved workloads are placed again once there is room for the whole chunk

    def run(self) -> Attempt:
        attempt, policy = self._attempt, self._policy
        begun = not attempt.mode.first or self._took_all_of(attempt.mode.first)
        if begun and relieved(policy, self._prices, self._effort, attempt) and self._served():
            self._leave_out()
            if self._holds() and self._lasts():
                attempt.found, attempt.price = True, self._prices.of(attempt.units)
        return attempt

    def _took_all_of(self, wid: str) -> bool:
        """Take all that a workload has, portions before the core; False if it may not be taken."""
        world, attempt = self._world, self._attempt
        for key in reversed(world.keys_of(wid)):
            while (claim := world.claim_of(key)) is not None:
                if world.pool_of(claim.node) != self._policy.pool:
                    return False
                unit = self._policy.unit(attempt, key, claim.shares[-1].gpu if claim.shares else None)
                if unit is None or unit.again is not None or not self._effort.spend(1):
                    return False
                attempt.take(unit)
                attempt.units.append(unit)
        return bool(attempt.units)

    # ------------------------------------------------------------------ validate
    def _holds(self) -> bool:
        """True if the world as it is now keeps all limits, rules and budgets."""
        return self._admitted() and self._rightful() and self._bearable()

    def _admitted(self) -> bool:
        return not self._policy.shares.exceeded(self._chunk, self._policy.pool, self._policy.adding)

    def _rightful(self) -> bool:
        return self._policy.holds() and (not self._attempt.mode.lasting or self._lasts())

    def _lasts(self) -> bool:
        lasts = self._policy.lasts(self._attempt.units, self._attempt.before)
        self._attempt.returns = self._attempt.returns or not lasts
        return lasts

    def _bearable(self) -> bool:
        """True if no project loses more than its budget of disruptions allows."""
        churn, world = self._policy.grounds.churn, self._world
        if not churn.bounded:
            return True
        disturbed: dict[str, set[str]] = {}
        for unit in self._attempt.units:
            disturbs = unit.step is not Step.BONUS or unit.again is not None
            row = world.workloads[unit.workload]
            if disturbs and not (row.background or self._prices.is_new(unit.workload)):
                disturbed.setdefault(row.project, set()).add(unit.workload)
        over = {it for it, workloads in disturbed.items() if len(workloads) > churn.left(it)}
        self._attempt.overdrawn |= over
        return not over or self._attempt.mode.aim is Aim.UNBOUNDED

    # ------------------------------------------------------------------ make room and place
    def _served(self) -> bool:
        """Place the chunk, making room for it.

        For moves, room is made for the whole chunk before any victim is placed again: so no victim moves to a
        node that is cleared next, and the choice does not depend on the names of nodes.
        """
        units = self._attempt.units
        if len(self._chunk.parts) < 2 or not self._moves:
            return self._all_served()
        mark, known = self._world.checkpoint(), len(units)
        self._puts_off = True
        served = self._all_served()
        self._puts_off = False
        if not served or self._resettled(units[known:]):
            return served
        self._world.undo(mark)
        del units[known:]
        return self._all_served()

    def _all_served(self) -> bool:
        units = self._attempt.units
        if constrained(self._chunk.workload):
            search = TopologySearch(self._world, units, self._prices.of, self._serve)
            return search.place(self._cls, tree(self._chunk.workload), self._chunk.parts)
        parts = fit.by_size(self._chunk.parts)
        heaps = self._prices.carried(self._cls, self._eviction.estimate)
        if len(parts) == 1 and not self._policy.moves:
            self._attempt.heaps = heaps
        self._final = parts[-1]
        return all(self._serve(part, self._cls, heaps) for part in parts)

    def _serve(self, part: Part, cls: NodeClass, heaps: Heaps) -> bool:
        """Place one task, making room on the cheapest node."""
        world, units = self._world, self._attempt.units
        vain = not (units or part.extends or len(self._chunk.parts) > 1 or self._chunk.by_memory)
        if not vain and fit.place_part(world, (cls,), part, self._pool):
            return True  # a single task was tried before the search began
        cls = eligibility.for_task(world, cls, part.task)
        bars = eligibility.bars(world, part.task)
        if part.extends:
            claim = world.claim_of(part.task)
            node = world.nodes.get(claim.node) if claim is not None else None
            mark = world.checkpoint()
            cleared = node is not None and node.open and self._on(node, part) is not None
            return cleared and world.checkpoint() > mark
        kind = (part.request, spec_of(cls))
        heap = heaps.get(kind)
        if heap is None:
            heap = heaps[kind] = self._priced(part.request, cls)
        rejected: list[tuple[Cost, str]] = []
        served = False
        while not served and (entry := heap.pop()) is not None:
            price, name = entry
            if bars and not eligibility.allowed(cls.nodes[name], bars):
                rejected.append(entry)
                continue
            mark, known = world.checkpoint(), len(units)
            now = self._on(cls.nodes[name], part, price)
            if now is None:
                continue
            if now > price:
                heap.put(name, now)
            elif world.checkpoint() > mark and (part is not self._final or self._holds()):
                served = True
                if part.request.devices <= self._takeable(cls.nodes[name]):
                    heap.put(name, now)
            else:
                world.undo(mark)
                del units[known:]
                rejected.append((now, name))
        for now, name in rejected:
            heap.put(name, now)
        return served

    def _takeable(self, node: NodeState) -> int:
        """Devices of a node that the chunk does not use completely: no more than these can be freed."""
        if len(self._world.keys_of(wid := self._chunk.workload.id)) < 2:
            return node.usable
        own = (self._world.claim_of(key) for key in node.tasks if key[0] == wid)
        shares = (share for claim in own if claim is not None for share in claim.shares)
        return node.usable - sum(1 for share in shares if share.portion >= GPU)

    def _priced(self, request: Request, cls: NodeClass) -> NodePrices:
        """All nodes that could be cleared for a request, by cost."""
        found = NodePrices()
        for name in cls.names:
            node = cls.nodes[name]
            if node.tasks and request.devices <= node.usable:
                found.put(name, self._policy.priced(node, request, self._eviction.estimate))
                if self._effort.steps <= 0:
                    return NodePrices()
        return found

    def _on(self, node: NodeState, part: Part, most: Cost | None = None) -> Cost | None:
        """Clear a node and place a task there; None if impossible; nothing if it costs more than `most`."""
        world, units = self._world, self._attempt.units
        mark, known = world.checkpoint(), len(units)
        taken = self._eviction.clear(node, part.request)
        if taken is None:
            return None
        price = self._prices.of(taken)
        if most is not None and price > most:
            world.undo(mark)
            return price
        units += taken
        if not self._few() or not self._seated(node, part) or not (self._puts_off or self._resettled(taken)):
            world.undo(mark)
            del units[known:]
        return price

    def _few(self) -> bool:
        """True if no more workloads move than one consolidation may."""
        most = self._places.settings.consolidation_victims
        moved = {unit.workload for unit in self._attempt.units if unit.again is not None}
        return most < 0 or not self._moves or len(moved) <= most

    def _seated(self, node: NodeState, part: Part) -> bool:
        if part.extends:
            return fit.place_part(self._world, (self._cls,), part, self._pool)
        self._world.claim(part.task, fit.seat(node, part.request, self._pool))
        return True

    def _resettled(self, units: list[Unit]) -> bool:
        """Place again what must not be lost, the largest first; False if one has no place."""
        for part in fit.by_size([unit.again for unit in units if unit.again is not None]):
            cls = self._places.nodes_for(self._world.workloads[part.task[0]], self._policy.pool)
            if not self._effort.spend(1):
                return False
            if not fit.place_again(self._world, cls, part, self._pool):
                self._attempt.homeless.add(part.task[0])
                return False
        return True

    # ------------------------------------------------------------------ give back
    def _leave_out(self) -> None:
        """Leave out every unit without which the chunk still fits, the most valuable first."""
        world, attempt = self._world, self._attempt
        if len(attempt.units) > FEW:
            self._restore()
            return
        if len(attempt.units) < 2:
            return
        solution = world.since(self._mark)
        for unit in sorted(attempt.units, key=lambda unit: self._prices.of([unit]), reverse=True):
            known = attempt.units
            rest = [kept for kept in known if kept.cause != unit.cause]  # a replay creates new units
            if len(rest) == len(known):
                continue
            if self._replayed(rest):
                solution = world.since(self._mark)
            else:
                attempt.units = known
                world.undo(self._mark)
                for key, claim in solution.items():
                    world.claim(key, claim)

    def _replayed(self, units: list[Unit]) -> bool:
        """Try a smaller set from the start; on success the attempt's units are its own."""
        world, policy, attempt = self._world, self._policy, self._attempt
        world.undo(self._mark)
        attempt.units = []
        for unit in units:
            key, uuid = unit.cause
            claim = world.claim_of(key)
            if claim is None or (uuid is not None and uuid not in claim.uuids):
                continue
            again = policy.unit(attempt, key, uuid)
            if again is None or not self._effort.spend(1):
                return False
            attempt.take(again)
            attempt.units.append(again)
        return (
            policy.shares.refuse(self._chunk, policy.pool, policy.adding) is None
            and self._effort.spend(len(self._chunk.parts))
            and fit.place(world, self._cls, self._chunk, self._pool)
            and self._resettled(attempt.units)
            and self._rightful()
        )

    def _restore(self) -> None:
        """Give back whole victims whose old places are still free."""
        world, attempt = self._world, self._attempt
        moved = {unit.workload for unit in attempt.units if unit.again is not None}
        kept: set[str] = set()
        victims = {unit.workload for unit in attempt.units} - moved
        for wid in sorted(victims, key=self._prices.rank, reverse=True):
            mark, before = world.checkpoint(), attempt.before[wid]
            for key in before:
                world.claim(key, None)
            if given_back(world, before.items()) and self._admitted():
                kept.add(wid)
            else:
                world.undo(mark)
        attempt.units = [unit for unit in attempt.units if unit.workload not in kept]
