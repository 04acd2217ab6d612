"""The types of the victim search: units that are taken, modes of the search, the result of one attempt."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.workload import Request, TaskKey
from pliant.sched.plan import Guarantee
from pliant.sched.world.chunks import Part, Step
from pliant.sched.world.claims import Claims
from pliant.sched.world.node_classes import Spec
from pliant.sched.world.nodes import NodeState

Rank = tuple[object, ...]  # (place of the queue, priority, -serial, workload): smaller is lost first

UnitRank = tuple[object, ...]
"""(place of the queue, priority, -step, -serial, place of a surplus task in its group, workload)."""

Cost = tuple[int, int, tuple[UnitRank, ...]]
"""(workloads that lose their core, milli-GPUs lost, victims by rank): smaller is better. A policy that only
moves cores counts them as lost; for other policies a moved core costs its milli-GPUs alone."""

Estimate = Callable[[NodeState, Request], Cost | None]  # the cost of clearing a node; None if impossible

Change = tuple[TaskKey, Placement, Placement | None]  # a task, what it claims and what it claims afterwards
Cause = tuple[TaskKey, str | None]  # the task and device that had to make room


class Unit(NamedTuple):
    """One thing taken from a workload: a device, a task, or all it has."""

    workload: str
    step: Step  # what is lost: a bonus portion, a wanted one, or the core
    changes: tuple[Change, ...]
    gpu: int  # milli-GPUs lost
    cause: Cause
    priority: int  # of the group, or of the core
    again: Part | None = None  # what is placed again elsewhere; set for a move

    @property
    def lost(self) -> Resources:
        """What its workload loses."""
        gone = [claim for _, claim, after in self.changes if after is None]
        return Resources(self.gpu, sum(claim.cpu for claim in gone), sum(claim.memory for claim in gone))


FEW = 16  # with more units, the search looks for no lighter set and does not retry without each single unit

Outcome = tuple[list[Unit], dict[TaskKey, Placement | None]]  # see Attempt.since()


@dataclass(frozen=True, slots=True)
class SearchMode:
    """How one attempt searches."""

    waited: bool = False  # as if the minimum run time of all workloads were over
    unbounded: bool = False  # ignores the disruption budgets
    own_bound: bool = False  # units that the policy's own bound requires come first, before cheaper ones
    relocates: bool = False  # a core that may not be taken may be moved
    keeps: str = ""  # a workload whose core is left alone
    first: str = ""  # a workload that loses all it has before anything else


class NodePrices:
    """A heap of nodes with one price each, the latest."""

    def __init__(self) -> None:
        self._heap: list[tuple[Cost, str]] = []
        self._latest: dict[str, Cost | None] = {}

    def put(self, name: str, price: Cost | None) -> None:
        """Set the price of a node; None: the node cannot be cleared."""
        self._latest[name] = price
        if price is not None:
            heappush(self._heap, (price, name))

    def cheapest(self) -> Iterator[tuple[Cost, str]]:
        """Yield and remove the nodes, the cheapest first."""
        while self._heap:
            price, name = heappop(self._heap)
            if self._latest[name] == price:
                self._latest[name] = None
                yield price, name


Heaps = dict[tuple[Request, Spec], NodePrices]  # by request and by class of nodes


@dataclass(slots=True)
class Obstacles:
    """The obstacles that the attempts of a search met, and what the search concludes if it takes nothing."""

    spared: dict[str, int] = field(default_factory=dict)  # workload -> when (ms) its protection ends
    denied: set[str] = field(default_factory=set)  # projects whose budget allows less than was wanted
    outwaited: tuple[str, int, int] | None = None  # a victim, its priority and aged priority
    # (the victim to wait for, when (ms) its protection ends, the setting that protects it)
    protected: tuple[str, int, Guarantee] | None = None
    withheld: str = ""  # the project whose budget blocks the chunk
    wake: int | None = None  # when (ms) the answer may change


@dataclass(slots=True)
class Attempt:
    """One simulated attempt: the units that it took."""

    world: Claims
    mode: SearchMode
    met: Obstacles
    units: list[Unit] = field(default_factory=list)
    homeless: set[str] = field(default_factory=set)  # workloads to be moved that have no other place
    claims: dict[TaskKey, Placement | None] = field(default_factory=dict)  # to replay it, once it is undone
    heaps: Heaps = field(default_factory=dict)  # prices of nodes that may serve the next chunk of its kind

    def take(self, unit: Unit) -> None:
        """Take a unit on the journal."""
        for key, _, after in unit.changes:
            self.world.claim(key, after)
        self.units.append(unit)

    def checkpoint(self) -> tuple[int, int]:
        """A mark to which undo() can return."""
        return self.world.checkpoint(), len(self.units)

    def undo(self, mark: tuple[int, int]) -> None:
        """Take back all that was taken and placed since the mark."""
        self.world.undo(mark[0])
        del self.units[mark[1] :]

    def since(self, mark: tuple[int, int]) -> Outcome:
        """The units taken since the mark, and the present claims of all tasks touched since then."""
        return self.units[mark[1] :], self.world.since(mark[0])

    def show(self, mark: tuple[int, int], outcome: Outcome) -> None:
        """Replace everything since the mark by this outcome."""
        self.undo(mark)
        self.units += outcome[0]
        self.world.replay(outcome[1])

    def cheapest(self, ways: Iterable[Callable[[], bool]], price: Callable[..., Cost]) -> Cost | None:
        """Apply the cheapest of several ways and return its price; None, with nothing taken, if all fail."""
        mark, found, leads = self.checkpoint(), list[tuple[Cost, Outcome]](), False
        for way in ways:
            self.undo(mark)
            if leads := way():
                found.append((price(self.units[mark[1] :]), self.since(mark)))
        cost, outcome = min(found, key=itemgetter(0), default=(None, ([], {})))
        if not leads or outcome is not found[-1][1]:
            self.show(mark, outcome)
        return cost

    def losses(self) -> dict[str, list[Unit]]:
        """Its units by workload; workloads are in the order in which they lost their last one."""
        found: dict[str, list[Unit]] = {}
        for unit in self.units:
            mine = found[unit.workload] = found.pop(unit.workload, [])
            mine.append(unit)
        return found


def before(units: Sequence[Unit]) -> dict[TaskKey, Placement]:
    """What tasks claimed before the first of these units was taken."""
    return {key: claim for unit in reversed(units) for key, claim, _ in unit.changes}


@dataclass(slots=True)
class Effort:
    """The search budget of a cycle, counted in steps so that the same world gives the same answer."""

    steps: int  # simulated placements
    refinements: int  # nodes times tasks that may be looked at for lighter sets of victims

    def spend(self, steps: int) -> bool:
        self.steps -= steps
        return self.steps >= 0

    def refine(self, cost: int) -> bool:
        enough = self.refinements >= cost
        self.refinements -= cost if enough else 0
        return enough
