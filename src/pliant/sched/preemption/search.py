"""The victim search: generates modes, simulates each, validates the outcome, until one is valid.

It makes its changes on the journal with the allocator that also places for real, in a fixed order and within
a budget of steps, so that the same world always gives the same answer.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter

from pliant.model.workload import TaskGroup
from pliant.sched.placement import eligibility, fit, topology
from pliant.sched.placement.staying import given_back
from pliant.sched.preemption.attempt import FEW, Attempt, Cost, Heaps, NodePrices, Obstacles, Unit, before
from pliant.sched.preemption.modes import Modes
from pliant.sched.preemption.node_eviction import NodeEviction
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.world.chunks import Part
from pliant.sched.world.node_classes import NodeClass, spec_of
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import whole
from pliant.sched.world.subgroups import Level, constrained, tree


def search(policy: Policy, prices: PriceCache) -> tuple[Attempt | None, Obstacles]:
    """Place one chunk by taking from other workloads: the valid attempt, applied to the world, and the
    obstacles that the attempts met. If none is valid, the world is unchanged.
    """
    modes = Modes(policy, prices, lambda attempt: Simulation(policy, prices, attempt).found())
    return modes.answer(), modes.met


class Simulation:
    """One attempt: make room where it costs least, place the chunk, give back what is not needed."""

    def __init__(self, policy: Policy, prices: PriceCache, attempt: Attempt) -> None:
        self._policy = policy
        self._world = policy.world
        self._chunk = policy.chunk
        self._effort = policy.grounds.effort
        self._prices = prices
        self._attempt = attempt
        self._mark = attempt.checkpoint()
        self._eviction = NodeEviction(policy, prices, attempt)
        self._moves = policy.moves or attempt.mode.relocates
        self._puts_off = False  # True: moved workloads are placed again after the whole chunk
        self._judged = False  # the outcome is known to be valid

    def found(self) -> bool:
        """Simulate the attempt. True if it is valid and applied to the world; else the world is restored."""
        if self._relieved() and self._served():
            self._leave_out()
            if self._judged or self._holds():
                return True
        self._attempt.undo(self._mark)
        return False

    # ------------------------------------------------------------------ validate
    def _holds(self) -> bool:
        """True if the world as it is now keeps all limits and rules."""
        return self._admitted() and self._policy.holds() and self._policy.lasts(self._attempt.units)

    def _admitted(self) -> bool:
        return not self._policy.shares.exceeded(self._chunk, self._policy.pool, self._policy.adding)

    # ------------------------------------------------------------------ what queues must give up
    def _relieved(self) -> bool:
        """Take what the attempt begins with, then from queues until the chunk exceeds none of their limits.

        What a workload can lose is calculated again only after it, or what its project may lose, has changed.
        """
        policy, world, attempt, mode = self._policy, self._world, self._attempt, self._attempt.mode
        bounded = policy.grounds.churn.bounded  # then any unit may bring a project to its budget
        while mode.first and world.gpu_of(mode.first):
            unit = self._least(mode.first, "gpu")
            if unit is None or not self._effort.spend(1):
                return False
            attempt.take(unit)
        known: dict[str, tuple[object, Unit | None, Cost]] = {}  # workload -> question, answer, cost
        while limit := (
            policy.shares.refuse(self._chunk, policy.pool, policy.adding)
            or (policy.lacking() if mode.own_bound else None)
        ):
            if limit.quota:
                return False
            lacks = limit.used + limit.asked - limit.allowed
            found: list[tuple[tuple[int, bool, int, Cost], Unit]] = []
            for project in sorted(world.holders):
                asked = limit.resource, policy.gives(project), bounded and len(attempt.units)
                for wid in sorted(world.holders[project]) if limit.key in world.path(project) else ():
                    if wid not in known or known[wid][0] != asked:
                        least = self._least(wid, limit.resource)
                        known[wid] = asked, least, self._prices.of([] if least is None else [least])
                    _, least, cost = known[wid]
                    if least is not None:
                        # Portions before cores; of these one that suffices alone, else the largest.
                        enough = limit.resource != "gpu" or least.gpu >= lacks
                        key = cost[0], not enough, 0 if enough else -least.gpu, cost
                        found.append((key, least))
            if not found or not self._effort.spend(1):
                return False
            unit = min(found, key=itemgetter(0))[1]
            attempt.take(unit)
            del known[unit.workload]
        return True

    def _least(self, wid: str, resource: str) -> Unit | None:
        """The smallest unit with a resource (gpu, cpu, memory) that a workload can lose in this pool."""
        world, found = self._world, list[Unit]()
        for key in reversed(world.keys_of(wid)):
            claim = world.claim_of(key)
            here = claim is not None and world.pool_of(claim.node) == self._policy.pool
            if claim is not None and here and getattr(claim.resources, resource):
                uuid = claim.shares[-1].gpu if claim.shares else None
                unit = self._policy.unit(self._attempt, key, uuid)
                found += [unit] if unit is not None and unit.again is None else []
        return max(found, key=lambda unit: unit.step, default=None)

    # ------------------------------------------------------------------ make room and place
    def _served(self) -> bool:
        """Place the chunk, making room for it.

        If victims move, it makes room for the whole chunk before it places them again: so no victim moves to
        a node that is cleared next, and the choice does not depend on the names of nodes.
        """
        if len(self._chunk.parts) > 1 and self._moves:
            attempt, mark = self._attempt, self._attempt.checkpoint()
            self._puts_off = True
            served = self._all_served()
            self._puts_off = self._judged = False
            if not served or self._resettled(attempt.units):
                return served
            attempt.undo(mark)
            attempt.homeless.clear()  # they had no place beside the whole chunk
        return self._all_served()

    def _all_served(self) -> bool:
        if constrained(self._chunk.workload):
            return self._served_near(self._policy.nodes, tree(self._chunk.workload), self._chunk.parts)
        parts = fit.by_size(self._chunk.parts)
        heaps = self._prices.carried(self._policy.nodes, self._eviction.estimate)
        if len(parts) == 1 and not self._policy.moves:
            self._attempt.heaps = heaps
        return all(self._serve(part, self._policy.nodes, heaps, part is parts[-1]) for part in parts)

    def _served_near(self, cls: NodeClass, branch: Level | TaskGroup, parts: Sequence[Part]) -> bool:
        """Place one part of the chunk's tree: in the domain that costs least if it must be in one.

        On failure some of it may be placed: the caller undoes.
        """
        mine = topology.parts_of(self._world, branch, parts)
        if branch.within is None or not branch.within.required or not mine or mine[0].extends:
            return self._served_inside(cls, branch, mine)
        ways = (
            partial(self._served_inside, nodes, branch, mine)
            for nodes in topology.bounds(self._world, cls, branch.within, branch, mine)
            if topology.holds(nodes, mine, empty=True) == len(mine)
        )
        return self._attempt.cheapest(ways, self._prices.of) is not None

    def _served_inside(self, cls: NodeClass, branch: Level | TaskGroup, parts: Sequence[Part]) -> bool:
        bound, rest = topology.split(self._world, branch, parts)
        heaps: Heaps = {}
        return all(self._served_near(cls, child, parts) for child in bound) and all(
            self._serve(part, cls, heaps) for part in fit.by_size(rest)
        )

    def _serve(self, part: Part, cls: NodeClass, heaps: Heaps, last: bool = False) -> bool:
        """Place one task, making room on the cheapest node; with the last one, validate the whole outcome."""
        world, attempt, request = self._world, self._attempt, part.request
        if fit.place_part(world, (cls,), part, self._policy.node_pool):
            return True
        cls = eligibility.for_task(world, cls, part.task)
        bars = eligibility.bars(world, part.task)
        kind = (request, spec_of(cls))
        heap = self._priced(part, cls) if part.extends else heaps.get(kind)
        if heap is None:
            heap = heaps[kind] = self._priced(part, cls)
        rejected: list[tuple[str, Cost]] = []
        for price, name in heap.cheapest():
            node, mark, homeless = world.nodes[name], attempt.checkpoint(), len(attempt.homeless)
            allowed = not bars or eligibility.allowed(node, bars)
            now = self._eviction.clear(node, request) if allowed else price
            if now is None:
                continue
            seated = allowed and now <= price and self._seated(node, part, attempt.units[mark[1] :])
            self._judged = seated and last and self._holds()
            if seated and (self._judged or not last):
                if len(self._chunk.parts) == 1 or request.devices < node.usable or not whole(request):
                    rejected.append((name, now))  # it may serve others
                for entry in rejected:
                    heap.put(*entry)
                return True
            attempt.undo(mark)
            if now > price or len(attempt.homeless) > homeless:  # there may be other victims
                heap.put(name, now)
            else:
                rejected.append((name, now))
        return False

    def _priced(self, part: Part, cls: NodeClass) -> NodePrices:
        """The nodes that could be cleared for a task, by cost; for an extension only the node of the task."""
        found, names, nodes = NodePrices(), cls.names, self._world.nodes
        if part.extends:
            claim = self._world.claim_of(part.task)
            names = [claim.node] if claim is not None and claim.node in nodes else []
        for name in names:
            node = nodes[name]
            if node.open and node.tasks and part.request.devices <= node.usable:
                found.put(name, self._policy.priced(node, part.request, self._eviction.estimate))
                if self._effort.steps <= 0:
                    return NodePrices()
        return found

    def _seated(self, node: NodeState, part: Part, taken: Iterable[Unit]) -> bool:
        """Place a task on a node that was cleared for it, and place the moved victims elsewhere."""
        most = self._policy.grounds.places.settings.consolidation_victims  # workloads moved; -1: any number
        moved = {it.workload for it in self._attempt.units if it.again is not None} if self._moves else ()
        if 0 <= most < len(moved):
            return False
        if part.extends:
            placed = fit.place_part(self._world, (self._policy.nodes,), part, self._policy.node_pool)
        else:
            placed = self._world.seat(part.task, fit.seat(node, part.request, self._policy.node_pool))
        return placed and (self._puts_off or self._resettled(taken))

    def _resettled(self, units: Iterable[Unit]) -> bool:
        """Place the moved tasks again, the largest first; False if one has no place."""
        world, policy = self._world, self._policy
        for part in fit.by_size([unit.again for unit in units if unit.again is not None]):
            if not self._effort.spend(1):
                return False
            cls = policy.grounds.places.nodes_for(world.workloads[part.task[0]], policy.pool)
            if not fit.place_again(world, cls, part, policy.node_pool):
                self._attempt.homeless.add(part.task[0])
                return False
        return True

    # ------------------------------------------------------------------ give back
    def _leave_out(self) -> None:
        """Leave out every unit without which the chunk still fits, the most valuable first."""
        attempt = self._attempt
        if len(attempt.units) > FEW:
            self._restore()
        elif len(attempt.units) > 1:
            self._judged = False
            for unit in sorted(attempt.units, key=lambda unit: self._prices.of([unit]), reverse=True):
                known = attempt.since(self._mark)
                rest = [kept for kept in known[0] if kept.cause != unit.cause]  # a replay creates new units
                if len(rest) < len(known[0]) and not self._replayed(rest):
                    attempt.show(self._mark, known)

    def _replayed(self, units: list[Unit]) -> bool:
        """Try a smaller set from the start; on success the attempt has the units of the replay."""
        world, policy, attempt = self._world, self._policy, self._attempt
        attempt.undo(self._mark)
        for unit in units:
            key, uuid = unit.cause
            claim = world.claim_of(key)
            if claim is None or (uuid is not None and uuid not in claim.uuids):
                continue
            again = policy.unit(attempt, key, uuid)
            if again is None or not self._effort.spend(1):
                return False
            attempt.take(again)
        return (
            policy.shares.refuse(self._chunk, policy.pool, policy.adding) is None
            and self._effort.spend(len(self._chunk.parts))
            and fit.place(world, self._policy.nodes, self._chunk, self._policy.node_pool)
            and self._resettled(attempt.units)
            and self._holds()
        )

    def _restore(self) -> None:
        """Give back whole victims whose old places are still free."""
        world, attempt, losses = self._world, self._attempt, self._attempt.losses()
        victims = losses.keys() - {unit.workload for unit in attempt.units if unit.again is not None}
        kept: set[str] = set()
        for wid in sorted(victims, key=self._prices.rank, reverse=True):
            mark, was = world.checkpoint(), before(losses[wid])
            for key in was:
                world.claim(key, None)
            if given_back(world, was.items()) and self._admitted():
                kept.add(wid)
            else:
                world.undo(mark)
        self._judged = self._judged and not kept
        attempt.units = [unit for unit in attempt.units if unit.workload not in kept]
