"""Prices of nodes kept from one hunt to the next: many equal jobs that wait do not price every node again."""

from collections.abc import Callable
from dataclasses import dataclass

from pliant.model.workload import Request
from pliant.sched.preemption.price_cache import Heaps
from pliant.sched.preemption.singles import Singles
from pliant.sched.preemption.victims import Cost, Rules, turn
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.nodes import NodeState


@dataclass(frozen=True, slots=True)
class Kept:
    """What a hunt that succeeded knew. Prices hold where nothing has changed since the mark."""

    heaps: Heaps
    rules: Rules
    by_node: Singles
    mark: int


def taken_over(
    kept: Kept,
    rules: Rules,
    cls: NodeClass,
    estimate: Callable[[NodeState, Request], Cost | None],
) -> Heaps | None:
    """The prices for a chunk of the same kind; None if those who give stand in another order now."""
    before = kept.rules
    if rules.walks:
        return None  # each loss changes the order of all others
    now = {project: turn(rules, project) for project in before.turns}
    if _places(now) != _places(before.turns):
        return None
    rules.turns, rules.ranks, rules.singles = before.turns, before.ranks, before.singles
    rules.fresh, rules.least = before.fresh, before.least
    for name in rules.world.nodes_since(kept.mark):
        for (request, spec), heap in kept.heaps.items():
            nodes = rules.world.narrowed(cls, spec).nodes
            if name in nodes:
                heap.put(name, estimate(nodes[name], request))
    return kept.heaps


def _places(turns: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """The place of each by its number; equal ones share theirs."""
    order = sorted(set(turns.values()))
    return {project: order.index(value) for project, value in turns.items()}
