"""Making room: what must be taken so that one node can hold one request, the cheapest way first."""

from itertools import islice

from pliant.model.machine import Placement, Share
from pliant.model.quantity import GPU
from pliant.model.workload import Request, TaskKey
from pliant.sched.actions.context import Cycle
from pliant.sched.placement import fit, fraction
from pliant.sched.preemption.singles import Entry, Singles, together
from pliant.sched.preemption.victims import Cost, Rules, Unit, cost, rank, single, unit_for
from pliant.sched.world import device_share
from pliant.sched.world.chunks import Step
from pliant.sched.world.nodes import Device, NodeState
from pliant.sched.world.portions import whole

LARGE = 1 << 32
"""Scale on which prices per freed device are compared as integers."""


class Clearing:
    """Takes units on the journal and remembers what their tasks claimed before."""

    def __init__(self, cycle: Cycle, rules: Rules) -> None:
        self._cycle = cycle
        self._world = cycle.world
        self._rules = rules
        self.by_node = Singles()
        self.before: dict[str, dict[TaskKey, Placement | None]] = {}  # workload -> claims when first touched

    def price(self, units: list[Unit]) -> Cost:
        return cost(self._rules, units)

    def clear(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Take what a request needs on one node; None (and nothing taken) if it cannot be.

        Two greedy ways are compared where victims hold several devices: the cheapest device first, and most
        devices freed for the price first.
        """
        mark = self._world.checkpoint()
        if request.devices < 2 or self._simple(node, request) or not self._entangled(node):
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
        simple = self._simple(node, request)
        if simple is not None and request.devices > node.free:
            lacks = request.devices - node.free
            if not self.spend(1) or lacks > len(simple):
                return None
            chosen = list(islice((entry for entry in simple if self._may(entry[2])), lacks))
            if len(chosen) < lacks:
                return None
            if self._roomy(node, request, [entry[2] for entry in chosen]):
                return together([entry[0] for entry in chosen])
        plain = whole(request) and request.devices > node.free and not self._entangled(node)
        part = request.devices == 1 and request.shared and not self._devices_fit(node, request)
        units = self._apart(node, request) if plain else self._on_one(node, request) if part else None
        if units is None and (plain or part):
            return None
        if units is None or not self._roomy(node, request, units):
            mark = self._world.checkpoint()
            units = self.clear(node, request)
            self._world.undo(mark)
        return self.price(units) if units is not None else None

    def _simple(self, node: NodeState, request: Request) -> list[Entry] | None:
        """What frees the devices of a node for whole ones where each has a victim of its own."""
        return self.by_node.on(self._rules, node) if whole(request) else None

    def _may(self, unit: Unit) -> bool:
        return self._rules.takes(self._world.workloads[unit.workload], unit.step, unit.priority)

    def _apart(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Units that free enough devices, the cheapest first; None if there are too few."""
        lacks = request.devices - node.free
        if not self.spend(1) or lacks > node.usable - node.free:
            return None
        found: list[tuple[Cost, int, list[Unit]]] = []
        for device in node.devices.values():
            if not (device.free or device.gpu.foreign):
                priced = self._priced(device, device_share.share_on(device.gpu, request))
                if priced is not None:
                    found.append((priced[1], device.gpu.index, priced[0]))
        if len(found) < lacks:
            return None
        found.sort(key=lambda entry: entry[:2])
        return [unit for entry in found[:lacks] for unit in entry[2]]

    def _on_one(self, node: NodeState, request: Request) -> list[Unit] | None:
        """Units that free a part of one device, the cheapest; None if there is none."""
        priced = self._cheapest(node, request, False) if self.spend(1) else []
        return self._off(*priced[0]) if priced else None

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
            simple = self._simple(node, request) if not broad else None
            if request.devices and simple is not None and node.free < request.devices:
                for _, _, unit in simple:
                    if node.free >= request.devices:
                        break
                    if self._may(unit):
                        self.apply(unit)
                        units.append(unit)
            elif request.devices and not self._devices_fit(node, request):
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
            share = device_share.share_on(device.gpu, request)
            if device.gpu.foreign or device.room(share.portion, share.memory):
                continue
            if share.portion > GPU or share.memory > device.gpu.memory:
                continue  # not even if it were empty
            priced = self._priced(device, share)
            if priced is None:
                continue
            units, price = priced
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

    def _priced(self, device: Device, share: Share) -> tuple[list[Unit], Cost] | None:
        """Units that free a share of one device and what they cost; None if that cannot be."""
        claimants = self._claimants(device)
        if len(claimants) == 1:  # without it the device is free: nothing to try
            only = single(self._rules, claimants[0], device.gpu.uuid)
            return ([only[0]], only[1]) if only is not None else None
        units = self._freeing(device, share, claimants)
        return (units, self.price(units)) if units is not None else None

    def _off(self, device: Device, share: Share) -> list[Unit] | None:
        priced = self._priced(device, share)
        return priced[0] if priced is not None else None

    def _claimants(self, device: Device) -> list[TaskKey]:
        if len(device.tasks) == 1 and device.claimed:
            return list(device.tasks)
        return [key for key in device.users() if self._claims(key, device.gpu.uuid)]

    def _freeing(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit] | None:
        """Units that free a share of a device; None if that cannot be. Nothing is taken yet."""
        claimants = [key for key in claimants if self._cycle.placeable(key[0])]
        claimants.sort(key=lambda key: (rank(self._rules, key[0]), key))
        portion, memory = (
            device.claimed + share.portion - GPU,
            device.claimed_memory + share.memory - device.gpu.memory,
        )
        alone: list[tuple[Cost, int, Unit]] = []
        cores = self._cycle.settings.victims != "youngest"
        for at, key in enumerate(claimants):
            found = single(self._rules, key, device.gpu.uuid)
            cores = cores and (found is None or found[0].step is Step.CORE)
            mine = self._share(key, device.gpu.uuid)
            if found is not None and mine is not None and mine.portion >= portion and mine.memory >= memory:
                alone.append((found[1], at, found[0]))
        one = min(alone)[2] if alone else None
        if one is not None and cores:
            return [one]  # any two cost more
        few = self._together(device, share, claimants)
        if one is None or (few is not None and self.price(few) < self.price([one])):
            return few
        return [one]

    def _together(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit] | None:
        """Units that are enough together, each of them needed; found on the journal and undone."""
        best: tuple[Cost, list[Unit]] | None = None
        large = sorted(claimants, key=lambda key: -self._portion(key, device.gpu.uuid))
        for order in (claimants, large):
            units = self._in_turn(device, share, order)
            if units is None:
                return None
            for unit in sorted(units, key=lambda unit: self.price([unit]), reverse=True):
                less = self._in_turn(device, share, [u.cause[0] for u in units if u is not unit])
                units = less if less is not None else units
            price = self.price(units)
            if best is None or price < best[0]:
                best = (price, units)
        return best[1] if best is not None else None

    def _in_turn(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit] | None:
        """Units of these in their order until there is room; None if there never is."""
        mark = self._world.checkpoint()
        units: list[Unit] = []
        for key in claimants:
            if device.room(share.portion, share.memory):
                break
            unit = unit_for(self._rules, key, device.gpu.uuid)
            if unit is not None:
                self.apply(unit)
                units.append(unit)
        enough = device.room(share.portion, share.memory)
        self._world.undo(mark)
        return units if enough else None

    def _share(self, key: TaskKey, uuid: str) -> Share | None:
        claim = self._world.claim_of(key)
        return (
            next((share for share in claim.shares if share.gpu == uuid), None) if claim is not None else None
        )

    def _portion(self, key: TaskKey, uuid: str) -> int:
        share = self._share(key, uuid)
        return share.portion if share is not None else 0

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
