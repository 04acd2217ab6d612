"""Prices of nodes kept from one hunt to the next: many equal jobs that wait do not price every node again."""

from collections.abc import Callable
from dataclasses import dataclass

from pliant.model.workload import Request
from pliant.sched.machines import NodeClass, NodeState
from pliant.sched.prices import Heaps
from pliant.sched.victims import Cost, Rank, Rules, excess


@dataclass(frozen=True, slots=True)
class Kept:
    """What a hunt that succeeded knew. Prices hold where nothing has changed since the mark."""

    heaps: Heaps
    over: dict[str, int]
    ranks: dict[str, Rank]
    mark: int


def taken_over(
    kept: Kept,
    rules: Rules,
    cls: NodeClass,
    estimate: Callable[[NodeState, Request], Cost | None],
) -> Heaps | None:
    """The prices for a chunk of the same kind; None if those who give stand in another order now."""
    now = {project: excess(rules, project) for project in kept.over}
    if _places(now) != _places(kept.over):
        return None
    rules.over, rules.ranks = kept.over, kept.ranks
    for name in rules.world.nodes_since(kept.mark):
        for request, heap in kept.heaps.items() if name in cls.nodes else ():
            heap.put(name, estimate(cls.nodes[name], request))
    return kept.heaps


def _places(over: dict[str, int]) -> dict[str, int]:
    """The place of each by its number; equal ones share theirs."""
    order = sorted(set(over.values()))
    return {project: order.index(value) for project, value in over.items()}
