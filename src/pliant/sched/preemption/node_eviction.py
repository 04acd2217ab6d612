"""Node eviction: the cheapest units to take so that one node can hold one request."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter

from pliant.model.machine import Share
from pliant.model.quantity import GPU
from pliant.model.workload import Request, TaskKey
from pliant.sched.placement import fit
from pliant.sched.preemption.attempt import Attempt, Cost, Unit
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache, Priced
from pliant.sched.world.chunks import rigid
from pliant.sched.world.device_share import share_on
from pliant.sched.world.nodes import Device, NodeState
from pliant.sched.world.portions import whole

LARGE = 1 << 32  # scale on which prices per freed device are compared as integers


class NodeEviction:
    """Takes units for one attempt."""

    def __init__(self, policy: Policy, prices: PriceCache, attempt: Attempt) -> None:
        self._policy = policy
        self._world = policy.world
        self._prices = prices
        self._attempt = attempt

    def clear(self, node: NodeState, request: Request) -> Cost | None:
        """Take units until a request fits on a node. The cost; None, with nothing taken, if impossible.

        If victims hold several devices, two greedy ways are compared: the cheapest device first, and the most
        devices freed per price first.
        """
        if request.devices > 1 and self._simple(node, request) is None and self._entangled(node):
            ways = [partial(self._cleared, node, request, broad) for broad in (False, True)]
            return self._attempt.cheapest(ways, self._prices.of)
        mark = self._attempt.checkpoint()
        if not (cleared := self._cleared(node, request, False)):
            self._attempt.undo(mark)
        return self._prices.of(self._attempt.units[mark[1] :]) if cleared else None

    def estimate(self, node: NodeState, request: Request) -> Cost | None:
        """What clear() would cost now; None if impossible.

        If devices can be freed one by one, it adds up the cheapest ones; the true cost may be higher.
        """
        simple, lacks = self._simple(node, request), not fit.has_devices(node, request)
        apart = simple is not None or not self._entangled(node) if whole(request) else request.devices == 1
        if lacks and apart:
            missing = request.devices - node.free if whole(request) else 1
            most = missing if self._policy.grounds.effort.spend(1) else 0
            found = [price for price, _ in islice(self._by_device(node, request, False, simple), most)]
            return _together(found) if len(found) == missing else None
        mark = self._attempt.checkpoint()
        cost = self.clear(node, request)
        self._attempt.undo(mark)
        return cost

    def _entangled(self, node: NodeState) -> bool:
        """True if some workload claims several devices of the node."""
        held = [key[0] for key, claim in self._world.claims_on(node) for _ in claim.shares]
        return len(set(held)) < len(held)

    # ------------------------------------------------------------------ which units
    def _cleared(self, node: NodeState, request: Request, broad: bool) -> bool:
        """Take units until the request fits; False if there are too few."""
        attempt = self._attempt
        while not fit.fits(node, request):
            known, lacks_devices = len(attempt.units), not fit.has_devices(node, request)
            if not self._policy.grounds.effort.spend(1):
                return False
            freed = map(itemgetter(1), self._by_device(node, request, broad, self._simple(node, request)))
            for units in freed if lacks_devices else (self._least(node),):
                for unit in units:
                    attempt.take(unit)
                if fit.has_devices(node, request):
                    break
            if len(attempt.units) == known:
                return False
        return True

    def _by_device(
        self, node: NodeState, request: Request, broad: bool, simple: list[Priced] | None
    ) -> Iterator[tuple[Cost, Sequence[Unit]]]:
        """Yields (price, units that free a device), the cheapest first; the units are current when yielded.

        `simple`: the answer of _simple(). `broad`: only the first one, by its price per freed device.
        """
        attempt, known = self._attempt, len(self._attempt.units)
        for price, _, unit in simple or ():
            if self._policy.takes(attempt, self._world.workloads[unit.workload], unit.step, unit.priority):
                yield price, (unit,)
        found: list[tuple[Cost, int, Device, Share, list[Unit]]] = []
        for device in node.devices.values() if simple is None else ():
            share = device.whole() if whole(request) else share_on(device.gpu, request)
            if device.gpu.foreign or share.portion > GPU or share.memory > device.gpu.memory:
                continue  # not even if it were empty
            if units := self._freeing(device, share) if not device.room(share) else []:
                price = self._prices.of(units)
                if broad:
                    freed = max(1, min(self._freed(node, units), request.devices - node.free))
                    price = (price[0] * LARGE // freed, price[1] * LARGE // freed, price[2])
                found.append((price, device.gpu.index, device, share, units))
        for price, _, device, share, units in sorted(found, key=itemgetter(0, 1))[: 1 if broad else None]:
            # The units taken meanwhile may have freed a part of this device.
            yield price, units if len(attempt.units) == known else self._freeing(device, share)

    def _least(self, node: NodeState) -> list[Unit]:
        """The cheapest unit that frees cores or memory of a node, in a list; [] if there is none."""
        claims = sorted(self._world.claims_on(node), key=itemgetter(0))
        units = [self._policy.unit(self._attempt, key, None) for key, it in claims if it.cpu or it.memory]
        return sorted(filter(None, units), key=lambda unit: self._prices.of((unit,)))[:1]

    # ------------------------------------------------------------------ one victim on each device
    def _simple(self, node: NodeState, request: Request) -> list[Priced] | None:
        """_only() of all claimed devices of a node, the cheapest first; None if one of them has none."""
        policy, relocates = self._policy, self._attempt.mode.relocates or self._world.guard is not None
        if not whole(request) or policy.moves or relocates or policy.grounds.churn.bounded:
            return None
        stamp, found = self._prices.simple.get(node.row.name, (-1, None))
        if stamp != node.stamp:
            taken = [device for device in node.devices.values() if device.claimed or device.claimed_memory]
            entries = sorted(filter(None, map(self._only, taken)))
            found = entries if len(entries) == len(taken) else None
            self._prices.simple[node.row.name] = node.stamp, found
        return found

    def _only(self, device: Device) -> Priced | None:
        """The only claimant of a device, if it is rigid, unprotected and has no other device; else None."""
        known = self._prices.alone.get(device)
        if known is not None and known[0] == device.stamp:
            return known[1]
        claims = [(key, claim) for key in device.tasks if (claim := self._world.claim_of(key)) is not None]
        if len(claims) != 1 or len(claims[0][1].shares) > 1 or device.gpu.foreign:
            return None
        key, claim = claims[0]
        victim = self._policy.victim(key)
        if victim is None or not rigid(victim) or self._policy.safe(victim):
            return None
        unit = self._policy.everything(victim, claim, (key, device.gpu.uuid))
        found = self._prices.of((unit,)), device.gpu.index, unit
        self._prices.alone[device] = device.stamp, found
        return found

    # ------------------------------------------------------------------ victims of all kinds
    def _freed(self, node: NodeState, units: list[Unit]) -> int:
        """How many more devices of the node these units free."""
        mark, free = self._attempt.checkpoint(), node.free
        for unit in units:
            self._attempt.take(unit)
        freed = node.free - free
        self._attempt.undo(mark)
        return freed

    def _freeing(self, device: Device, share: Share) -> list[Unit]:
        """The cheapest units found that free a share of one device; [] if impossible. Nothing is taken yet.

        With several claimants it tries each alone, then all by rank, then all with the largest first. Units
        that are not needed are left out.
        """
        claim_of, prices, uuid = self._world.claim_of, self._prices, device.gpu.uuid
        claims = [(key, claim) for key in device.tasks if (claim := claim_of(key)) is not None]
        claimants = {key: share.portion for key, it in claims for share in it.shares if share.gpu == uuid}
        if len(claimants) == 1:  # without it the device is free: nothing to try
            only = self._policy.unit(self._attempt, next(iter(claimants)), uuid)
            return [only] if only is not None else []
        known = [key for key in claimants if self._policy.victim(key) is not None]
        known.sort(key=lambda key: (prices.rank(key[0]), key))
        orders = [*([key] for key in known), known, sorted(known, key=lambda key: -claimants[key])]
        ways = (self._needed(device, share, order) for order in orders)
        return min(filter(None, ways), key=prices.of, default=[])

    def _needed(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit]:
        """_in_turn() without the units that are not needed; [] if all together do not suffice."""
        units = self._in_turn(device, share, claimants)
        for unit in sorted(units, key=lambda unit: self._prices.of([unit]), reverse=True):
            units = self._in_turn(device, share, [u.cause[0] for u in units if u is not unit]) or units
        return units

    def _in_turn(self, device: Device, share: Share, claimants: list[TaskKey]) -> list[Unit]:
        """The units that make room when taken in this order; [] if they do not suffice."""
        attempt, mark = self._attempt, self._attempt.checkpoint()
        for key in claimants:
            unit = self._policy.unit(attempt, key, device.gpu.uuid) if not device.room(share) else None
            if unit is not None:
                attempt.take(unit)
        units = attempt.units[mark[1] :] if device.room(share) else []
        attempt.undo(mark)
        return units


def _together(costs: Sequence[Cost]) -> Cost:
    """The cost of units of different workloads, from the cost of each."""
    ranks = sorted(chain.from_iterable(ranks for _, _, ranks in costs), reverse=True)
    return sum(cores for cores, _, _ in costs), sum(gpu for _, gpu, _ in costs), tuple(ranks)
