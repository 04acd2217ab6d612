"""Allocate: place what fits on unclaimed capacity, in fair order. Evicts none."""

from pliant.sched.actions.context import Block, Cycle
from pliant.sched.actions.reservation import Reserving
from pliant.sched.placement.eligibility import Equivalence
from pliant.sched.shares.admission import Refusal
from pliant.sched.shares.job_order import Batch


def allocate(cycle: Cycle, reserving: Reserving) -> None:
    world = cycle.world
    hopeless: dict[Equivalence, Refusal | None] = {}  # claims only grow here: what failed once fails again
    begun, positions = world.version, cycle.positions
    for choice, rows in cycle.waiting().items():
        pool = choice[1]
        asking = rows if world.version == begun else [list(filter(cycle.world.asks, row)) for row in rows]
        order = cycle.order(pool, asking)
        seen: dict[int, tuple[Batch, Equivalence]] = {}  # by id of a row, which is held: none gets its id
        while (job := order.pop()) is not None:
            chunk, adding = job
            wid = chunk.workload.id
            positions.setdefault(wid, len(positions) + 1)
            known = seen.get(id(order.row))
            if known is None:  # of all in a row it is the same
                known = seen[id(order.row)] = order.row, cycle.equivalence(chunk, pool)
            equivalence = known[1]
            if equivalence not in hopeless:
                before = 0 if chunk.alone or not world.need(wid).holds else world.gpu_of(wid)
                fits = cycle.try_place(chunk, pool, adding, equivalence)
                if fits or reserving.backfilled(chunk, pool, adding):
                    cycle.placed(chunk, pool, "allocate", before)
                    more = None if chunk.alone else world.need(wid).chunk
                    if more is not None and not cycle.rests(more):
                        order.push(more, cycle.adding(more, pool))
                    continue
                hopeless[equivalence] = cycle.shares.refuse(chunk, pool, adding)
                reserving.consider(chunk, pool, adding, hopeless[equivalence])
            following = order.following()
            cycle.looked_at(following)
            cycle.block(
                choice, Block(chunk, pool, adding, hopeless[equivalence], equivalence), (chunk, *following)
            )
