"""What shrink, consolidate, reclaim and preempt have in common: serve the waiting in fair order by taking."""

from collections.abc import Callable, Iterator

from pliant.model.quantity import Resources
from pliant.sched.actions.context import Block, Cycle, Lane
from pliant.sched.actions.reservation import Reserving
from pliant.sched.placement.eligibility import Kin
from pliant.sched.preemption.search import Hunt
from pliant.sched.preemption.victims import Rules
from pliant.sched.shares.job_order import Batch
from pliant.sched.shares.queue_order import job_key
from pliant.sched.world.chunks import Chunk

RulesFor = Callable[[Cycle, Chunk, str, Resources], Rules | None]
"""The rules under which a chunk may take from others in a pool; None if it may not, or if it is of no use."""


def serve(cycle: Cycle, reserving: Reserving, action: str, rules_for: RulesFor) -> None:
    """Let every blocked workload try, in fair order; what asks for more after a success tries again."""
    world = cycle.world
    for lane in cycle.turns():
        pool = lane[1]
        rows = list(_useful(cycle, lane, rules_for))
        if action != "shrink":  # bonus may be taken at once
            rows = [[chunk for chunk in row if not cycle.delayed(chunk.workload)] for row in rows]
        if not any(rows):
            continue
        order = cycle.order(pool, rows)
        failed: set[Kin] = set()
        while (job := order.pop()) is not None and cycle.steps > 0:
            chunk, adding = job
            wid = chunk.workload.id
            if not cycle.world.asks(chunk):
                continue  # it lost what it had while it waited for its turn
            kin = cycle.kin(chunk, pool)
            before = world.gpu_of(wid)
            rules = rules_for(cycle, chunk, pool, adding) if kin not in failed else None
            with reserving.seen_by(chunk, pool):
                served = rules is not None and (
                    cycle.try_place(chunk, pool, adding) or _hunted(cycle, rules, failed)
                )
            if not served:
                failed.add(kin)
                alike = (chunk, *filter(cycle.world.asks, order.following()))
                cycle.block(
                    lane, Block(chunk, pool, adding, cycle.shares.refuse(chunk, pool, adding), kin), alike
                )
                continue
            cycle.placed(chunk, pool, action, before)
            following = world.need(wid).chunk
            if following is not None and not cycle.rests(following):
                order.push(following, cycle.adding(following, pool))


def _hunted(cycle: Cycle, rules: Rules, failed: set[Kin]) -> bool:
    """Place a chunk by taking from others."""
    if not Hunt(cycle, rules).run():
        return False
    cycle.room_freed()
    failed.clear()
    return True


def _useful(cycle: Cycle, lane: Lane, rules_for: RulesFor) -> Iterator[Batch]:
    """What failed in this lane and is still wanted, if the action may do anything for it."""
    for alike in cycle.failures.get(lane, {}).values():
        first = next(filter(cycle.world.asks, alike.values()), None)
        if first is not None and rules_for(cycle, first, lane[1], cycle.adding(first, lane[1])) is not None:
            yield sorted(filter(cycle.world.asks, alike.values()), key=job_key)
