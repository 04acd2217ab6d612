"""What shrink, consolidate, reclaim and preempt have in common: serve the waiting in fair order by taking."""

from collections.abc import Callable

from pliant.model.quantity import Resources
from pliant.sched import reach
from pliant.sched.context import Block, Cycle
from pliant.sched.hunt import Hunt
from pliant.sched.portions import Chunk
from pliant.sched.victims import Rules

RulesFor = Callable[[Cycle, Chunk, str, Resources], Rules | None]
"""The rules under which a chunk may take from others in a pool; None if it may not, or if it is of no use."""


def serve(cycle: Cycle, action: str, rules_for: RulesFor) -> None:
    """Let every blocked workload try, in fair order; what asks for more after a success tries again."""
    world = cycle.world
    for turn, pool in cycle.turns():
        if cycle.steps <= 0:
            return
        chunks = [
            chunk
            for chunk in cycle.waiting(pool, turn)
            if chunk.workload.id in cycle.blocked
            and rules_for(cycle, chunk, pool, cycle.adding(chunk, pool)) is not None
        ]
        if not chunks:
            continue
        order = cycle.order(pool, iter(chunks))
        failed: set[tuple[object, ...]] = set()
        while (job := order.pop()) is not None and cycle.steps > 0:
            chunk, adding = job
            workload = chunk.workload
            before = world.gpu_of(workload.id)
            if not cycle.try_place(chunk, pool, adding):
                rules = rules_for(cycle, chunk, pool, adding)
                shape = (
                    workload.project,
                    workload.priority,
                    reach.types(world, workload),
                    chunk.step,
                    chunk.shape,
                )
                if rules is None or (shape in failed and not chunk.extends):
                    cycle.block(Block(chunk, pool, adding, cycle.refuse(chunk, pool, adding)))
                    continue
                if not Hunt(cycle, rules).run():
                    failed.add(shape)
                    cycle.block(Block(chunk, pool, adding, cycle.refuse(chunk, pool, adding)))
                    continue
                cycle.room_freed()
                failed.clear()
            cycle.placed(chunk, pool, action, before)
            following = world.need(workload.id).chunk
            if following is not None and not cycle.rests(following):
                order.push(following, cycle.adding(following, pool))
