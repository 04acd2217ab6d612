"""Nodes and devices with what is claimed, carried and held on each; classes of nodes indexed by free devices.

All numbers are kept incrementally. `held` counts each task once, with the larger of what it claims and what
it carries: a device whose held is within its size can start everything that claims it at once.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from pliant.model.machine import Node, Placement
from pliant.model.quantity import GPU, Resources
from pliant.sched.world.device import Device, TaskKey
from pliant.sched.world.look import Look, rests_of
from pliant.sched.world.node_affinity import NODE_TYPE, blocking, drives_out

__all__ = ["NODE_TYPE", "NodeClass", "NodeState", "TaskKey"]


class NodeState:
    """A node row with everything that sits on it."""

    __slots__ = (
        "by_memory",
        "carried_cpu",
        "carried_memory",
        "claimants",
        "claimed_cpu",
        "claimed_memory",
        "classes",
        "devices",
        "free",
        "held_cpu",
        "held_memory",
        "idle",
        "kind",
        "look",
        "open",
        "partly",
        "pool",
        "room",
        "row",
        "spare",
        "stamp",
        "tainted",
        "tasks",
        "usable",
    )  # fmt: skip

    def __init__(self, row: Node, pool: str) -> None:
        self.row = row
        self.pool = pool
        self.devices = {gpu.uuid: Device(gpu) for gpu in sorted(row.gpus, key=lambda gpu: gpu.index)}
        self.usable = sum(1 for device in self.devices.values() if not device.gpu.foreign)
        self.free = self.usable  # devices nobody claims
        self.idle = self.usable  # devices nobody claims or carries
        self.room = self.usable * GPU  # unclaimed thousandths of all its devices together
        self.partly = 0  # devices claimed in part: those that another fraction may join
        self.claimed_cpu = self.claimed_memory = 0
        self.carried_cpu = self.carried_memory = 0
        self.held_cpu = self.held_memory = 0
        self.tasks: dict[TaskKey, None] = {}  # that claim or carry anything here
        self.stamp = 0  # changes whenever anything here does
        self.claimants = 0  # of those, that claim
        self.open = row.ready and not row.draining  # takes new claims
        self.tainted = bool(row.taints) and blocking((), row) is not None  # not from everybody
        self.classes: list[NodeClass] = []
        self.kind = row.label(NODE_TYPE) or ""
        self.by_memory = False  # see weigh()
        self.look, self.spare = self._looks()

    def weigh(self, cpu: int, memory: int) -> None:
        """Find out of what it has less: so many millicores and bytes are asked for with each GPU."""
        by_memory = self.row.memory * cpu < self.row.cpu * memory
        if by_memory is not self.by_memory:
            self.by_memory = by_memory
            self._reindex(self.idle, self.room)

    def _looks(self) -> tuple[Look, int]:
        """How it looks, and how much of its cores (or memory) nobody claims."""
        row = self.row
        rests = rests_of(self.devices.values()) if self.partly else ()
        capacity, claimed = (
            (row.memory, self.claimed_memory) if self.by_memory else (row.cpu, self.claimed_cpu)
        )
        look = Look(self.free, self.usable, self.room, rests, capacity, self.by_memory, self.kind)
        return look, capacity - claimed

    @property
    def claimed(self) -> Resources:
        gpu = sum(device.claimed for device in self.devices.values())
        return Resources(gpu, self.claimed_cpu, self.claimed_memory)

    @property
    def carried(self) -> Resources:
        gpu = sum(device.carried for device in self.devices.values())
        return Resources(gpu, self.carried_cpu, self.carried_memory)

    @property
    def free_cpu(self) -> int:
        return self.row.cpu - self.claimed_cpu

    @property
    def free_memory(self) -> int:
        return self.row.memory - self.claimed_memory

    @property
    def suspect(self) -> bool:
        """True if some claim on it may have become void."""
        return not self.open or drives_out(self.row) or self.usable < len(self.devices)

    def account(self, key: TaskKey, claim: Placement | None, carry: Placement | None, sign: int) -> bool:
        """Add (sign 1) or remove (-1) one task's claim and carry, as far as they lie here.

        False if some device of theirs is unknown; such a part is left out.
        """
        self.stamp += 1
        before = (self.idle, self.room)
        place = claim or carry
        if place is None or (claim is not None and carry is not None and claim != carry):
            known = self._add(key, claim, carry, sign)
        else:
            known = self._shift(key, place, sign, claim is not None, carry is not None, True)
        self._reindex(*before)
        return known

    def exchange(
        self, key: TaskKey, old: Placement | None, new: Placement | None, carry: Placement | None
    ) -> tuple[bool, bool]:
        """Let a task claim something else; whether all devices before and after are known."""
        self.stamp += 1
        before = (self.idle, self.room)
        only = old or new
        if only is not None and (old is None or new is None) and (carry is None or carry == only):
            known = self._shift(key, only, -1 if new is None else 1, True, False, carry is None)
            self._reindex(*before)
            return known or (carry is None and old is None), known or (carry is None and new is None)
        both = self._add(key, old, carry, -1), self._add(key, new, carry, 1)
        self._reindex(*before)
        return both

    def _shift(
        self, key: TaskKey, place: Placement, sign: int, claimed: bool, carried: bool, held: bool
    ) -> bool:
        """Add or remove one place as what a task claims, carries and (the larger of both) holds."""
        cpu, memory = sign * place.cpu, sign * place.memory
        if claimed:
            self.claimants += sign
            self.claimed_cpu += cpu
            self.claimed_memory += memory
        if carried:
            self.carried_cpu += cpu
            self.carried_memory += memory
        if held:
            self.held_cpu += cpu
            self.held_memory += memory
            if sign > 0:
                self.tasks[key] = None
            else:
                self.tasks.pop(key, None)
        known = True
        for share in place.shares:
            device = self.devices.get(share.gpu)
            if device is None:
                known = False
                continue
            portion, memory = sign * share.portion, sign * share.memory
            ours = not device.gpu.foreign
            if claimed:
                was = device.claimed
                now = device.claimed = was + portion
                blank = not (was or device.claimed_memory)
                device.claimed_memory += memory
                self.partly += (0 < now < GPU) - (0 < was < GPU)
                if ours:
                    self.room -= portion
                    self.free += (not (now or device.claimed_memory)) - blank
            if carried:
                device.carried += portion
                device.carried_memory += memory
            if held:
                if sign > 0:
                    device.tasks[key] = None
                else:
                    device.tasks.pop(key, None)
                blank = not (device.held or device.held_memory)
                device.held += portion
                device.held_memory += memory
                if ours:
                    self.idle += (not (device.held or device.held_memory)) - blank
        return known

    def _add(self, key: TaskKey, claim: Placement | None, carry: Placement | None, sign: int) -> bool:
        if claim is None and carry is None:
            return True
        if sign > 0:
            self.tasks[key] = None
        else:
            self.tasks.pop(key, None)
        if claim is not None:
            self.claimants += sign
            self.claimed_cpu += sign * claim.cpu
            self.claimed_memory += sign * claim.memory
        if carry is not None:
            self.carried_cpu += sign * carry.cpu
            self.carried_memory += sign * carry.memory
        either = claim or carry
        if either is None:
            return True
        other = carry if claim is not None and carry is not None else either
        self.held_cpu += sign * max(either.cpu, other.cpu)
        self.held_memory += sign * max(either.memory, other.memory)
        known = True
        for uuid, claimed, claimed_memory, carried, carried_memory in _parts(claim, carry):
            device = self.devices.get(uuid)
            if device is None:
                known = False
                continue
            if sign > 0:
                device.tasks[key] = None
            else:
                device.tasks.pop(key, None)
            foreign = device.gpu.foreign
            if claimed or claimed_memory:
                if not foreign:
                    self.room -= sign * claimed
                    self.free -= not (device.claimed or device.claimed_memory)
                self.partly -= 0 < device.claimed < GPU
                device.claimed += sign * claimed
                device.claimed_memory += sign * claimed_memory
                if not foreign:
                    self.free += not (device.claimed or device.claimed_memory)
                self.partly += 0 < device.claimed < GPU
            device.carried += sign * carried
            device.carried_memory += sign * carried_memory
            if not foreign:
                self.idle -= not (device.held or device.held_memory)
            device.held += sign * (claimed if claimed > carried else carried)
            device.held_memory += sign * (
                claimed_memory if claimed_memory > carried_memory else carried_memory
            )
            if not foreign:
                self.idle += not (device.held or device.held_memory)
        return known

    def _reindex(self, idle: int, room: int) -> None:
        """Tell the classes what has changed since these were its numbers."""
        was, spare = self.look, self.spare
        self.look, self.spare = self._looks()
        moved = spare != self.spare or was != self.look
        for cls in self.classes:
            cls.room += self.room - room
            if idle != self.idle:
                cls.idled(idle, self.idle)
            if moved:
                cls.moved(self, was, spare)

    def knows(self, placement: Placement) -> bool:
        return all(share.gpu in self.devices for share in placement.shares)

    def numbers(self) -> tuple[object, ...]:
        """Everything derived, for comparing two worlds."""
        return (
            self.pool, self.free, self.idle, self.room, self.partly, self.claimants, self.claimed_cpu,
            self.claimed_memory, self.carried_cpu, self.carried_memory, self.held_cpu, self.held_memory,
            tuple(sorted(self.tasks)), tuple((uuid, one.numbers()) for uuid, one in self.devices.items()),
        )  # fmt: skip


def _parts(claim: Placement | None, carry: Placement | None) -> Iterable[tuple[str, int, int, int, int]]:
    """(device, thousandths and bytes claimed, thousandths and bytes carried), each device once."""
    if carry is None:
        return [(s.gpu, s.portion, s.memory, 0, 0) for s in claim.shares] if claim is not None else ()
    if claim is None:
        return [(s.gpu, 0, 0, s.portion, s.memory) for s in carry.shares]
    if claim is carry or claim.shares == carry.shares:
        return [(s.gpu, s.portion, s.memory, s.portion, s.memory) for s in claim.shares]
    parts = {s.gpu: (s.gpu, s.portion, s.memory, 0, 0) for s in claim.shares}
    for s in carry.shares:
        _, portion, memory, _, _ = parts.get(s.gpu, (s.gpu, 0, 0, 0, 0))
        parts[s.gpu] = (s.gpu, portion, memory, s.portion, s.memory)
    return parts.values()


class NodeClass:
    """All open nodes of one pool and of certain node types, bucketed by the number of free devices."""

    __slots__ = (
        "_largest", "_sizes", "free", "idle", "looks", "names", "nodes", "pool", "room", "types",
    )  # fmt: skip

    def __init__(self, pool: str, types: tuple[str, ...]) -> None:
        self.pool = pool
        self.types = types  # allowed values of the type label; empty: any
        self.nodes: dict[str, NodeState] = {}
        self.names: list[str] = []  # sorted
        self.looks: dict[Look, list[tuple[int, str]]] = {}  # how nodes look -> their (spare, name), sorted
        self.idle: dict[int, int] = {}  # idle devices -> how many nodes have so many
        self.free = 0  # free devices in all
        self.room = 0  # unclaimed thousandths of all devices together
        self._largest: tuple[int, int, int, int] | None = None
        self._sizes: list[int] | None = None

    @property
    def usable(self) -> int:
        """Devices that could be claimed if nothing else were there."""
        return sum(node.usable for node in self.nodes.values())

    @property
    def sizes(self) -> list[int]:
        """Bytes of its usable devices, each size once, from the smallest."""
        if self._sizes is None:
            nodes = self.nodes.values()
            self._sizes = sorted(
                {d.gpu.memory for n in nodes for d in n.devices.values() if not d.gpu.foreign}
            )
        return self._sizes

    @property
    def smallest_device(self) -> int:
        """Bytes of the smallest usable device; 0 without any."""
        return self.sizes[0] if self.sizes else 0

    @property
    def largest(self) -> tuple[int, int, int, int]:
        """The most of each that one node has, used or not: devices, bytes of a device, millicores, bytes."""
        if self._largest is None:
            nodes = self.nodes.values()
            self._largest = (
                max((node.usable for node in nodes), default=0),
                max(
                    (d.gpu.memory for n in nodes for d in n.devices.values() if not d.gpu.foreign), default=0
                ),
                max((node.row.cpu for node in nodes), default=0),
                max((node.row.memory for node in nodes), default=0),
            )
        return self._largest

    def takes(self, node: NodeState) -> bool:
        return self.reaches(node) and not node.tainted

    def reaches(self, node: NodeState) -> bool:
        """True if it is one of its pool and types that takes new claims, of some at least."""
        return (
            node.open
            and node.pool == self.pool
            and (not self.types or node.row.label(NODE_TYPE) in self.types)
        )

    def add(self, node: NodeState) -> None:
        name = node.row.name
        self.nodes[name] = node
        insort(self.names, name)
        insort(self.looks.setdefault(node.look, []), (node.spare, name))
        self.idle[node.idle] = self.idle.get(node.idle, 0) + 1
        self.free += node.free
        self.room += node.room
        node.classes.append(self)
        self._largest = None
        self._sizes = None

    def remove(self, node: NodeState) -> None:
        name = node.row.name
        del self.nodes[name]
        del self.names[bisect_left(self.names, name)]
        self._forget(node.look, (node.spare, name))
        self._less_idle(node.idle)
        self.free -= node.free
        self.room -= node.room
        node.classes.remove(self)
        self._largest = None
        self._sizes = None

    def moved(self, node: NodeState, was: Look, spare: int) -> None:
        """A node that looked like this, with so much to spare, has changed."""
        self._forget(was, (spare, node.row.name))
        insort(self.looks.setdefault(node.look, []), (node.spare, node.row.name))
        self.free += node.free - was.free

    def idled(self, before: int, now: int) -> None:
        """One of its nodes has so many idle devices now."""
        self._less_idle(before)
        self.idle[now] = self.idle.get(now, 0) + 1

    def _less_idle(self, count: int) -> None:
        self.idle[count] -= 1
        if not self.idle[count]:
            del self.idle[count]

    def _forget(self, look: Look, entry: tuple[int, str]) -> None:
        alike = self.looks[look]
        if len(alike) > 1:
            del alike[bisect_left(alike, entry)]
        else:
            del self.looks[look]
