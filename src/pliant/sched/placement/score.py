"""Which node is best: the nodes of a class in the order in which to try them, by lexicographic rules."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from pliant.model.machine import Strategy
from pliant.model.workload import Request
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import NodeState

Tiers = Iterator[Iterable[NodeState]]
"""Groups of nodes, each in order, made while they are looked at: often the first node is taken."""


def by_free_devices(cls: NodeClass, least: int, most: int, strategy: Strategy) -> Tiers:
    """Tiers of nodes with `least` free devices or more; nodes that can give `most` come in the first tier.

    Inside a tier packing takes the fewest free devices first, spreading the largest free part.
    """
    counts = sorted([count for count in cls.buckets if count >= least])
    tiers = [counts]
    if most > least:
        below = bisect_left(counts, most)
        tiers = [counts[below:], *[[count] for count in reversed(counts[:below])]]
    for tier in tiers:
        nodes = (cls.nodes[name] for count in tier for name in cls.buckets[count])
        if strategy is Strategy.SPREAD:
            yield sorted(nodes, key=lambda node: (-(node.free << 32) // max(1, node.usable), node.row.name))
        else:
            yield nodes


def for_fraction(cls: NodeClass, strategy: Strategy) -> Tiers:
    """First the nodes that have a partly used device, then the others."""
    partly = [cls.nodes[name] for name in cls.partly]
    if partly:
        partly.sort(key=lambda node: _pack_key(node, strategy))
        yield partly
    for nodes in by_free_devices(cls, 1, 1, strategy):
        yield (node for node in nodes if not node.partly)


def for_cores(cls: NodeClass, request: Request, strategy: Strategy) -> Tiers:
    """For tasks without GPU: nodes without GPUs first, then packed or spread by cores."""
    nodes = [node for node in cls.nodes.values() if node.free_cpu >= request.cpu]
    if strategy is Strategy.SPREAD:
        nodes.sort(
            key=lambda node: (
                bool(node.usable), -(node.free_cpu << 32) // max(1, node.row.cpu), node.row.name,
            )
        )  # fmt: skip
    else:
        nodes.sort(key=lambda node: (bool(node.usable), node.free_cpu, node.row.name))
    yield nodes


def _pack_key(node: NodeState, strategy: Strategy) -> tuple[int, str]:
    if strategy is Strategy.SPREAD:
        return (-(node.free << 32) // max(1, node.usable), node.row.name)
    return (node.free, node.row.name)
