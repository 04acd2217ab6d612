"""One cycle: the actions in their order, then the plan that follows from what they changed.

Actions that take from others serve the blocked jobs in fair order; a policy decides what each may take.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

from pliant.sched.actions.allocate import allocate
from pliant.sched.actions.consolidate import consolidate
from pliant.sched.actions.context import Block, Cycle, PolicyFor, PoolChoice
from pliant.sched.actions.grow import grow
from pliant.sched.actions.hasten import hasten, hasten_first
from pliant.sched.actions.intents import Deriver
from pliant.sched.actions.preempt import preempt
from pliant.sched.actions.reclaim import reclaim
from pliant.sched.actions.release import release
from pliant.sched.actions.reservation import Reserving
from pliant.sched.actions.shrink import shrink
from pliant.sched.actions.stale import stale
from pliant.sched.actions.stay import stay
from pliant.sched.actions.vacate import vacate
from pliant.sched.explain.dominant import dominant
from pliant.sched.explain.verdicts import verdicts
from pliant.sched.placement import fit
from pliant.sched.placement.eligibility import Equivalence
from pliant.sched.plan import Decision, Plan, Verb
from pliant.sched.preemption.policy import Policy
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.preemption.search import search
from pliant.sched.settings import Settings
from pliant.sched.shares.job_order import Batch
from pliant.sched.shares.protection import protections
from pliant.sched.shares.queue_order import job_key
from pliant.sched.world.state import World

PLAIN: dict[str, Callable[[Cycle], None]] = {"stale": stale, "hasten": hasten, "grow": grow}
TAKING: dict[str, PolicyFor] = {
    "shrink": shrink,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
}
"""Actions that take from others: they differ by their policy alone."""


def decide(world: World, now: int, settings: Settings) -> Plan:
    """The plan for this world at this instant (ms since the epoch). The world is left as it was found.

    The same world, instant and settings give the same plan, for every hash seed.
    """
    with unswept():
        return _decided(world, now, settings)


@contextmanager
def unswept() -> Iterator[None]:
    """Turns garbage collection off: it would scan the whole world for objects that the cycle drops anyway."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _decided(world: World, now: int, settings: Settings) -> Plan:
    mark = world.checkpoint()
    try:
        world.update_sets()
        cycle = Cycle(world, now, settings)
        reserving = Reserving(cycle, cycle.shares, now, cycle.positions)
        world.guard = cycle.books
        release(cycle)
        if cycle.books is not None:
            vacate(cycle, cycle.books)
        ran: set[str] = set()
        for name in settings.actions:
            if name not in ran or cycle.released:  # again only if something was released meanwhile
                _act(cycle, reserving, name)
            ran.add(name)
        stay(cycle)
        return _plan(cycle, reserving)
    finally:
        world.guard = None
        world.undo(mark)
        world.forget_kept()
        world.update_sets()


def _act(cycle: Cycle, reserving: Reserving, name: str) -> None:
    if name == "allocate":
        reserving.drop()
        hasten_first(cycle)
        allocate(cycle, reserving)
    elif name in TAKING:
        serve(cycle, reserving, name, TAKING[name])
    else:
        PLAIN[name](cycle)


def serve(cycle: Cycle, reserving: Reserving, action: str, policy_for: PolicyFor) -> None:
    """Let every blocked workload take from others, in fair order; then it asks for its next chunk."""
    world = cycle.world
    for choice in cycle.turns():
        pool = choice[1]
        batches = list(_useful(cycle, choice, policy_for))
        if action != "shrink":  # bonus may be taken at once
            batches = [
                [it for it in batch if not it.workload.preemption_delay or not cycle.delayed(it.workload)]
                for batch in batches
            ]
        if not any(batches):
            continue
        order = cycle.order(pool, batches)
        failed: set[Equivalence] = set()
        while (job := order.pop()) is not None and cycle.effort.steps > 0:
            chunk, adding = job
            if not world.asks(chunk):
                continue  # it lost what it had while it waited for its turn
            equivalence, before = cycle.equivalence(chunk, pool), world.gpu_of(chunk.workload.id)
            policy = policy_for(cycle, chunk, pool, adding) if equivalence not in failed else None
            with reserving.seen_by(chunk, pool), cycle.opened(chunk):
                served = policy is not None and cycle.try_place(chunk, pool, adding)
                if policy is not None and not served and _taken(cycle, policy, equivalence):
                    served = True
                    failed.clear()
            if served:
                cycle.placed(chunk, pool, action, before)
                following = world.need(chunk.workload.id).chunk
                if following is not None and not cycle.rests(following):
                    order.push(following, cycle.adding(following, pool))
            else:
                failed.add(equivalence)
                alike = (chunk, *filter(world.asks, order.row[order.following()]))
                refusal = cycle.shares.refuse(chunk, pool, adding)
                block = Block(chunk, pool, adding, refusal, equivalence)
                cycle.block(block, alike, [it.workload.id for it in alike])
                cycle.failed(choice, equivalence, alike)


def _useful(cycle: Cycle, choice: PoolChoice, policy_for: PolicyFor) -> Iterator[Batch]:
    """The chunks that failed in this choice and are still wanted, if the action has a policy for them."""
    for parts in cycle.failures.get(choice, {}).values():
        if len(parts) > 1:
            parts[:] = [list({it.workload.id: it for it in chain.from_iterable(parts)}.values())]
        first = next(filter(cycle.world.asks, parts[0]), None)
        if first is not None and policy_for(cycle, first, choice[1], cycle.adding(first, choice[1])):
            yield sorted(filter(cycle.world.asks, parts[0]), key=job_key)


def _taken(cycle: Cycle, policy: Policy, equivalence: Equivalence) -> bool:
    """Place a chunk by taking from others, and record the decisions; False if nothing was taken."""
    if not policy.within_reach():
        return False
    world, mark = cycle.world, cycle.world.checkpoint()
    prices = cycle.prices.pop(equivalence, None)
    if prices is None or not prices.still_holds():
        youngest = cycle.settings.victims == "youngest"
        prices = PriceCache(cycle.shares, world, policy.pool, youngest=youngest, moves=policy.moves)
    attempt, met = search(policy, prices)
    cycle.came_upon(equivalence, met)
    if attempt is None:
        return False
    fit.tidy(world, policy.nodes, policy.chunk, policy.node_pool)
    if policy.resettles:
        cycle.resettle(attempt.units, policy.pool, prices.rank)
        if policy.in_turn and not policy.holds():  # resettled victims change the outcome
            world.undo(mark)
            return False
    if attempt.heaps:
        prices.heaps, prices.mark, cycle.prices[equivalence] = attempt.heaps, mark, prices
    for decision in policy.decisions(attempt):
        cycle.record(decision)
    cycle.room_freed()
    return True


def _plan(cycle: Cycle, reserving: Reserving) -> Plan:
    world = cycle.world
    reserving.lift_all()
    if cycle.books is not None:
        cycle.books.lift()
    changed = world.changed()
    cycle.decisions = net(cycle, {key[0] for key in changed})
    outcome = Deriver(world, cycle.now, cycle.settings, cycle.decisions).run(changed)
    for instant in outcome.wakes:
        cycle.wake_at(instant)
    return Plan(
        tuple(cycle.decisions),
        tuple(outcome.rows.values()),
        tuple(outcome.starts),
        tuple(outcome.stops),
        tuple(outcome.resizes),
        verdicts(cycle, outcome, partial(dominant, cycle, reserving)),
        cycle.wake,
        cycle.churn.rows(cycle.decisions),
        tuple(cycle.shares.standings(cycle.pools)),
        tuple(protections(world)),
    )


def net(cycle: Cycle, changed: set[str]) -> list[Decision]:
    """The decisions for history, without those that cancel out.

    Those of a workload cancel out if its claims are as before, and up to its eviction if it got its place in
    this cycle. They stay if another workload lost GPUs in between: its reason counts what the first one held.
    """
    last: dict[str, int] = {}
    for at, decision in enumerate(cycle.decisions):
        wid = decision.workload
        if wid not in changed or (decision.verb is Verb.EVICT and cycle.world.given_now(wid)):
            last[wid] = at
    if not last:
        return cycle.decisions
    first: dict[str, int] = {}
    for at, decision in enumerate(cycle.decisions):
        first.setdefault(decision.workload, at)
    taken = [
        (at, d)
        for at, d in enumerate(cycle.decisions)
        if d.gpu_after < d.gpu_before and d.workload in changed
    ]
    idle = {
        wid
        for wid, end in last.items()
        if not any(first[wid] < at < end and d.workload != wid for at, d in taken)
    }
    return [d for at, d in enumerate(cycle.decisions) if d.workload not in idle or at > last[d.workload]]
