"""Release: drop claims that are void, before anything else is decided."""

from pliant.model.reason import ByOwner, Ended, Incomplete, NodeLost, Reason, Tainted
from pliant.model.workload import Desired, TaskKey
from pliant.sched.actions.context import Cycle
from pliant.sched.plan import Decision, Verb
from pliant.sched.world.node_affinity import ANYWHERE, blocking, driven_out, suits, text_of
from pliant.sched.world.state import World
from pliant.sched.world.subgroups import core_size


def release(cycle: Cycle) -> None:
    """Drop the claims of workloads that should not run, on lost or tainted nodes, and of broken gangs.

    A broken gang with a live task keeps its claims.
    """
    world = cycle.world
    for wid in sorted(wid for wid in world.ending if world.need(wid).holds):
        workload = world.workloads[wid]
        stopped = workload.desired is not Desired.RUNNING
        wish = "Cancelled" if workload.cancelled_by else workload.desired.value
        _drop(cycle, wid, ByOwner(wish) if stopped else Ended(workload.phase.value))
    doubtful = {key for name in world.suspects for key in world.nodes[name].tasks} | set(world.strays)
    doubtful |= {key for key in world.adrift if _on_tainted(world, key)}
    lost: dict[tuple[str, Reason], list[TaskKey]] = {}
    for key in sorted(doubtful):
        reason = _void(cycle, key) if key[0] in world.workloads and world.claim_of(key) is not None else None
        if reason is not None:
            lost.setdefault((key[0], reason), []).append(key)
    for (wid, reason), keys in lost.items():
        _drop(cycle, wid, reason, keys)
    world.update_sets()
    for wid in sorted(world.broken):
        if not any(row.phase.live for row in world.tasks_of(wid)):
            held = sum(1 for key in world.keys_of(wid) if world.claim_of(key) is not None)
            _drop(cycle, wid, Incomplete(held, core_size(world.workloads[wid])))
    world.update_sets()


def _drop(cycle: Cycle, wid: str, reason: Reason, keys: list[TaskKey] | None = None) -> None:
    """Take these claims, or all, from a workload."""
    world = cycle.world
    held = [key for key in (keys or world.keys_of(wid)) if world.claim_of(key) is not None]
    if not held:
        return
    before = world.gpu_of(wid)
    for key in held:
        world.claim(key, None)
    cycle.void.update(held)
    names = tuple(key[1] for key in held)
    cycle.record(Decision(Verb.EVICT, "release", wid, names, before, world.gpu_of(wid), reason))


def _on_tainted(world: World, key: TaskKey) -> bool:
    claim = world.claim_of(key)
    node = world.nodes.get(claim.node) if claim is not None else None
    return node is not None and node.tainted


def _void(cycle: Cycle, key: TaskKey) -> Reason | None:
    """Why the place of a task is gone or may not be used by a new attempt; None if its claim is valid."""
    world = cycle.world
    row, claim = world.tasks[key], world.claim_of(key)
    assert claim is not None
    node = world.nodes.get(claim.node)
    if node is None or not node.knows(claim):
        return NodeLost(claim.node)
    stays = row.carries is not None and row.carries.node == claim.node
    mine = row.carries.uuids if row.carries is not None and stays else ()
    taken = any(node.devices[share.gpu].gpu.foreign and share.gpu not in mine for share in claim.shares)
    # A node that fails to answer for a moment is no reason to stop what runs there.
    if taken or (not node.open and not stays):
        return NodeLost(claim.node)
    demand = world.demand(key)
    where = demand.where if demand is not None else ANYWHERE
    if not stays:
        if suits(where, node.row):
            return None
        return Tainted(claim.node, text_of(blocking(where.tolerations, node.row)))
    due = driven_out(where, node.row, cycle.now)
    if due is None or due[1] > cycle.now:
        cycle.wake_at(due[1] if due is not None else 0)
        return None
    return Tainted(claim.node, text_of(due[0]))
