"""Classes of nodes that lie in one domain of a topology."""

from pliant.sched.machines import NodeClass, NodeState

Labels = tuple[tuple[str, str], ...]


class Domain(NodeClass):
    """The nodes of a class that carry certain labels, all of them."""

    __slots__ = ("labels",)

    def __init__(self, pool: str, types: tuple[str, ...], labels: Labels) -> None:
        super().__init__(pool, types)
        self.labels = labels

    def takes(self, node: NodeState) -> bool:
        return super().takes(node) and all(node.row.label(key) == value for key, value in self.labels)


def labels_of(cls: NodeClass) -> Labels:
    """What its nodes must carry to be in it, their type left out."""
    return cls.labels if isinstance(cls, Domain) else ()
