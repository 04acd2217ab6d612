"""Stay: cancels a move if the old place is free once everything is decided."""

from pliant.model.machine import Placement
from pliant.model.workload import Task
from pliant.sched.actions.context import Cycle
from pliant.sched.placement.staying import given_back
from pliant.sched.world.state import World


def stay(cycle: Cycle) -> None:
    """Runs last. Only for tasks that run in their old places: a move costs the others nothing."""
    world = cycle.world
    for wid in dict.fromkeys(key[0] for key in world.changed(moved=True)):
        if not cycle.placeable(wid) or any(key in cycle.void for key in world.keys_of(wid)):
            continue
        moved = [row for row in world.tasks_of(wid) if world.claim_of(row.key) != row.claims]
        if not all(_comes_to_the_same(world, row, world.claim_of(row.key)) for row in moved):
            continue
        mark = world.checkpoint()
        for row in moved:
            world.claim(row.key, None)
        if not given_back(world, [(row.key, row.claims) for row in moved]):
            world.undo(mark)


def _comes_to_the_same(world: World, row: Task, claim: Placement | None) -> bool:
    """True if a running task claims as much elsewhere in the same pool."""
    old = row.claims
    return (
        claim is not None
        and old is not None
        and row.carries == old
        and claim.resources == old.resources
        and world.pool_of(claim.node) == world.pool_of(old.node)
    )
