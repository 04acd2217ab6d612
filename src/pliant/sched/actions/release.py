"""Release: drop claims that are void, before anything else is decided."""

from pliant.model.reason import ByOwner, Ended, Incomplete, NodeLost, Reason
from pliant.model.workload import Desired
from pliant.sched.context import Cycle
from pliant.sched.machines import TaskKey
from pliant.sched.plan import Decision, Verb
from pliant.sched.subgroups import core_size


def release(cycle: Cycle) -> None:
    """Of workloads that shall not run, on nodes that are lost, and of gangs that nothing is left of."""
    world = cycle.world
    for wid in sorted(world.ending):
        workload = world.workloads[wid]
        stopped = workload.desired is not Desired.RUNNING
        _drop(cycle, wid, ByOwner(workload.desired.value) if stopped else Ended(workload.phase.value))
    doubtful = {key for name in world.suspects for key in world.nodes[name].tasks} | set(world.strays)
    lost: dict[str, list[TaskKey]] = {}
    for key in sorted(doubtful):
        if key[0] in world.workloads and world.claim_of(key) is not None and _void(cycle, key[0], key[1]):
            lost.setdefault(key[0], []).append(key)
    for wid, keys in lost.items():
        nodes = sorted({claim.node for key in keys if (claim := world.claim_of(key)) is not None})
        _drop(cycle, wid, NodeLost(", ".join(nodes)), keys)
    world.settle()
    for wid in sorted(world.broken):
        if not any(row.phase.live for row in world.tasks_of(wid)):
            held = sum(1 for key in world.keys_of(wid) if world.claim_of(key) is not None)
            _drop(cycle, wid, Incomplete(held, core_size(world.workloads[wid])))
    world.settle()


def _drop(cycle: Cycle, wid: str, reason: Reason, keys: list[TaskKey] | None = None) -> None:
    """Take these claims, or all, from a workload."""
    world = cycle.world
    held = [key for key in (keys or world.keys_of(wid)) if world.claim_of(key) is not None]
    if not held:
        return
    before = world.gpu_of(wid)
    for key in held:
        world.claim(key, None)
    names = tuple(key[1] for key in held)
    cycle.record(Decision(Verb.EVICT, "release", wid, names, before, world.gpu_of(wid), reason))


def _void(cycle: Cycle, wid: str, name: str) -> bool:
    """True if what the task claims is gone, or is not to be used by a new attempt."""
    world = cycle.world
    row, claim = world.tasks[wid, name], world.claim_of((wid, name))
    assert claim is not None
    node = world.nodes.get(claim.node)
    if node is None or not node.knows(claim):
        return True
    stays = row.carries is not None and row.carries.node == claim.node
    mine = row.carries.uuids if row.carries is not None and stays else ()
    taken = any(node.devices[share.gpu].gpu.foreign and share.gpu not in mine for share in claim.shares)
    # A node that fails to answer for a moment is no reason to stop what runs there.
    return taken or (not node.open and not stays)
