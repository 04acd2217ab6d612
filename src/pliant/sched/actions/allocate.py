"""Allocate: place what fits on what nobody claims, in fair order. Evicts nobody."""

from pliant.sched.context import Block, Cycle


def allocate(cycle: Cycle) -> None:
    for turn, pool in cycle.turns():
        order = cycle.order(pool, cycle.waiting(pool, turn))
        while (job := order.pop()) is not None:
            chunk, adding = job
            wid = chunk.workload.id
            cycle.looked_at(wid)
            before = cycle.world.gpu_of(wid)
            if cycle.try_place(chunk, pool, adding):
                cycle.placed(chunk, pool, "allocate", before)
                following = cycle.world.need(wid).chunk
                if following is not None and not cycle.rests(following):
                    order.push(following, cycle.adding(following, pool))
            else:
                cycle.block(Block(chunk, pool, adding, cycle.refuse(chunk, pool, adding)))
