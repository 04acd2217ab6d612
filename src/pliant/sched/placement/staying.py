"""Staying: a task that lost its place in a cycle keeps it if it is free again in that cycle."""

from collections.abc import Iterable

from pliant.model.machine import Placement
from pliant.model.workload import TaskKey
from pliant.sched.placement import eligibility
from pliant.sched.world.state import World


def given_back(world: World, claims: Iterable[tuple[TaskKey, Placement | None]]) -> bool:
    """Claim these places for the tasks again; False, with nothing changed, if one is no longer free."""
    mark = world.checkpoint()
    for key, claim in claims:
        if claim is None:
            world.claim(key, None)
        elif not (_free(world, key, claim) and world.seat(key, claim)):
            world.undo(mark)
            return False
    return True


def _free(world: World, key: TaskKey, claim: Placement) -> bool:
    node = world.nodes.get(claim.node)
    if node is None or claim.cpu > node.free_cpu or claim.memory > node.free_memory:
        return False
    for share in claim.shares:
        device = node.devices.get(share.gpu)
        if device is None or not device.room(share):
            return False
    enough = node.row.max_tasks is None or node.claimants < node.row.max_tasks
    return enough and eligibility.allowed(node, eligibility.bars(world, key))
