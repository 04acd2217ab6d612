"""What it costs to clear nodes for a request, the cheapest first."""

from heapq import heappop, heappush

from pliant.model.workload import Request
from pliant.sched.preemption.victims import Cost
from pliant.sched.world.node_classes import Spec


class Prices:
    """A heap in which each node has one price, the one that was put last."""

    def __init__(self) -> None:
        self._heap: list[tuple[Cost, str]] = []
        self._latest: dict[str, Cost] = {}

    def put(self, name: str, price: Cost | None) -> None:
        """None: it cannot be cleared."""
        if price is None:
            self._latest.pop(name, None)
        elif self._latest.get(name) != price:
            self._latest[name] = price
            heappush(self._heap, (price, name))

    def pop(self) -> tuple[Cost, str] | None:
        """The cheapest node, which is no longer in it; None if there is none left."""
        while self._heap:
            price, name = heappop(self._heap)
            if self._latest.get(name) == price:
                del self._latest[name]
                return price, name
        return None


Heaps = dict[tuple[Request, Spec], Prices]
"""By what is asked of a node, and which nodes are looked at."""
