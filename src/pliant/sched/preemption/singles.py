"""Victims of one task on one device of its own: what taking them costs is worked out once for many hunts."""

from pliant.model.machine import Placement
from pliant.model.workload import TaskKey
from pliant.sched.preemption.victims import Cost, Rules, Unit, core_cost
from pliant.sched.world.chunks import Step, priority_of
from pliant.sched.world.nodes import Device, NodeState

Entry = tuple[Cost, int, Unit]
"""What it costs to free a device, its index, and the one unit that has to go: if it may, see Rules.may()."""


class Singles:
    """Kept while the order of those who give stays the same; what a node has changes with its stamp."""

    def __init__(self) -> None:
        self._units: dict[TaskKey, tuple[Placement, Entry]] = {}
        self._nodes: dict[str, tuple[int, list[Entry] | None]] = {}

    def on(self, rules: Rules, node: NodeState) -> list[Entry] | None:
        """What would free each device of a node, the cheapest first; None where it is not that simple."""
        if rules.moves or rules.relocates or rules.shelter:
            return None
        known = self._nodes.get(node.row.name)
        if known is not None and known[0] == node.stamp:
            return known[1]
        taken = [device for device in node.devices.values() if device.claimed or device.claimed_memory]
        entries = [entry for device in taken if (entry := self._entry(rules, device)) is not None]
        found = sorted(entries) if len(entries) == len(taken) else None
        self._nodes[node.row.name] = node.stamp, found
        return found

    def _entry(self, rules: Rules, device: Device) -> Entry | None:
        """None unless its one claimant is a workload of one task that has nothing else."""
        world, uuid = rules.world, device.gpu.uuid
        if len(device.tasks) == 1:  # who claims it
            (key,) = device.tasks
            known = self._units.get(key)
            if known is not None and known[0] is world.claim_of(key):
                return known[1]
        claimants = [key for key in device.tasks if _claims(world.claim_of(key), uuid)]
        if len(claimants) != 1:
            return None
        key = claimants[0]
        claim, known = world.claim_of(key), self._units.get(key)
        if known is not None and known[0] is claim:
            return known[1]
        victim = world.workloads.get(key[0])
        if victim is None or claim is None or len(victim.groups) > 1 or len(claim.shares) > 1:
            return None
        group = victim.groups[0]
        alone = group.min == group.max == 1 and not group.elastic and victim.id != rules.chunk.workload.id
        if not alone or device.gpu.foreign or victim.project not in world.projects or rules.safe(victim):
            return None
        own = priority_of(victim, group)
        unit = Unit(victim.id, Step.CORE, ((key, None),), claim.gpu, (key, uuid), own)
        row = world.tasks[key]
        rules.fresh[victim.id] = row.claims is None and row.carries is None  # its only task
        entry = core_cost(rules, unit), device.gpu.index, unit
        self._units[key] = claim, entry
        return entry


def _claims(claim: Placement | None, uuid: str) -> bool:
    return claim is not None and (
        claim.shares[0].gpu == uuid if len(claim.shares) == 1 else uuid in claim.uuids
    )


def together(prices: list[Cost]) -> Cost:
    """What units of different workloads cost at once."""
    if len(prices) == 1:
        return prices[0]
    ranks = sorted((rank for price in prices for rank in price[2]), reverse=True)
    return sum(price[0] for price in prices), sum(price[1] for price in prices), tuple(ranks)
