"""Staying: a task that lost its place in a cycle and finds it free again in that cycle keeps it."""

from collections.abc import Iterable

from pliant.model.machine import Placement
from pliant.model.workload import TaskKey
from pliant.sched.placement import eligibility
from pliant.sched.world.state import World


def given_back(world: World, claims: Iterable[tuple[TaskKey, Placement | None]]) -> bool:
    """Let tasks claim these places again; False, and nothing changed, if one is no longer free for them."""
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
    return (
        node is not None
        and (node.row.max_tasks is None or node.claimants < node.row.max_tasks)
        and claim.cpu <= node.free_cpu
        and claim.memory <= node.free_memory
        and node.knows(claim)
        and all(node.devices[share.gpu].room(share) for share in claim.shares)
        and eligibility.allowed(node, eligibility.bars(world, key))
    )
