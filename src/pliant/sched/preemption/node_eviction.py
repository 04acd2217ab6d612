"""Node eviction: the cheapest units to take so that one node can hold one request."""

from itertools import islice
from operator import itemgetter

from pliant.model.machine import Share
from pliant.model.quantity import GPU
from pliant.model.workload import Request, TaskKey
from pliant.sched.placement import fit, fraction
from pliant.sched.preemption.attempt import Attempt, Cost, Effort, Unit
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache, Priced, together
from pliant.sched.world.chunks import Step, priority_of
from pliant.sched.world.device_share import share_on
from pliant.sched.world.nodes import Device, NodeState
from pliant.sched.world.portions import whole

LARGE = 1 << 32  # scale on which prices per freed device are compared as integers


class NodeEviction:
    """Takes units for one attempt."""

    def __init__(self, policy: Policy, prices: PriceCache, effort: Effort, attempt: Attempt) -> None:
        self._policy = policy
        self._world = policy.world
        self._prices = prices
        self._spend = effort.spend
        self._attempt = attempt
        # Answers of _single(), with what they depend on.
        self._units: dict[TaskKey, tuple[object, tuple[Unit, Cost] | None]] = {}

    def clear(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Take what a request needs on one node; None (and nothing taken) if impossible.

        Two greedy ways are compared where victims hold several devices: the cheapest device first, and most
        devices freed for the price first.
        """
        mark = self._world.checkpoint()
        if request.devices < 2 or self._simple(node, request) is not None or not self._entangled(node):
            units = self._cleared(node, request, False)
            if units is None:
                self._world.undo(mark)
            return units
        best: tuple[Cost, list[Unit]] | None = None
        for broad in (False, True):
            units = self._cleared(node, request, broad)
            if units is not None:
                price = self._prices.of(units)
                if best is None or price < best[0]:
                    best = (price, units)
            self._world.undo(mark)
        if best is None:
            return None
        for unit in best[1]:
            self._attempt.take(unit)
        return best[1]

    def estimate(self, node: NodeState, request: Request) -> Cost | None:
        """What clear() would cost now; None if impossible.

        If each victim uses one device nothing is tried, and the true cost may be higher.
        """
        simple = self._simple(node, request)
        if simple is not None and request.devices > node.free:
            lacks = request.devices - node.free
            if not self._spend(1) or lacks > len(simple):
                return None
            chosen = list(islice((entry for entry in simple if self._may(entry[2])), lacks))
            if len(chosen) < lacks:
                return None
            if self._roomy(node, request, [entry[2] for entry in chosen]):
                return together([entry[0] for entry in chosen])
        plain = whole(request) and request.devices > node.free and not self._entangled(node)
        part = request.devices == 1 and request.shared and not self._devices_fit(node, request)
        units = self._apart(node, request) if plain or part else None
        if units is None and (plain or part):
            return None
        if units is None or not self._roomy(node, request, units):
            mark = self._world.checkpoint()
            units = self.clear(node, request)
            self._world.undo(mark)
        return self._prices.of(units) if units is not None else None

    # ------------------------------------------------------------------ a victim of its own on each device
    def _simple(self, node: NodeState, request: Request) -> list[Priced] | None:
        """The unit that frees each device of a node that one task of one device uses; cheapest first."""
        if not whole(request) or self._policy.moves or self._attempt.mode.relocates:
            return None
        if self._attempt.mode.sheltered:
            return None
        known = self._prices.nodes.get(node.row.name)
        if known is not None and known[0] == node.stamp:
            return known[1]
        taken = [device for device in node.devices.values() if device.claimed or device.claimed_memory]
        entries = [entry for device in taken if (entry := self._only(device)) is not None]
        found = sorted(entries) if len(entries) == len(taken) else None
        self._prices.nodes[node.row.name] = node.stamp, found
        return found

    def _only(self, device: Device) -> Priced | None:
        """The workload of one task that is the only claimant of a device and has nothing else; else None."""
        world, uuid = self._world, device.gpu.uuid
        claimants = [key for key in device.tasks if self._share(key, uuid) is not None]
        if len(claimants) != 1:
            return None
        key = claimants[0]
        claim, known = world.claim_of(key), self._prices.alone.get(key)
        if known is not None and known[0] is claim:
            return known[1]
        if device.gpu.foreign:
            return None
        victim = world.workloads.get(key[0])
        if victim is None or claim is None or len(victim.groups) > 1 or len(claim.shares) > 1:
            return None
        group = victim.groups[0]
        if not group.min == group.max == 1 or group.elastic or victim.id == self._policy.chunk.workload.id:
            return None
        if victim.project not in world.projects or self._policy.safe(victim):
            return None
        own = priority_of(victim, group)
        unit = Unit(victim.id, Step.CORE, ((key, None),), claim.gpu, (key, uuid), own)
        found = self._prices.of_core(unit), device.gpu.index, unit
        self._prices.alone[key] = claim, found
        return found

    def _single(self, key: TaskKey, uuid: str) -> tuple[Unit, Cost] | None:
        """The unit that gets a task off a device, and its price.

        Cached if it is the same for all its devices, until something is taken or its queue can give no more.
        """
        world = self._world
        victim = world.workloads.get(key[0])
        if victim is None or victim.project not in world.projects:
            return None
        keys = world.keys_of(victim.id) if key[0] in self._attempt.before else ()
        state = self._policy.gives(victim.project), tuple(map(world.claim_of, keys))
        known = self._units.get(key)
        if known is None or known[0] != state:
            unit = self._policy.unit(self._attempt, key, uuid)
            found = (unit, self._prices.of((unit,))) if unit is not None else None
            if unit is None or unit.changes[0][1] is None:
                self._units[key] = state, found
            return found
        return (known[1][0]._replace(cause=(key, uuid)), known[1][1]) if known[1] is not None else None

    def _may(self, unit: Unit) -> bool:
        victim = self._world.workloads[unit.workload]
        return self._policy.takes(self._attempt, victim, unit.step, unit.priority)

    # ------------------------------------------------------------------ victims of all kinds
    def _apart(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Units that free enough devices, or a part of one, the cheapest first; None if there are too few."""
        lacks = request.devices - node.free if whole(request) else 1
        if not self._spend(1) or lacks > node.usable - node.free:
            return None
        found = self._cheapest(node, request, False)[:lacks]
        return [unit for it in found for unit in self._off(*it) or ()] if len(found) == lacks else None

    def _roomy(self, node: NodeState, request: Request, units: list[Unit]) -> bool:
        """True if cores and memory suffice too once these units are gone."""
        cpu, memory = node.free_cpu, node.free_memory
        for unit in units:
            for key, after in unit.changes:
                claim = self._world.claim_of(key)
                if after is None and claim is not None and claim.node == node.row.name:
                    cpu, memory = cpu + claim.cpu, memory + claim.memory
        return (not request.cpu or request.cpu <= cpu) and (not request.memory or request.memory <= memory)

    def _entangled(self, node: NodeState) -> bool:
        """True if some workload claims several devices of the node."""
        seen: set[str] = set()
        for key in node.tasks:
            claim = self._world.claim_of(key)
            if claim is not None and claim.node == node.row.name and claim.shares:
                if len(claim.shares) > 1 or key[0] in seen:
                    return True
                seen.add(key[0])
        return False

    def _cleared(self, node: NodeState, request: Request, broad: bool) -> list[Unit] | None:
        units: list[Unit] = []
        while not fit.fits(node, request):
            known = len(units)
            if not self._spend(1):
                return None
            simple = self._simple(node, request) if not broad else None
            if request.devices and simple is not None and node.free < request.devices:
                for _, _, unit in simple:
                    if node.free >= request.devices:
                        break
                    if self._may(unit):
                        self._attempt.take(unit)
                        units.append(unit)
            elif request.devices and not self._devices_fit(node, request):
                for device, share in self._cheapest(node, request, broad):
                    if self._devices_fit(node, request):
                        break
                    # Units taken meanwhile may have freed it, or may have changed what may be taken.
                    for unit in self._off(device, share) or ():
                        self._attempt.take(unit)
                        units.append(unit)
            else:
                for unit in self._least(node):
                    self._attempt.take(unit)
                    units.append(unit)
            if len(units) == known:
                return None
        return units

    def _cheapest(self, node: NodeState, request: Request, broad: bool) -> list[tuple[Device, Share]]:
        """Devices that can be freed for a request, the cheapest first; `broad`: the first of them alone."""
        found: list[tuple[Cost, int, Device, Share]] = []
        known: dict[TaskKey, Cost | None] = {}  # of tasks that are taken whole, for any of their devices
        entire = whole(request)
        for device in node.devices.values():
            share = device.whole() if entire else share_on(device.gpu, request)
            if device.gpu.foreign or device.room(share):
                continue
            if share.portion > GPU or share.memory > device.gpu.memory:
                continue  # not even if it were empty
            claimants = self._claimants(device)
            only = claimants[0] if len(claimants) == 1 else None
            if only in known:
                price = known[only]
            else:
                units, price = self._priced(device, share, claimants) or (None, None)
                if broad and units is not None and price is not None:
                    freed = max(1, min(self._freed(node, units), request.devices - node.free))
                    price = (price[0] * LARGE // freed, price[1] * LARGE // freed, price[2])
                if only is not None and (units is None or units[0].changes[0][1] is None):
                    known[only] = price
            if price is not None:
                found.append((price, device.gpu.index, device, share))
        found.sort(key=itemgetter(0, 1))
        return [entry[2:] for entry in found[: 1 if broad else None]]

    def _least(self, node: NodeState) -> list[Unit]:
        """The cheapest unit that frees cores and memory of a node; none if there is none."""
        found: list[tuple[Cost, TaskKey, Unit]] = []
        for key in node.tasks:
            claim = self._world.claim_of(key)
            if claim is not None and claim.node == node.row.name and (claim.cpu or claim.memory):
                unit = self._policy.unit(self._attempt, key, None)
                if unit is not None:
                    found.append((self._prices.of([unit]), key, unit))
        return [min(found, key=lambda entry: entry[:2])[2]] if found else []

    def _freed(self, node: NodeState, units: list[Unit]) -> int:
        """How many more devices of the node these units free, at least 1."""
        rest: dict[str, list[int]] = {}  # what is claimed of each device that they claim
        for key, after in dict(change for unit in units for change in unit.changes).items():
            for sign, claim in ((-1, self._world.claim_of(key)), (1, after)):
                for share in claim.shares if claim is not None and claim.node == node.row.name else ():
                    if (device := node.devices.get(share.gpu)) is not None:
                        left = rest.setdefault(share.gpu, [device.claimed, device.claimed_memory])
                        left[0] += sign * share.portion
                        left[1] += sign * share.memory
        freed = [uuid for uuid, left in rest.items() if not (any(left) or node.devices[uuid].gpu.foreign)]
        return max(1, len(freed))

    @staticmethod
    def _devices_fit(node: NodeState, request: Request) -> bool:
        free = request.devices <= node.free
        return free if whole(request) else fraction.shared_devices(node, request) is not None

    def _priced(self, device: Device, share: Share, keys: list[TaskKey]) -> tuple[list[Unit], Cost] | None:
        """Units that free a share of one device and what they cost; None if impossible."""
        if len(keys) == 1:  # without it the device is free: nothing to try
            only = self._single(keys[0], device.gpu.uuid)
            return ([only[0]], only[1]) if only is not None else None
        units = self._freeing(device, share, keys)
        return (units, self._prices.of(units)) if units is not None else None

    def _off(self, device: Device, share: Share) -> list[Unit] | None:
        priced = self._priced(device, share, self._claimants(device))
        return priced[0] if priced is not None else None

    def _claimants(self, device: Device) -> list[TaskKey]:
        if len(device.tasks) == 1 and device.claimed:
            return list(device.tasks)
        return [key for key in sorted(device.tasks) if self._share(key, device.gpu.uuid) is not None]

    def _freeing(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit] | None:
        """Units that free a share of a device; None if impossible. Nothing is taken yet."""
        claimants = [key for key in claimants if self._policy.grounds.places.placeable(key[0])]
        claimants.sort(key=lambda key: (self._prices.rank(key[0]), key))
        portion, others = device.claimed + share.portion - GPU, device.others(share)
        memory = device.claimed_memory + share.memory - device.gpu.memory
        alone: list[tuple[Cost, int, Unit]] = []
        cores = not self._prices.youngest
        for at, key in enumerate(claimants):
            found = self._single(key, device.gpu.uuid)
            cores = cores and (found is None or found[0].step is Step.CORE)
            mine = self._share(key, device.gpu.uuid)
            if found is None or mine is None or mine.portion < portion or mine.memory < memory:
                continue
            if others in (0, mine.portion if mine.owner != share.owner else -1):
                alone.append((found[1], at, found[0]))
        one = min(alone)[2] if alone else None
        if one is not None and cores:
            return [one]  # any two cost more
        few = self._together(device, share, claimants)
        if one is None or (few is not None and self._prices.of(few) < self._prices.of([one])):
            return few
        return [one]

    def _together(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit] | None:
        """A sufficient set of units, each of them needed; found on the journal and undone."""
        best: tuple[Cost, list[Unit]] | None = None
        shares = {key: self._share(key, device.gpu.uuid) for key in claimants}
        large = sorted(claimants, key=lambda key: -(it.portion if (it := shares[key]) is not None else 0))
        for order in (claimants, large):
            units = self._in_turn(device, share, order)
            if units is None:
                return None
            for unit in sorted(units, key=lambda unit: self._prices.of([unit]), reverse=True):
                less = self._in_turn(device, share, [u.cause[0] for u in units if u is not unit])
                units = less if less is not None else units
            price = self._prices.of(units)
            if best is None or price < best[0]:
                best = (price, units)
        return best[1] if best is not None else None

    def _in_turn(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit] | None:
        """Take units in this order until there is room; None if there is not enough."""
        mark = self._world.checkpoint()
        units: list[Unit] = []
        for key in claimants:
            if device.room(share):
                break
            unit = self._policy.unit(self._attempt, key, device.gpu.uuid)
            if unit is not None:
                self._attempt.take(unit)
                units.append(unit)
        enough = device.room(share)
        self._world.undo(mark)
        return units if enough else None

    def _share(self, key: TaskKey, uuid: str) -> Share | None:
        """What a task claims of a device."""
        claim = self._world.claim_of(key)
        for share in claim.shares if claim is not None else ():
            if share.gpu == uuid:
                return share
        return None
