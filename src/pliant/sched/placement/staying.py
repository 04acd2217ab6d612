"""Staying: whoever lost a place in a cycle and finds it free again in that cycle keeps it and runs on."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pliant.model.machine import Placement
from pliant.sched.placement import affinity
from pliant.sched.world.nodes import TaskKey
from pliant.sched.world.portions import Chunk
from pliant.sched.world.state import World

if TYPE_CHECKING:
    from pliant.sched.actions.context import Cycle


def given_back(world: World, claims: Iterable[tuple[TaskKey, Placement | None]]) -> bool:
    """Let tasks claim these places again; False, and nothing changed, if one is no longer free for them."""
    mark = world.checkpoint()
    for key, claim in claims:
        if not (claim is None or _free(world, key, claim)):
            world.undo(mark)
            return False
        world.claim(key, claim)
    return True


def _free(world: World, key: TaskKey, claim: Placement) -> bool:
    node = world.nodes.get(claim.node)
    return (
        node is not None
        and (node.row.max_tasks is None or node.claimants < node.row.max_tasks)
        and claim.cpu <= node.free_cpu
        and claim.memory <= node.free_memory
        and node.knows(claim)
        and all(node.devices[share.gpu].room(share.portion, share.memory) for share in claim.shares)
        and affinity.allowed(node, affinity.bars(world, key))
    )


def stay(cycle: "Cycle", chunk: Chunk) -> bool:
    """Place a chunk that lost its places in this cycle where it was, if they are all free again.

    Whatever pool it is tried in: one that it prefers is no reason to restart what runs.
    """
    world = cycle.world
    mine: dict[TaskKey, Placement | None] = {}
    for part in chunk.parts:
        mine[part.task] = world.tasks[part.task].claims
        if mine[part.task] is None or part.task in cycle.void or chunk.extends:
            return False
    rest = (key for key in world.keys_of(chunk.workload.id) if key not in mine)
    if any(world.claim_of(key) not in (None, world.tasks[key].claims) for key in rest):
        return False
    mark = world.checkpoint()
    if not given_back(world, mine.items()):
        return False
    pools = {world.pool_of(claim.node) for claim in mine.values() if claim is not None}
    if any(cycle.exceeded(chunk, pool, cycle.adding(chunk, pool)) for pool in pools):
        world.undo(mark)
        return False
    return True
