"""Classes of nodes that some tasks may use and others not: by domain, by labels and taints, by size."""

from typing import NamedTuple

from pliant.sched.world.node_affinity import ANYWHERE, Where, liking, suits
from pliant.sched.world.nodes import NodeClass, NodeState

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
