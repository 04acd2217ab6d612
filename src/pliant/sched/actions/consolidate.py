"""Consolidate: move running work so that a waiting core fits. Every victim gets a new place: no loss."""

from collections.abc import Sequence

from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Request, TaskKey, Workload
from pliant.sched.actions.context import Cycle
from pliant.sched.placement import fit
from pliant.sched.preemption.attempt import Attempt, Cost, Estimate
from pliant.sched.preemption.policy import Grounds, Policy
from pliant.sched.world.chunks import Chunk, Step
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import whole


class Consolidate(Policy):
    action = "consolidate"
    moves = True

    def __init__(self, grounds: Grounds, chunk: Chunk, pool: str, adding: Resources) -> None:
        super().__init__(grounds, chunk, pool, adding)
        self._open: dict[str, bool] = {}  # node -> what _has_room_without() has answered
        self._leaves: dict[TaskKey, bool] = {}  # what _may_leave() has answered
        self._finds: dict[tuple[NodeClass, Request], bool] = {}  # whether some node has room for that now

    def may(self, attempt: Attempt, victim: Workload, step: Step, priority: int) -> bool:
        return victim.preemptible and not self._stuck(victim)

    def _stuck(self, victim: Workload) -> bool:
        """True if its one task is known to have room nowhere else."""
        keys = self.world.keys_of(victim.id)
        return len(keys) == 1 and not self._leaves.get(keys[0], True)

    def priced(self, node: NodeState, request: Request, estimate: Estimate) -> Cost | None:
        """A lower bound for a chunk of one task: only then nothing is moved yet when nodes are priced."""
        if len(self.chunk.parts) > 1:
            return estimate(node, request)
        found = self._open.get(node.row.name)
        if found is None:
            found = self._open[node.row.name] = self._has_room_without(node, request)
        if not found:
            return None
        if self.grounds.places.settings.victims == "youngest" or not all(map(self._counts, node.tasks)):
            return estimate(node, request)
        return 1, least_moved(node, request), ()

    def _counts(self, key: TaskKey) -> bool:
        """True if moving the task costs what it claims. Other tasks may cost nothing, or shrink."""
        return key in self._leaves and not self.world.given_now(key[0])

    def _has_room_without(self, node: NodeState, request: Request) -> bool:
        """False if the request would not fit even without all tasks that have room on some node now.

        The other tasks may move to other devices of the node: it counts how few devices they and the request
        need together.
        """
        cpu, memory, stays = node.free_cpu, node.free_memory, [request.portion] * request.devices
        for key, claim in self.world.claims_on(node):
            if self._may_leave(key):
                cpu, memory = cpu + claim.cpu, memory + claim.memory
            else:
                stays += [share.portion for share in claim.shares]
        if (request.cpu and request.cpu > cpu) or (request.memory and request.memory > memory):
            return False
        if not request.devices or request.gpu_memory or node.usable < len(node.devices):
            return True
        return fewest_devices(stays) <= node.usable

    def _may_leave(self, key: TaskKey) -> bool:
        """False if no node has room for the task now. True without a check for work that may shrink."""
        found = self._leaves.get(key)
        if found is None:
            row, places = self.world.workloads.get(key[0]), self.grounds.places
            if row is None or row.project not in self.world.projects:
                return True
            group = row.group(self.world.tasks[key].group)
            if group.elastic or group.min < group.max or row.background or group.request.gpu_memory:
                return True
            at = places.nodes_for(row, self.pool), group.request
            found = self._finds.get(at)
            if found is None:
                found = self._finds[at] = fit.find(*at, places.pool(self.pool)) is not None
            self._leaves[key] = found
        return found


def least_moved(node: NodeState, request: Request) -> int:
    """The least milli-GPUs that must leave a node before it has the devices for a request."""
    if not request.devices or request.gpu_memory:
        return 0
    claimed = sorted(it.claimed for it in node.devices.values() if not it.gpu.foreign)
    if whole(request):
        return sum(claimed[: request.devices])
    return sum(max(0, it + request.portion - GPU) for it in claimed[: request.devices])


def fewest_devices(portions: Sequence[int]) -> int:
    """A lower bound of the devices that these portions (thousandths) need; mostly exact.

    Portions above half a device need one each; the smaller ones need more if they do not fit beside these.
    This is calculated for each size: without the smaller ones, and without the room in which it does not fit.
    """
    most = 0
    for least in {min(it, GPU - it) for it in portions}:
        alone = [it for it in portions if 2 * it > GPU]
        beside = sum(GPU - it for it in alone if it + least <= GPU)
        small = sum(it for it in portions if 2 * it <= GPU and it >= least)
        most = max(most, len(alone) - (beside - small) // GPU if small > beside else len(alone))
    return most


def consolidate(cycle: Cycle, chunk: Chunk, pool: str, adding: Resources) -> Policy | None:
    """Only for a core that its queues may have and for which enough GPUs are free, if only in pieces."""
    if not cycle.settings.consolidation_victims:
        return None
    if chunk.step is not Step.CORE or cycle.shares.refuse(chunk, pool, adding) is not None:
        return None
    if cycle.never_fits(chunk, pool):
        return None
    cls = cycle.world.node_class(pool, ())  # victims may move to nodes that the chunk may not use
    if len(cls.nodes) < 2 and not any(look.rests for look in cls.looks):
        return None  # nowhere to move to
    lent = sum(cycle.world.need(wid).bonus_gpu for wid in cycle.world.stretched)
    if adding.gpu > cls.room + lent:
        return None
    return Consolidate(cycle.grounds, chunk, pool, adding)
