"""Places equal tasks one after the other: calculates what they have in common once, tells a node once."""

from collections.abc import Sequence

from pliant.model.machine import Placement, Share
from pliant.sched.placement import score
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.claims import Claims
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import Device, NodeState
from pliant.sched.world.tally import Tally, plainly_charged


class Series:
    """Places equal tasks one after the other: what is common to all of them is calculated once.

    It is for tasks whose place depends only on the room on the nodes of a class: see fit.serial(). Many are
    placed in one step by ready() and take() for each. Then tell_node() tells the node once of all its new
    tasks; call it before anything else reads nodes.
    """

    __slots__ = (
        "_ask", "_idle", "_left", "_node", "_taken", "_version", "_world", "best", "cls", "shape",
        "whole",
    )  # fmt: skip

    def __init__(self, world: Claims, cls: NodeClass, ask: score.Ask, shape: tuple[object, ...]) -> None:
        """`shape`: equal for all series that fit the same nodes."""
        self.shape = shape
        self.cls = cls
        self._world = world
        self._ask = ask
        self.whole = ask.whole
        self.best: NodeState | None = None  # it has room, but ready() is False: see fit.place_next()
        self._node: NodeState | None = None  # where the last one went
        self._idle: list[Device] = []  # devices of it that are neither claimed nor carried, the last first
        self._left = 0  # how many more go there before other nodes are compared
        self._taken = 0  # how many went there of which the node has not been told
        self._version = -1  # of the world after the last one

    def ready(self) -> bool:
        """True if the best place for the next task is on idle devices, so that take() can claim it."""
        if self._version != self._world.version:
            return self._begun()
        return self._left > 0 or self._begun()

    def take(self, chunk: Chunk, chain: Sequence[Tally] | None) -> Placement:
        """Claim the next place. `chain` as in World.take()."""
        ask, node = self._ask, self._node
        assert node is not None and self._left, "only once it is ready"
        if ask.devices == 1:
            devices = [self._idle.pop()]
            shares: tuple[Share, ...] = (devices[0].whole(),)
        else:
            devices = self._idle[: -ask.devices - 1 : -1]
            del self._idle[-ask.devices :]
            shares = tuple([device.whole() for device in devices])
        place = Placement(node.row.name, shares, ask.cpu, ask.memory)
        self._world.take(chunk, place, chain)
        node.take(chunk.parts[0].task, devices)
        self._left -= 1
        self._taken += 1
        self._version = self._world.version
        return place

    def tell_node(self) -> None:
        """Tell the node of all tasks that went there since the last call."""
        if self._taken:
            ask, count = self._ask, self._taken
            assert self._node is not None
            self._node.took(count, count * ask.devices, count * ask.cpu, count * ask.memory)
            self._taken = 0

    def _begun(self) -> bool:
        """Choose the best node and how many tasks go there; False if there is none or it has no idle room."""
        self.tell_node()
        ask = self._ask
        self.best = self._node = None
        self._left = 0
        enough = ask.devices * ask.portion <= self.cls.room
        first = score.best(self.cls, self.cls.looks, ask) if enough else None
        if first is None:
            return False
        node = self.cls.nodes[first[-1]]
        times = _times(node, ask) if ask.whole else 0
        if times < 1:
            self.best = node
            return False
        self._node, self._left = node, times if not ask.spread else 1
        self._idle = [it for it in node.devices.values() if it.idle]
        self._idle.reverse()
        if self._left > 1 and any(ask.taste.rates):  # else each task makes it a better node
            self._left = self._while_best(node, times)
        return True

    def _while_best(self, node: NodeState, times: int) -> int:
        """How many tasks, at most `times`, go there before another node is better."""
        rival = score.rival(self.cls, node, self._ask)
        for count in range(1, times if rival is not None else 0):
            key = score.key_after(node, self._ask, count)
            if key is None or rival is None or key >= rival:
                return count
        return times


def _times(node: NodeState, ask: score.Ask) -> int:
    """How many such tasks fit together into what is neither claimed nor carried on the node."""
    row, times = node.row, node.idle // ask.devices
    if row.max_tasks is not None:
        times = min(times, row.max_tasks - len(node.tasks))
    if ask.cpu:
        times = min(times, (row.cpu - node.held_cpu) // ask.cpu)
    if ask.memory:
        times = min(times, (row.memory - node.held_memory) // ask.memory)
    return times


def chain_of(world: Claims, chunk: Chunk, pool: str) -> Sequence[Tally] | None:
    """The sums of its queues up to the root, if what it claims counts in them and nowhere else."""
    workload = chunk.workload
    return world.chain(workload.project, pool) if plainly_charged(workload) else None
