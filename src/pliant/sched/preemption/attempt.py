"""The types of the victim search: units that are taken, modes of the search, the result of one attempt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.workload import Request, TaskKey
from pliant.sched.plan import Guarantee
from pliant.sched.world.chunks import Part, Step
from pliant.sched.world.claims import Claims
from pliant.sched.world.node_classes import Spec
from pliant.sched.world.nodes import NodeState

Rank = tuple[tuple[int, ...], int, int, str]
"""Smaller is lost first: see PriceCache.rank()."""

UnitRank = tuple[tuple[int, ...], int, int, int, int, str]
"""The same with what is lost (bonus before core) and the place of a surplus task in its group."""

Cost = tuple[int, int, tuple[UnitRank, ...]]
"""(workloads that lose their core, milli-GPUs lost, victims by rank): smaller is better. Where cores are only
moved, they count as lost; where both happens, a move costs its milli-GPUs alone."""

Estimate = Callable[[NodeState, Request], Cost | None]  # the cost of clearing a node; None if impossible

Before = Mapping[str, Mapping[TaskKey, Placement | None]]
"""Workload -> what its tasks claimed before the first unit was taken of it."""


class Unit(NamedTuple):
    """One thing taken from a workload: a device, a task, or all it has."""

    workload: str
    step: Step  # what is lost: a bonus portion, a wanted one, or the core
    changes: tuple[tuple[TaskKey, Placement | None], ...]  # tasks and what they claim afterwards
    gpu: int  # milli-GPUs lost
    cause: tuple[TaskKey, str | None]  # the task and device that had to make room
    priority: int  # of the group, or of the core
    again: Part | None = None  # it is placed again elsewhere: a move

    def lost(self, before: Before) -> Resources:
        """Milli-GPUs that its workload loses."""
        gone = [before[self.workload][key] for key, after in self.changes if after is None]
        cpu = sum(claim.cpu for claim in gone if claim is not None)
        return Resources(self.gpu, cpu, sum(claim.memory for claim in gone if claim is not None))


class Aim(StrEnum):
    """What attempts are for, in their order."""

    TAKE = "take"  # what the policy lets the chunk have
    WAIT = "wait"  # would fewer GPUs be lost after the minimum run time of other workloads?
    RELOCATE = "relocate"  # cores that may not be taken may be moved
    UNBOUNDED = "unbounded"  # is a budget of disruptions the only obstacle?


@dataclass(frozen=True, slots=True)
class SearchMode:
    """How one attempt searches."""

    aim: Aim = Aim.TAKE
    lasting: bool = False  # Policy.lasts() is checked for each place, not only at the end
    own_bound: bool = False  # units that the policy's own bound requires come first, before cheaper ones
    relocates: bool = False  # a core that may not be taken may be moved
    sheltered: frozenset[str] = frozenset()  # only bonus is taken of these projects
    keeps: frozenset[str] = frozenset()  # workloads whose cores are left alone
    first: str = ""  # a workload that loses all it has before anything else

    @property
    def patient(self) -> bool:
        """False: minimum run times are ignored."""
        return self.aim is not Aim.WAIT


class NodePrices:
    """A heap of nodes with one price each, the latest."""

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
        """Remove and return the cheapest node; None if the heap is empty."""
        while self._heap:
            price, name = heappop(self._heap)
            if self._latest.get(name) == price:
                del self._latest[name]
                return price, name
        return None


Heaps = dict[tuple[Request, Spec], NodePrices]
"""Keyed by the request to a node and by the class of nodes."""


@dataclass(slots=True)
class Attempt:
    """One simulated attempt: the units it took and the obstacles it found."""

    world: Claims
    mode: SearchMode
    found: bool = False  # valid: the chunk has its places and every rule is kept
    units: list[Unit] = field(default_factory=list)
    before: dict[str, dict[TaskKey, Placement | None]] = field(default_factory=dict)  # see Before
    claims: dict[TaskKey, Placement | None] | None = None  # once something else is tried
    price: Cost = (0, 0, ())
    heaps: Heaps = field(default_factory=dict)  # prices of nodes that may serve the next chunk of its kind
    spared: dict[str, int] = field(default_factory=dict)  # workload -> until when (ms) it is left alone
    denied: set[str] = field(default_factory=set)  # sheltered projects from which something was wanted
    overdrawn: set[str] = field(default_factory=set)  # projects that would lose more than their budget allows
    returns: bool = False  # what it took would be reclaimed at once
    homeless: set[str] = field(default_factory=set)  # would have to move, and have no other place
    outwaited: tuple[str, int, int] | None = None  # a victim, its priority and aged priority
    # The workload that is waited for, until when (ms), and the object whose setting says so.
    protected: tuple[str, int, Guarantee] | None = None
    withheld: str = ""  # the project whose budget blocks the chunk
    wake: int | None = None  # when (ms) the answer may be another

    def take(self, unit: Unit) -> None:
        """Take a unit on the journal."""
        before = self.before.setdefault(unit.workload, {})
        for key, after in unit.changes:
            before.setdefault(key, self.world.claim_of(key))
            self.world.claim(key, after)


@dataclass(slots=True)
class Effort:
    """The search budget of a cycle, counted in steps so that the same world gives the same answer."""

    steps: int  # simulated placements
    refinements: int  # nodes times tasks that may be looked at for lighter sets of victims

    def spend(self, steps: int) -> bool:
        self.steps -= steps
        return self.steps >= 0
