"""Why each workload lacks what it asks for: one reason each, in the order in which they were looked at."""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, filterfalse, islice, repeat
from operator import is_, is_not

from pliant.model.quantity import GPU
from pliant.model.reason import (
    BackOff,
    Cancelled,
    Named,
    NoCapacity,
    NoMatchingNode,
    NotEntitled,
    NothingIdle,
    Overpromised,
    Reason,
    Suspended,
    UnknownProject,
    WaitingForGang,
    WaitingForRelease,
)
from pliant.model.reason.held import PreemptionDelay
from pliant.model.workload import Desired, TaskKey, TaskPhase, Workload
from pliant.sched.actions.context import Block, Cycle
from pliant.sched.actions.intents import Outcome
from pliant.sched.placement.eligibility import Equivalence
from pliant.sched.shares.naming import workload_named
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.membership import ELASTIC, WANTING
from pliant.sched.world.portions import next_chunk
from pliant.sched.world.state import World

Explain = Callable[[Block], Reason]
"""Why a chunk was not placed: dominant() of pliant.sched.explain.dominant."""


def verdicts(cycle: Cycle, outcome: Outcome, explain: Explain) -> Verdicts:
    """The verdicts in the order in which this cycle looked at workloads; the others come last, by id."""
    looked = cycle.looked
    blocks = list(looked.values())
    reasons = _reasons(blocks, explain)
    found = _instead(cycle, outcome)
    unseen: dict[Equivalence, Reason] = {}
    wanting = cycle.world.now_in(WANTING)
    rest = list(filterfalse(looked.__contains__, wanting))
    if None in reasons.values():
        rest += filter(set(compress(looked, map(is_, blocks, repeat(None)))).__contains__, wanting)
    for wid in sorted(filterfalse(found.__contains__, rest)):
        found[wid] = _unseen(cycle, explain, cycle.world.workloads[wid], unseen)
    found |= _background(cycle, explain, found)
    found |= _kept_away(cycle.world)
    why = list(map(reasons.__getitem__, map(id, blocks)))  # of those that were looked at, in that order
    for wid in filter(looked.__contains__, found):
        why[cycle.positions()[wid] - 1] = found[wid]
    last = sorted(filterfalse(looked.__contains__, found))
    order = [*compress(looked, why), *last]
    return Verdicts.of_each(order, [*filter(None, why), *map(found.__getitem__, last)])


def _reasons(blocks: Sequence[Block | None], explain: Explain) -> dict[int, Reason | None]:
    """id() of each block -> its reason; of equivalent blocks only the first is explained."""
    known: dict[Equivalence, Reason] = {}
    found: dict[int, Reason | None] = {}
    for block in compress(blocks, [*map(is_not, blocks, islice(blocks, 1, None)), True]):  # many share one
        if block is not None and block.equivalence not in known:
            known[block.equivalence] = explain(block)
        found[id(block)] = known[block.equivalence] if block is not None else None
    return found


def _instead(cycle: Cycle, outcome: Outcome) -> dict[str, Reason]:
    """The reasons that go before others: preemption delay, back-off, release of a place, gang."""
    world, looked = cycle.world, cycle.looked
    found: dict[str, Reason] = {}
    for wid, until in cycle.delays.items():
        if (block := looked.get(wid)) is not None:
            found[wid] = PreemptionDelay(block.adding.gpu, world.workloads[wid].preemption_delay, until)
    for wid, key in cycle.resting.items():
        row = world.tasks[key]
        found[wid] = BackOff(row.name, row.retry_at or 0, row.failures, row.short_runs)
    for wid, key in outcome.held_back.items():
        if wid not in found and looked.get(wid) is None:
            found[wid] = _release(cycle, key)
    for wid, key in outcome.apart.items():
        if wid not in found and looked.get(wid) is None:
            found[wid] = _gang(cycle, key)
    return found


def _kept_away(world: World) -> dict[str, Reason]:
    """The reasons of workloads that must not be placed: held, contradictory, or stopped by the owner."""
    found: dict[str, Reason] = {}
    for wid, reason in sorted(world.flaws.items()):
        held = world.workloads[wid].held and any(map(world.claim_of, world.keys_of(wid)))
        if workload_open(world.workloads[wid]) and not held:  # a held workload that runs may continue
            found[wid] = reason
    for wid in sorted(world.ending):
        if world.workloads[wid].desired is Desired.STOPPED:
            found[wid] = Cancelled() if world.workloads[wid].cancelled_by else Suspended()
    return found


def _unseen(cycle: Cycle, explain: Explain, workload: Workload, known: dict[Equivalence, Reason]) -> Reason:
    """The reason of a workload that no pool looked at, or that lost its place in this cycle."""
    if workload.project not in cycle.world.projects:
        return UnknownProject(workload.project)
    chunk = next_chunk(cycle.world, workload)
    pools = cycle.choices(workload)
    if not pools or chunk is None:
        named = workload.pools or cycle.world.projects[workload.project].default_pools
        return NoMatchingNode(", ".join(named), workload.node_type, 0)
    equivalence = cycle.equivalence(chunk, pools[0])
    found = known.get(equivalence)
    if found is None:
        adding = cycle.adding(chunk, pools[0])
        refusal = cycle.shares.refuse(chunk, pools[0], adding)
        found = known[equivalence] = explain(Block(chunk, pools[0], adding, refusal, equivalence))
    return found


def _background(cycle: Cycle, explain: Explain, others: Mapping[str, Reason]) -> dict[str, Reason]:
    """The reasons of background work that lacks something and is not among the others."""
    world, found = cycle.world, dict[str, Reason]()
    for wid in sorted(wid for wid in world.now_in(ELASTIC) if world.workloads[wid].background):
        has = wid in others or cycle.looked.get(wid) is not None
        if not has and next_chunk(world, world.workloads[wid]) is not None:
            found[wid] = _nothing_idle(cycle, explain, world.workloads[wid])
    return found


def _nothing_idle(cycle: Cycle, explain: Explain, workload: Workload) -> Reason:
    """NothingIdle if it could run with enough idle GPUs, else the reason why it could not."""
    reason = _unseen(cycle, explain, workload, {})
    if not isinstance(reason, NoCapacity | NotEntitled | Overpromised):
        return reason
    nodes = [
        node
        for pool in cycle.choices(workload)
        for node in cycle.nodes_for(workload, pool).nodes.values()
        if node.open
    ]
    idle = [node.idle * GPU for node in nodes]
    return NothingIdle(reason.asked, max(idle, default=0), sum(idle))


def _gang(cycle: Cycle, key: TaskKey) -> Reason:
    """Which of its tasks keep a workload from starting together."""
    rows = cycle.world.tasks_of(key[0])
    away = [
        row.name
        for row in rows
        if row.phase is TaskPhase.STOPPING or (not row.phase.live and row.name != key[1])
    ]
    row = cycle.world.tasks[key]
    if not away and row.retry_at is not None and row.retry_at > cycle.now:  # it waits for no other work
        return BackOff(row.name, row.retry_at, row.failures, row.short_runs)
    return WaitingForGang(row.name, tuple(away))


def _release(cycle: Cycle, key: TaskKey) -> Reason:
    """The reason with the workloads that still hold the place of this task."""
    world = cycle.world
    claim = world.claim_of(key)
    assert claim is not None
    wanted = set(claim.uuids)
    holders: dict[str, Named] = {}
    node = world.nodes.get(claim.node)
    near: set[TaskKey] = set()  # those on its devices, and the rest of its workload
    if node is not None:
        near.update(world.keys_of(key[0]), *(node.devices[it].tasks for it in wanted & node.devices.keys()))
    for other in sorted(near):
        carries = world.tasks[other].carries
        if (
            other != key
            and carries is not None
            and carries.node == claim.node
            and (other[0] == key[0] or wanted & set(carries.uuids))
        ):
            known = other[0] in world.workloads
            holders[other[0]] = workload_named(world, other[0]) if known else Named("workload", other[0])
    grace = max((world.workloads[wid].launch.grace for wid in holders if wid in world.workloads), default=0)
    return WaitingForRelease(claim.node, claim.gpu, tuple(holders.values()), grace)
