"""One cycle: the actions in their order, then the plan that follows from what they changed."""

from collections.abc import Callable

from pliant.model.reason import ByOwner, Ended, NodeLost, Reason
from pliant.model.workload import Desired
from pliant.sched.actions.allocate import allocate
from pliant.sched.actions.consolidate import consolidate
from pliant.sched.actions.grow import grow
from pliant.sched.actions.preempt import preempt
from pliant.sched.actions.reclaim import reclaim
from pliant.sched.actions.shrink import shrink
from pliant.sched.actions.stale import stale
from pliant.sched.context import Cycle
from pliant.sched.intents import Deriver
from pliant.sched.plan import Decision, Plan, Verb
from pliant.sched.settings import Settings
from pliant.sched.verdicts import verdicts
from pliant.sched.world import World

ACTIONS: dict[str, Callable[[Cycle], None]] = {
    "allocate": allocate,
    "shrink": shrink,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stale": stale,
    "grow": grow,
}


def decide(world: World, now: int, settings: Settings) -> Plan:
    """What to do about this world at this instant (ms since the epoch). The world is left as it was found.

    A function: the same world, instant and settings give the same plan, whatever the hash seed.
    """
    mark = world.checkpoint()
    try:
        world.settle()
        cycle = Cycle(world, now, settings)
        release(cycle)
        if "allocate" not in settings.actions:  # then nothing was tried yet that may now be taken for
            for lane, chunks in cycle.lanes().items():
                cycle.failures[lane] = {chunk.workload.id: chunk for chunk in chunks}
        ran: set[str] = set()
        for name in settings.actions:
            if name not in ran or cycle.released:  # again only if something was released meanwhile
                ACTIONS[name](cycle)
            ran.add(name)
        return _plan(cycle)
    finally:
        world.undo(mark)
        world.settle()


def release(cycle: Cycle) -> None:
    """Drop claims that nobody is entitled to any more: suspended, deleted and ended workloads, lost nodes."""
    world = cycle.world
    for wid in sorted(world.ending):
        workload = world.workloads[wid]
        held = [key for key in world.keys_of(wid) if world.claim_of(key) is not None]
        if not held:
            continue
        before = world.gpu_of(wid)
        for key in held:
            world.claim(key, None)
        reason = (
            ByOwner(workload.desired.value)
            if workload.desired is not Desired.RUNNING
            else Ended(workload.phase.value)
        )
        cycle.record(Decision(Verb.EVICT, "release", wid, tuple(key[1] for key in held), before, 0, reason))
    lost: dict[str, list[str]] = {}
    doubtful = {key for name in world.suspects for key in world.nodes[name].tasks} | set(world.strays)
    for key in sorted(doubtful):
        claim = world.claim_of(key)
        if claim is None or key[0] not in world.workloads or not _void(cycle, key[0], key[1]):
            continue
        lost.setdefault(key[0], []).append(key[1])
    for wid, names in lost.items():
        names = _with_gang(cycle, wid, names)
        before = world.gpu_of(wid)
        where = sorted({claim.node for name in names if (claim := world.claim_of((wid, name))) is not None})
        for name in names:
            world.claim((wid, name), None)
        lost_there: Reason = NodeLost(", ".join(where))
        cycle.record(
            Decision(Verb.EVICT, "release", wid, tuple(names), before, world.gpu_of(wid), lost_there)
        )
    world.settle()


def _with_gang(cycle: Cycle, wid: str, names: list[str]) -> list[str]:
    """These tasks, and all others too if nothing of the workload lives: its core starts together."""
    world = cycle.world
    if any(row.phase.live for row in world.tasks_of(wid)):
        return names
    return [row.name for row in world.tasks_of(wid) if world.claim_of(row.key) is not None]


def _void(cycle: Cycle, wid: str, name: str) -> bool:
    """True if what the task claims is gone, or is not to be used by a new attempt."""
    world = cycle.world
    row, claim = world.tasks[wid, name], world.claim_of((wid, name))
    assert claim is not None
    node = world.nodes.get(claim.node)
    if node is None or not node.row.ready or not node.knows(claim):
        return True
    stays = row.carries is not None and row.carries.node == claim.node
    mine = row.carries.uuids if row.carries is not None and stays else ()
    taken = any(node.devices[share.gpu].gpu.foreign and share.gpu not in mine for share in claim.shares)
    return taken or (node.row.draining and not stays)


def _plan(cycle: Cycle) -> Plan:
    world = cycle.world
    changed = world.changed()
    cycle.decisions = net(cycle, {key[0] for key in changed})
    latest = {decision.workload: at for at, decision in enumerate(cycle.decisions)}
    outcome = Deriver(cycle, latest).run(changed)
    return Plan(
        tuple(cycle.decisions),
        tuple(outcome.rows[key] for key in sorted(outcome.rows)),
        tuple(outcome.starts),
        tuple(outcome.stops),
        tuple(outcome.resizes),
        verdicts(cycle, outcome),
        cycle.wake,
    )


def net(cycle: Cycle, changed: set[str]) -> list[Decision]:
    """The decisions for history: those of workloads for which they came to nothing are left out."""
    kept: list[Decision] = []
    for decision in cycle.decisions:
        wid = decision.workload
        if wid in changed:
            kept.append(decision)
    return kept
