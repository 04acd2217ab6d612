"""Making room: what must be taken so that one node can hold one request, the cheapest way first."""

from pliant.model.machine import Placement, Share
from pliant.model.workload import Request
from pliant.sched import fit, fraction
from pliant.sched.context import Cycle
from pliant.sched.machines import Device, NodeState, TaskKey
from pliant.sched.portions import whole
from pliant.sched.victims import Cost, Rules, Unit, cost, rank, unit_for

LARGE = 1 << 32
"""Scale on which prices per freed device are compared as integers."""


class Clearing:
    """Takes units on the journal and remembers what their tasks claimed before."""

    def __init__(self, cycle: Cycle, rules: Rules) -> None:
        self._cycle = cycle
        self._world = cycle.world
        self._rules = rules
        self.before: dict[str, dict[TaskKey, Placement | None]] = {}  # workload -> claims when first touched

    def price(self, units: list[Unit]) -> Cost:
        return cost(self._rules, units)

    def clear(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Take what a request needs on one node; None (and nothing taken) if it cannot be.

        Two greedy ways are compared where victims hold several devices: the cheapest device first, and most
        devices freed for the price first.
        """
        mark = self._world.checkpoint()
        if request.devices < 2 or not self._entangled(node):
            units = self._cleared(node, request, False)
            if units is None:
                self._world.undo(mark)
            return units
        best: tuple[Cost, list[Unit]] | None = None
        for broad in (False, True):
            units = self._cleared(node, request, broad)
            if units is not None:
                price = self.price(units)
                if best is None or price < best[0]:
                    best = (price, units)
            self._world.undo(mark)
        if best is None:
            return None
        for unit in best[1]:
            self.apply(unit)
        return best[1]

    def estimate(self, node: NodeState, request: Request) -> Cost | None:
        """What clear() would cost now; None if it could not be.

        Where each victim sits on one device nothing has to be tried, and it may turn out to cost more.
        """
        plain = whole(request) and request.devices > node.free and not self._entangled(node)
        units = self._apart(node, request) if plain else None
        if units is None and plain:
            return None
        if units is None or not self._roomy(node, request, units):
            mark = self._world.checkpoint()
            units = self.clear(node, request)
            self._world.undo(mark)
        return self.price(units) if units is not None else None

    def _apart(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Units that free enough devices, the cheapest first; None if there are too few."""
        lacks = request.devices - node.free
        if not self.spend(1) or lacks > node.usable - node.free:
            return None
        found: list[tuple[Cost, int, list[Unit]]] = []
        for device in node.devices.values():
            if not (device.free or device.gpu.foreign):
                units = self._off(device, fraction.share_on(device.gpu, request))
                if units is not None:
                    found.append((self.price(units), device.gpu.index, units))
        if len(found) < lacks:
            return None
        found.sort(key=lambda entry: entry[:2])
        return [unit for entry in found[:lacks] for unit in entry[2]]

    def _roomy(self, node: NodeState, request: Request, units: list[Unit]) -> bool:
        """True if without these units there are cores and memory enough as well."""
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
            if not self.spend(1):
                return None
            if request.devices and not self._devices_fit(node, request):
                for device, share in self._cheapest(node, request, broad):
                    if self._devices_fit(node, request):
                        break
                    # What was taken meanwhile may have freed it, or may have changed what may be taken.
                    for unit in self._off(device, share) or ():
                        self.apply(unit)
                        units.append(unit)
                    if broad:
                        break
            else:
                for unit in self._least(node):
                    self.apply(unit)
                    units.append(unit)
            if len(units) == known:
                return None
        return units

    def _cheapest(self, node: NodeState, request: Request, broad: bool) -> list[tuple[Device, Share]]:
        """Devices that can be freed for a request, the cheapest first."""
        found: list[tuple[Cost, int, Device, Share]] = []
        for device in node.devices.values():
            share = fraction.share_on(device.gpu, request)
            if device.gpu.foreign or device.room(share.portion, share.memory):
                continue
            units = self._off(device, share)
            if units is None:
                continue
            price = self.price(units)
            if broad:
                freed = max(1, min(self._freed(node, units), request.devices - node.free))
                price = (price[0] * LARGE // freed, price[1] * LARGE // freed, price[2])
            found.append((price, device.gpu.index, device, share))
        found.sort(key=lambda entry: entry[:2])
        return [entry[2:] for entry in found]

    def _least(self, node: NodeState) -> list[Unit]:
        """The cheapest unit that frees cores and memory of a node; none if there is none."""
        found: list[tuple[Cost, TaskKey, Unit]] = []
        for key in node.tasks:
            claim = self._world.claim_of(key)
            if claim is not None and claim.node == node.row.name and (claim.cpu or claim.memory):
                unit = unit_for(self._rules, key, None)
                if unit is not None:
                    found.append((self.price([unit]), key, unit))
        return [min(found, key=lambda entry: entry[:2])[2]] if found else []

    def _freed(self, node: NodeState, units: list[Unit]) -> int:
        """How many more devices of the node these units free, at least 1."""
        mark, free = self._world.checkpoint(), node.free
        for unit in units:
            self.apply(unit)
        freed = node.free - free
        self._world.undo(mark)
        return max(1, freed)

    @staticmethod
    def _devices_fit(node: NodeState, request: Request) -> bool:
        if whole(request):
            return request.devices <= node.free
        return fraction.shared_devices(node, request) is not None

    def _off(self, device: Device, share: Share) -> list[Unit] | None:
        """Units that free a share of one device, found on the journal and undone; None if that cannot be."""
        world = self._world
        claimants = [key for key in device.users() if self._claims(key, device.gpu.uuid)]
        if len(claimants) == 1:  # without it the device is free: nothing to try
            only = unit_for(self._rules, claimants[0], device.gpu.uuid)
            return [only] if only is not None else None
        mark = world.checkpoint()
        units: list[Unit] = []
        claimants = [key for key in claimants if self._cycle.placeable(key[0])]
        claimants.sort(key=lambda key: (rank(self._rules, key[0]), key))
        for key in claimants:
            if device.room(share.portion, share.memory):
                break
            unit = unit_for(self._rules, key, device.gpu.uuid)
            if unit is None:
                continue
            self.apply(unit)
            units.append(unit)
        enough = device.room(share.portion, share.memory)
        world.undo(mark)
        return units if enough else None

    def _claims(self, key: TaskKey, uuid: str) -> bool:
        claim = self._world.claim_of(key)
        return claim is not None and any(share.gpu == uuid for share in claim.shares)

    def apply(self, unit: Unit) -> None:
        before = self.before.setdefault(unit.workload, {})
        for key, after in unit.changes:
            before.setdefault(key, self._world.claim_of(key))
            self._world.claim(key, after)

    def spend(self, steps: int) -> bool:
        self._cycle.steps -= steps
        return self._cycle.steps >= 0
