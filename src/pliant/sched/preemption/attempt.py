"""The words of the victim search: what is taken, how it is searched for, and what came of one attempt."""

from collections.abc import Mapping
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

Rank = tuple[tuple[int, ...], int, int, str]
"""Smaller is lost first: see PriceCache.rank()."""

UnitRank = tuple[tuple[int, ...], int, int, int, int, str]
"""The same with what is lost (bonus before core) and the place of a surplus task in its group."""

Cost = tuple[int, int, tuple[UnitRank, ...]]
"""(workloads that lose their core, milli-GPUs lost, victims by rank): smaller is better. Where cores are only
moved, they count as lost; where both happens, a move costs its milli-GPUs alone."""

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
    again: Part | None = None  # what must be placed again elsewhere: a move

    def lost(self, before: Before) -> Resources:
        """What its workload no longer has."""
        gone = [before[self.workload][key] for key, after in self.changes if after is None]
        cpu = sum(claim.cpu for claim in gone if claim is not None)
        return Resources(self.gpu, cpu, sum(claim.memory for claim in gone if claim is not None))


class Aim(StrEnum):
    """What attempts are for, in their order."""

    TAKE = "take"  # what the policy lets the chunk have
    WAIT = "wait"  # would less be lost once the minimum run time of others has passed?
    RELOCATE = "relocate"  # what may not be taken may be moved out of the way
    UNBOUNDED = "unbounded"  # is it a budget of disruptions alone that stands in the way?


@dataclass(frozen=True, slots=True)
class SearchMode:
    """How one attempt searches."""

    aim: Aim = Aim.TAKE
    lasting: bool = False  # Policy.lasts() is asked for each place, not only once nothing can be left out
    own_bound: bool = False  # what the policy's own bound asks for is taken first, not what is cheapest
    relocates: bool = False  # a core that may not be taken may be moved
    sheltered: frozenset[str] = frozenset()  # projects disturbed so often that only bonus is taken of them
    keeps: frozenset[str] = frozenset()  # workloads whose cores are left alone
    first: str = ""  # a workload that loses all it has before anything else

    @property
    def patient(self) -> bool:
        """False: as if nobody had a minimum run time."""
        return self.aim is not Aim.WAIT


class NodePrices:
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


Heaps = dict[tuple[Request, Spec], NodePrices]
"""By what is asked of a node, and which nodes are looked at."""


@dataclass(slots=True)
class Attempt:
    """One simulated attempt: what it took, and what it came upon."""

    world: Claims
    mode: SearchMode
    found: bool = False  # it holds: the chunk has its places and every rule is kept
    units: list[Unit] = field(default_factory=list)
    before: dict[str, dict[TaskKey, Placement | None]] = field(default_factory=dict)  # see Before
    claims: dict[TaskKey, Placement | None] | None = None  # once something else is tried
    price: Cost = (0, 0, ())
    heaps: Heaps = field(default_factory=dict)  # prices of nodes that may serve the next chunk of its kind
    spared: dict[str, int] = field(default_factory=dict)  # workload -> until when (ms) it is left alone
    denied: set[str] = field(default_factory=set)  # sheltered projects that were asked for something
    overdrawn: set[str] = field(default_factory=set)  # projects that would lose more than their budget allows
    returns: bool = False  # what it took would come straight back
    homeless: set[str] = field(default_factory=set)  # who would have to move and has nowhere to go
    outwaited: tuple[str, int, int] | None = None  # a victim, its priority and aged priority
    # Who is waited for, until when (ms), by whose setting.
    protected: tuple[str, int, Guarantee] | None = None
    withheld: str = ""  # the project whose budget keeps the chunk from its places
    wake: int | None = None  # when (ms) the answer may be another

    def take(self, unit: Unit) -> None:
        """Take a unit on the journal."""
        before = self.before.setdefault(unit.workload, {})
        for key, after in unit.changes:
            before.setdefault(key, self.world.claim_of(key))
            self.world.claim(key, after)


@dataclass(slots=True)
class Effort:
    """What a cycle may still spend on searches; counted, so that the same world gives the same answer."""

    steps: int  # simulated placements
    refinements: int  # nodes times tasks that may be looked at for lighter sets of victims

    def spend(self, steps: int) -> bool:
        self.steps -= steps
        return self.steps >= 0
