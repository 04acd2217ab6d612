"""Classes of nodes: those that some tasks may use and others not, indexed by how they look.

A class is the open nodes without taints of one pool and of certain node types. A Domain is those of its open
nodes that meet a Spec: labels, affinity and tolerations, or a size of device.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import NamedTuple

from pliant.model.machine import NODE_TYPE
from pliant.sched.world.node_affinity import ANYWHERE, Where, liking, suits
from pliant.sched.world.nodes import Listener, Look, NodeState

Key = tuple[int, tuple[int, ...], int, str]
"""(growth of the stranded amount, rank of the look, cores left or minus their part of all, name)."""

ASKS = 16
"""For how many asks the best nodes are cached: in a cycle most work asks for one of few shapes."""


class NodeClass(Listener):
    """The open nodes without taints of one pool and of certain node types, bucketed by their Look."""

    __slots__ = (
        "_free", "_idle", "_largest", "_looks", "_sizes", "bests", "names", "nodes", "pool", "types",
        "usable",
    )  # fmt: skip

    def __init__(self, pool: str, types: tuple[str, ...]) -> None:
        super().__init__()
        self.pool = pool
        self.types = types  # allowed values of the type label; empty: any
        self.nodes: dict[str, NodeState] = {}
        self.names: list[str] = []  # sorted
        self.usable = 0  # devices that could be claimed if nothing else were there
        # As of the last _hear().
        self._looks: dict[Look, list[tuple[int, str]]] = {}
        # Ask -> look -> the key of its best node now; None: no node of it has room.
        self.bests: dict[Hashable, dict[Look, Key | None]] = {}
        self._idle: dict[int, int] = {}
        self._free = 0
        self._largest: tuple[int, int, int, int] | None = None
        self._sizes: list[int] | None = None

    @property
    def looks(self) -> dict[Look, list[tuple[int, str]]]:
        """Look -> the (spare, name) of its nodes, sorted."""
        if self.late:
            self._hear()
        return self._looks

    @property
    def idle(self) -> dict[int, int]:
        """Number of idle devices -> how many nodes have so many."""
        if self.late:
            self._hear()
        return self._idle

    @property
    def free(self) -> int:
        """Free devices in all."""
        if self.late:
            self._hear()
        return self._free

    def _hear(self) -> None:
        for node in self.late:
            node.tell_classes()
        self.late.clear()

    @property
    def sizes(self) -> list[int]:
        """Bytes of its usable devices, each size once, from the smallest."""
        if self._sizes is None:
            nodes = self.nodes.values()
            self._sizes = sorted({gpu.memory for n in nodes for gpu in n.row.gpus if not gpu.foreign})
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
                self.sizes[-1] if self.sizes else 0,
                max((node.row.cpu for node in nodes), default=0),
                max((node.row.memory for node in nodes), default=0),
            )
        return self._largest

    def bests_for(self, ask: Hashable) -> dict[Look, Key | None]:
        """The cache of the best node of each look for an ask; a change of a node removes its look."""
        found = self.bests.get(ask)
        if found is None:
            if len(self.bests) >= ASKS:
                del self.bests[next(iter(self.bests))]
            found = self.bests[ask] = {}
        return found

    def takes(self, node: NodeState) -> bool:
        return self.reaches(node) and not node.tainted

    def reaches(self, node: NodeState) -> bool:
        """True if the node is of this pool and these types and takes new claims, from some work at least."""
        return (
            node.open
            and node.pool == self.pool
            and (not self.types or node.row.label(NODE_TYPE) in self.types)
        )

    def fill(self, nodes: list[NodeState]) -> None:
        """Fill the empty class with its own among these nodes, which are sorted by name."""
        mine = list(filter(self.takes, nodes))
        looks, idle, look, alike = self._looks, self._idle, None, list[tuple[int, str]]()
        for node in mine:
            if node.late:
                node.tell_classes()
            if look != node.look:  # mostly the next one looks like the one before
                look = node.look
                alike = looks.setdefault(look, [])
            name = node.row.name
            self.nodes[name] = node
            alike.append((node.spare, name))
            idle[node.idle] = idle.get(node.idle, 0) + 1
            self.room += node.room
            node.classes.append(self)
        self._free = sum([node.free for node in mine])
        self.usable = sum([node.usable for node in mine])
        self.names = list(self.nodes)
        for alike in self._looks.values():
            alike.sort()

    def add(self, node: NodeState) -> None:
        node.tell_classes()
        name = node.row.name
        self.nodes[name] = node
        insort(self.names, name)
        self._remember(node.look, (node.spare, name))
        self._idle[node.idle] = self._idle.get(node.idle, 0) + 1
        self._free += node.free
        self.usable += node.usable
        self.room += node.room
        node.classes.append(self)
        self._largest = None
        self._sizes = None

    def remove(self, node: NodeState) -> None:
        node.tell_classes()
        self.late.pop(node, None)
        name = node.row.name
        del self.nodes[name]
        del self.names[bisect_left(self.names, name)]
        self._forget(node.look, (node.spare, name))
        self._less_idle(node.idle)
        self._free -= node.free
        self.usable -= node.usable
        self.room -= node.room
        node.classes.remove(self)
        self._largest = None
        self._sizes = None

    def moved(self, node: NodeState, was: Look, spare: int, idle: int) -> None:
        name, look, now = node.row.name, node.look, node.idle
        self._forget(was, (spare, name))
        self._remember(look, (node.spare, name))
        self._free += look.free - was.free
        if idle != now:
            self._less_idle(idle)
            self._idle[now] = self._idle.get(now, 0) + 1

    def _less_idle(self, count: int) -> None:
        self._idle[count] -= 1
        if not self._idle[count]:
            del self._idle[count]

    def _remember(self, look: Look, entry: tuple[int, str]) -> None:
        alike = self._looks.get(look)
        if alike is None:
            self._looks[look] = [entry]
        else:
            insort(alike, entry)
        for bests in self.bests.values():
            bests.pop(look, None)

    def _forget(self, look: Look, entry: tuple[int, str]) -> None:
        for bests in self.bests.values():
            bests.pop(look, None)
        alike = self._looks[look]
        if len(alike) > 1:
            del alike[bisect_left(alike, entry)]
        else:
            del self._looks[look]


Labels = tuple[tuple[str, str], ...]


class Spec(NamedTuple):
    """What the nodes of a class have in common besides pool and type. Equal ones are one class."""

    labels: Labels = ()  # they carry all of these
    wheres: tuple[Where, ...] = (ANYWHERE,)  # they suit one of these
    device_memory: int = 0  # bytes: none of their devices is smaller
    liked: int | None = None  # their liking() by the first of `wheres`; None: any


PLAIN = Spec()


class Domain(NodeClass):
    """The open nodes of a pool and types that meet a Spec."""

    __slots__ = ("spec",)

    def __init__(self, pool: str, types: tuple[str, ...], spec: Spec) -> None:
        super().__init__(pool, types)
        self.spec = spec

    def takes(self, node: NodeState) -> bool:
        spec = self.spec
        return (
            self.reaches(node)
            and all(node.row.label(key) == value for key, value in spec.labels)
            and any(suits(where, node.row) for where in spec.wheres)
            and all(device.gpu.memory >= spec.device_memory for device in node.devices.values())
            and (spec.liked is None or liking(spec.wheres[0], node.row) == spec.liked)
        )


def spec_of(cls: NodeClass) -> Spec:
    return cls.spec if isinstance(cls, Domain) else PLAIN


def labels_of(cls: NodeClass) -> Labels:
    """The labels that its nodes must carry, besides their type."""
    return spec_of(cls).labels
