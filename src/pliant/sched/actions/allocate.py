"""Allocate: place what fits on what nobody claims, in fair order. Evicts nobody."""

from pliant.sched.actions.hasten import hasten_first
from pliant.sched.admission import Refusal
from pliant.sched.context import Block, Cycle, Kin


def allocate(cycle: Cycle) -> None:
    world = cycle.world
    cycle.reserving.drop()
    hasten_first(cycle)
    hopeless: dict[Kin, Refusal | None] = {}  # claims only grow here: what failed once fails again
    for lane, chunks in cycle.lanes().items():
        pool = lane[1]
        order = cycle.order(pool, (chunk for chunk in chunks if cycle.asks(chunk)))
        while (job := order.pop()) is not None:
            chunk, adding = job
            wid = chunk.workload.id
            cycle.looked_at(wid)
            kin = cycle.kin(chunk, pool)
            if kin not in hopeless:
                before = world.gpu_of(wid)
                fits = cycle.try_place(chunk, pool, adding)
                if fits or cycle.reserving.backfilled(chunk, pool, adding):
                    cycle.placed(chunk, pool, "allocate", before)
                    following = world.need(wid).chunk
                    if following is not None and not cycle.rests(following):
                        order.push(following, cycle.adding(following, pool))
                    continue
                hopeless[kin] = cycle.refuse(chunk, pool, adding)
                cycle.reserving.consider(chunk, pool, adding, hopeless[kin])
            cycle.block(lane, Block(chunk, pool, adding, hopeless[kin], kin))
