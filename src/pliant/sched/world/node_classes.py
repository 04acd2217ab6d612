"""Classes of nodes: those that some tasks may use and others not, indexed by free devices.

A class is the open nodes of one pool and of certain node types; a Domain narrows it to one place, to labels
and taints, or to a size of device.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from pliant.model.machine import NODE_TYPE
from pliant.sched.world.node_affinity import ANYWHERE, Where, liking, suits
from pliant.sched.world.nodes import Listener, Look, NodeState


class NodeClass(Listener):
    """All open nodes of one pool and of certain node types, bucketed by the number of free devices."""

    __slots__ = (
        "_largest", "_sizes", "free", "idle", "looks", "names", "nodes", "pool", "types",
    )  # fmt: skip

    def __init__(self, pool: str, types: tuple[str, ...]) -> None:
        super().__init__()
        self.pool = pool
        self.types = types  # allowed values of the type label; empty: any
        self.nodes: dict[str, NodeState] = {}
        self.names: list[str] = []  # sorted
        self.looks: dict[Look, list[tuple[int, str]]] = {}  # how nodes look -> their (spare, name), sorted
        self.idle: dict[int, int] = {}  # idle devices -> how many nodes have so many
        self.free = 0  # free devices in all
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
        self._forget(was, (spare, node.row.name))
        insort(self.looks.setdefault(node.look, []), (node.spare, node.row.name))
        self.free += node.free - was.free

    def idled(self, before: int, now: int) -> None:
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


Labels = tuple[tuple[str, str], ...]


class Spec(NamedTuple):
    """What the nodes of a class have in common besides pool and type. Equal ones are one class."""

    labels: Labels = ()  # they carry all of these
    wheres: tuple[Where, ...] = (ANYWHERE,)  # they suit one of these
    device_memory: int = 0  # bytes: none of their devices is smaller
    liked: int | None = None  # they are liked just so much, by the first of `wheres`; None: whatever


PLAIN = Spec()


class Domain(NodeClass):
    """The nodes of a class that a Spec narrows further."""

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
    """What its nodes must carry to be in it, their type left out."""
    return spec_of(cls).labels
