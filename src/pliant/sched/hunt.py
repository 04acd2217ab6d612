"""The search for victims: make room where it costs least, place the chunk, give back what was not needed.

It tries things on the journal with the allocator that places for real, in a fixed order and within a budget of
steps, so that the same world always gives the same answer.
"""

from heapq import heapify, heappop, heappush

from pliant.model.machine import Placement, Share
from pliant.model.workload import Request
from pliant.sched import fit, fraction
from pliant.sched.context import Cycle
from pliant.sched.machines import Device, NodeState, TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.portions import Chunk, Part, Step, whole
from pliant.sched.victims import Cost, Rules, Unit, cost, rank, unit_for

FEW = 16
"""Up to so many units, leaving each out is tried by placing everything anew."""

LARGE = 1 << 32
"""Scale on which prices per freed device are compared as integers."""


class Hunt:
    """One attempt to place one chunk by taking from others. run() leaves the world changed only on success."""

    def __init__(self, cycle: Cycle, rules: Rules) -> None:
        self._cycle = cycle
        self._world = cycle.world
        self._rules = rules
        self._chunk: Chunk = rules.chunk
        self._cls = cycle.nodes_for(self._chunk.workload, rules.pool)
        self._pool = cycle.pool(rules.pool)
        self._units: list[Unit] = []
        self._before: dict[str, dict[TaskKey, Placement | None]] = {}
        self._heaps: dict[Request, list[tuple[Cost, str]]] = {}
        self._youngest = cycle.settings.victims == "youngest"

    def run(self) -> bool:
        mark = self._world.checkpoint()
        if self._relieve() and all(self._serve(part) for part in fit.by_size(self._chunk.parts)):
            self._minimise(mark)
            if self._admitted() and self._rules.holds():
                self._resettle()
                self._record()
                return True
        self._world.undo(mark)
        return False

    # ------------------------------------------------------------------ limits
    def _admitted(self) -> bool:
        rules = self._rules
        nothing = rules.adding.times(0)
        return self._cycle.refuse(self._chunk, rules.pool, nothing) is None

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
                    unit = self._any_unit(wid)
                    if unit is not None:
                        price = cost(world, [unit], self._youngest)
                        if best is None or price < best[0]:
                            best = (price, unit)
            if best is None or not self._spend(1):
                return False
            self._take(best[1])
        return True

    def _any_unit(self, wid: str) -> Unit | None:
        """The least that this workload can lose in this pool."""
        found: list[Unit] = []
        for key in reversed(self._world.keys_of(wid)):
            claim = self._world.claim_of(key)
            if claim is None or self._world.pool_of(claim.node) != self._rules.pool:
                continue
            uuid = claim.shares[-1].gpu if claim.shares else None
            unit = unit_for(self._rules, key, uuid)
            if unit is not None and unit.again is None:
                found.append(unit)
        return max(found, key=lambda unit: unit.step, default=None)

    # ------------------------------------------------------------------ one task
    def _serve(self, part: Part) -> bool:
        """Place one task, making room on the cheapest node."""
        if fit.place_part(self._world, self._cls, part, self._pool):
            return True
        if part.extends:
            claim = self._world.claim_of(part.task)
            node = self._world.nodes.get(claim.node) if claim is not None else None
            return node is not None and node.open and self._on(node, part) is not None
        heap = self._heaps.get(part.request)
        if heap is None:
            heap = self._heaps[part.request] = self._priced(part.request)
        rejected: list[tuple[Cost, str]] = []
        served = False
        while heap and not served:
            price, name = heappop(heap)
            mark = self._world.checkpoint()
            now = self._on(self._cls.nodes[name], part, price)
            if now is None:
                continue
            if now > price:
                heappush(heap, (now, name))
            elif self._world.checkpoint() > mark:
                served = True
                heappush(heap, (now, name))
            else:
                rejected.append((now, name))
        for entry in rejected:
            heappush(heap, entry)
        return served

    def _priced(self, request: Request) -> list[tuple[Cost, str]]:
        """All nodes that could be cleared for a request, by what that costs."""
        found = []
        for name in self._cls.names:
            node = self._cls.nodes[name]
            if not node.tasks or request.devices > node.usable:
                continue
            mark = self._world.checkpoint()
            units = self._clear(node, request)
            self._world.undo(mark)
            if units is not None:
                found.append((cost(self._world, units, self._youngest), name))
            if self._cycle.steps <= 0:
                return []
        heapify(found)
        return found

    def _on(self, node: NodeState, part: Part, most: Cost | None = None) -> Cost | None:
        """Clear a node and place a task there; None if that is impossible. Does nothing if it costs over `most`."""
        world = self._world
        mark, known = world.checkpoint(), len(self._units)
        units = self._clear(node, part.request)
        if units is None:
            return None
        price = cost(world, units, self._youngest)
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
        return all(self._spend(1) and self._replaced(part) for part in fit.by_size(parts))

    def _replaced(self, part: Part) -> bool:
        victim = self._world.workloads[part.task[0]]
        cls = self._cycle.nodes_for(victim, self._rules.pool)
        return fit.place_part(self._world, cls, part, self._pool)

    # ------------------------------------------------------------------ making room
    def _clear(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Take what a request needs on one node; None (and nothing taken) if it cannot be.

        Two greedy ways are compared: the cheapest device first, and most devices freed for the price first.
        """
        mark = self._world.checkpoint()
        best: tuple[Cost, list[Unit]] | None = None
        for broad in (False, True) if request.devices > 1 else (False,):
            units = self._cleared(node, request, broad)
            if units is not None:
                price = cost(self._world, units, self._youngest)
                if best is None or price < best[0]:
                    best = (price, units)
            self._world.undo(mark)
        if best is None:
            return None
        for unit in best[1]:
            self._apply(unit)
        return best[1]

    def _cleared(self, node: NodeState, request: Request, broad: bool) -> list[Unit] | None:
        units: list[Unit] = []
        while not fit.fits(node, request):
            more = self._step(node, request, broad) if self._spend(1) else None
            if not more:
                return None
            for unit in more:
                self._apply(unit)
            units += more
        return units

    def _step(self, node: NodeState, request: Request, broad: bool) -> list[Unit] | None:
        """The cheapest units that bring the node nearer to holding the request."""
        best: tuple[Cost, int, list[Unit]] | None = None
        if request.devices and not self._devices_fit(node, request):
            for device in node.devices.values():
                share = fraction.share_on(device.gpu, request)
                if device.gpu.foreign or device.room(share.portion, share.memory):
                    continue
                units = self._off(device, share)
                if units is None:
                    continue
                price = cost(self._world, units, self._youngest)
                if broad:
                    freed = min(self._freed(node, units), request.devices - node.free)
                    price = (price[0] * LARGE // freed, price[1] * LARGE // freed, price[2])
                if best is None or (price, device.gpu.index) < best[:2]:
                    best = (price, device.gpu.index, units)
        else:
            for at, key in enumerate(sorted(node.tasks)):
                claim = self._world.claim_of(key)
                if claim is None or claim.node != node.row.name or not (claim.cpu or claim.memory):
                    continue
                unit = unit_for(self._rules, key, None)
                if unit is not None:
                    price = cost(self._world, [unit], self._youngest)
                    if best is None or (price, at) < best[:2]:
                        best = (price, at, [unit])
        return best[2] if best is not None else None

    def _freed(self, node: NodeState, units: list[Unit]) -> int:
        """How many more devices of the node these units free, at least 1."""
        mark, free = self._world.checkpoint(), node.free
        for unit in units:
            self._apply(unit)
        freed = node.free - free
        self._world.undo(mark)
        return max(1, freed)

    @staticmethod
    def _devices_fit(node: NodeState, request: Request) -> bool:
        if whole(request):
            return request.devices <= node.free
        return fraction.shared_devices(node, request) is not None

    def _off(self, device: Device, share: Share) -> list[Unit] | None:
        """Units that free a share of one device, found on the journal and undone; None if that is impossible."""
        world = self._world
        mark = world.checkpoint()
        units: list[Unit] = []
        claimants = [key for key in device.users() if self._claims(key, device.gpu.uuid)]
        claimants.sort(
            key=lambda key: (rank(world, key[0]), key) if key[0] in world.workloads else ((0, 0, ""), key)
        )
        for key in claimants:
            if device.room(share.portion, share.memory):
                break
            unit = unit_for(self._rules, key, device.gpu.uuid)
            if unit is None:
                continue
            self._apply(unit)
            units.append(unit)
        enough = device.room(share.portion, share.memory)
        world.undo(mark)
        return units if enough else None

    def _claims(self, key: TaskKey, uuid: str) -> bool:
        claim = self._world.claim_of(key)
        return claim is not None and any(share.gpu == uuid for share in claim.shares)

    def _apply(self, unit: Unit) -> None:
        before = self._before.setdefault(unit.workload, {})
        for key, after in unit.changes:
            before.setdefault(key, self._world.claim_of(key))
            self._world.claim(key, after)

    def _take(self, unit: Unit) -> None:
        self._apply(unit)
        self._units.append(unit)

    def _spend(self, steps: int) -> bool:
        self._cycle.steps -= steps
        return self._cycle.steps >= 0

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
        for unit in sorted(self._units, key=lambda u: cost(world, [u], self._youngest), reverse=True):
            if not any(kept is unit for kept in self._units):
                continue
            rest = [kept for kept in self._units if kept is not unit]
            known = self._units
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
            if again is None or not self._spend(1):
                return False
            self._take(again)
        return (
            self._cycle.refuse(self._chunk, self._rules.pool, self._rules.adding) is None
            and self._spend(len(self._chunk.parts))
            and fit.place(world, self._cls, self._chunk, self._pool)
            and self._moved(self._units)
            and self._rules.holds()
        )

    def _restore(self) -> None:
        """Give back whole victims whose old places are still free."""
        world = self._world
        last = {unit.workload: at for at, unit in enumerate(self._units)}
        for wid in sorted(last, key=lambda wid: rank(world, wid), reverse=True):
            before = self._before[wid]
            if any(unit.workload == wid and unit.again is not None for unit in self._units):
                continue
            mark = world.checkpoint()
            for key in before:
                world.claim(key, None)
            if all(claim is None or self._free(claim) for claim in before.values()):
                for key, claim in before.items():
                    world.claim(key, claim)
                if self._admitted():
                    self._units = [unit for unit in self._units if unit.workload != wid]
                    continue
            world.undo(mark)

    def _free(self, claim: Placement) -> bool:
        node = self._world.nodes.get(claim.node)
        return (
            node is not None
            and claim.cpu <= node.free_cpu
            and claim.memory <= node.free_memory
            and all(node.devices[share.gpu].room(share.portion, share.memory) for share in claim.shares)
        )

    def _resettle(self) -> None:
        """Place victims that lost their core on what is left, the most valuable first."""
        if not self._rules.resettles:
            return
        world = self._world
        self._cycle.room_freed()
        victims = {unit.workload for unit in self._units if unit.step is Step.CORE and unit.again is None}
        for wid in sorted(victims, key=lambda wid: rank(world, wid), reverse=True):
            chunk = world.need(wid).chunk
            if chunk is not None and chunk.step is Step.CORE and not self._cycle.rests(chunk):
                self._cycle.try_place(chunk, self._rules.pool, self._cycle.adding(chunk, self._rules.pool))

    # ------------------------------------------------------------------ telling
    def _record(self) -> None:
        for wid in dict.fromkeys(unit.workload for unit in self._units):
            decision = self._told(wid)
            if decision is not None:
                self._cycle.record(decision)

    def _told(self, wid: str) -> Decision | None:
        world, rules = self._world, self._rules
        victim = world.workloads[wid]
        before = {key: claim for key, claim in self._before[wid].items() if claim != world.claim_of(key)}
        if not before:
            return None
        after = {key: world.claim_of(key) for key in before}
        gpu_after = world.gpu_of(wid)
        had = sum(claim.gpu for claim in before.values() if claim is not None)
        gpu_before = gpu_after + had - sum(claim.gpu for claim in after.values() if claim is not None)
        chunk = world.need(wid).chunk
        moved = any(
            new is not None
            and old is not None
            and (new.node != old.node or not set(new.uuids) <= set(old.uuids))
            for old, new in ((before[key], after[key]) for key in before)
        )
        lost = gpu_before - gpu_after
        bonus = all(unit.step is Step.BONUS for unit in self._units if unit.workload == wid)
        if chunk is not None and chunk.step is Step.CORE:
            verb, reason = Verb.EVICT, rules.reason(victim, lost)
        elif moved:
            verb = Verb.MOVE
            places = [claim.node for claim in before.values() if claim is not None]
            reason = rules.moved(places, (claim.node for claim in after.values() if claim is not None))
        else:
            verb, reason = Verb.SHRINK, rules.shrunk(lost) if bonus else rules.reason(victim, lost)
        names = tuple(key[1] for key in sorted(before))
        winner = self._chunk.workload.id
        return Decision(verb, rules.action, wid, names, gpu_before, gpu_after, reason, winner)
