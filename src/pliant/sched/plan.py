"""What one cycle decides, in order, each decision with its reason."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, count, groupby, repeat
from typing import Literal, NamedTuple

from pliant.model.ledger import Disruptions
from pliant.model.machine import Placement
from pliant.model.reason import Named, Reason
from pliant.model.workload import AttemptId, Task


class Verb(StrEnum):
    """What a decision does to a workload."""

    PLACE = "place"  # gives claims to tasks that had none
    GROW = "grow"  # gives a portion to one that runs or is placed
    SHRINK = "shrink"  # takes a portion, the core stays
    MOVE = "move"  # takes claims and gives others, nothing is lost
    EVICT = "evict"  # takes the core; it goes back to pending


class Decision(NamedTuple):
    """One change of claims. `gpu` values are the workload's milli-GPUs before and after it."""

    verb: Verb
    action: (
        str  # the action that took it: allocate, shrink, consolidate, reclaim, preempt, stale, hasten, grow
    )
    workload: str
    tasks: tuple[str, ...]
    gpu_before: int
    gpu_after: int
    reason: Reason
    beneficiary: str = ""  # id of the workload it was done for


class StartIntent(NamedTuple):
    """This task's next attempt can start now: everything it claims is physically free."""

    attempt: AttemptId
    placement: Placement
    decision: int  # index into Plan.decisions, or -1: decided in an earlier cycle


class StopIntent(NamedTuple):
    """The live attempt no longer matches its task's claims."""

    attempt: AttemptId
    reason: Reason
    decision: int


class ResizeIntent(NamedTuple):
    """A task that can change live should come to this placement."""

    attempt: AttemptId
    placement: Placement
    decision: int


class Verdict(NamedTuple):
    """Why a workload (or its next wanted portion) does not have what it asks for."""

    workload: str
    reason: Reason
    position: int  # in the order in which this cycle looked at them, from 1


@dataclass(slots=True)
class Verdicts:
    """Verdicts in the order in which the cycle looked at the workloads; never changed once they are made.

    Held as columns: thousands of workloads wait for one reason, and each cycle tells it of all of them.
    """

    workloads: tuple[str, ...] = ()  # ids, each once
    reasons: tuple[Reason, ...] = ()  # of each; those that wait for the same share one object
    _places: dict[str, int] | None = field(default=None, init=False, repr=False, compare=False)
    _runs: list[tuple[Reason, int]] | None = field(default=None, init=False, repr=False, compare=False)
    _codes: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.workloads)

    def __iter__(self) -> Iterator[Verdict]:
        return map(Verdict, self.workloads, self.reasons, count(1))

    def __getitem__(self, at: int) -> Verdict:
        place = range(len(self.workloads))[at]
        return Verdict(self.workloads[place], self.reasons[place], place + 1)

    def of(self, workload: str) -> Verdict | None:
        """That of one workload; None if it lacks nothing."""
        place = self.places.get(workload)
        return self[place - 1] if place is not None else None

    def reason(self, workload: str) -> Reason | None:
        """That of one workload; None if it lacks nothing."""
        place = self.places.get(workload)
        return self.reasons[place - 1] if place is not None else None

    @property
    def places(self) -> dict[str, int]:
        """Positions by workload, in order; not to be changed."""
        if self._places is None:
            self._places = dict(zip(self.workloads, count(1), strict=False))
        return self._places

    @property
    def runs(self) -> list[tuple[Reason, int]]:
        """The reasons in order, with how many workloads that follow one another share each."""
        if self._runs is None:
            alike = [list(group) for _, group in groupby(self.reasons, id)]
            self._runs = [(group[0], len(group)) for group in alike]
        return self._runs

    @property
    def codes(self) -> dict[str, str]:
        """Codes of the reasons by workload; not to be changed."""
        if self._codes is None:
            codes = chain.from_iterable([repeat(reason.code, length) for reason, length in self.runs])
            self._codes = dict(zip(self.workloads, codes, strict=True))
        return self._codes

    def within(self, there: Collection[str]) -> "Verdicts":
        """Those of these workloads; the others have gone since the plan was asked for."""
        if all(map(there.__contains__, self.workloads)):
            return self
        kept = [at for at, workload in enumerate(self.workloads) if workload in there]
        return Verdicts(tuple([self.workloads[at] for at in kept]), tuple([self.reasons[at] for at in kept]))


class QueueStanding(NamedTuple):
    """What one queue deserved of one pool when this was decided; milli-GPUs."""

    queue: str  # key in the queue tree
    pool: str
    quota: int  # derived ones worked out; -1: unlimited
    fair_share: int


class Guarantee(NamedTuple):
    """A minimum runtime."""

    runtime: int  # ms from the start of the newest attempt; 0: none
    level: Literal["pool", "project", "department"]  # whose setting it is
    owner: Named | None  # that project or department; None: the pool


class Protection(NamedTuple):
    """What protects the preemptible workloads of a project in a pool from eviction."""

    project: str  # id
    pool: str
    reclaim: Guarantee | None  # from any other project or department; None: there is none
    preemption: Guarantee  # from higher priorities of its own project

    @property
    def least(self) -> Guarantee:
        """Within this no other workload may evict one of them."""
        return min(self.preemption, self.reclaim or self.preemption, key=lambda it: it.runtime)


@dataclass(frozen=True, slots=True)
class Plan:
    decisions: tuple[Decision, ...] = ()
    tasks: tuple[Task, ...] = ()  # every task row that differs after the plan, claims and phase included
    starts: tuple[StartIntent, ...] = ()
    stops: tuple[StopIntent, ...] = ()
    resizes: tuple[ResizeIntent, ...] = ()
    verdicts: Verdicts = field(default_factory=Verdicts)
    wake: int | None = None  # ms: when time alone may change the outcome (back-off, minimum run time, growth)
    disruptions: tuple[Disruptions, ...] = ()  # rows that count what it disrupts, to be stored with it
    standings: tuple[QueueStanding, ...] = ()  # of every queue in every pool
    protections: tuple[Protection, ...] = ()  # of every project and pool where a minimum runtime is set

    @property
    def empty(self) -> bool:
        """True if it changes nothing; verdicts may still stand in it."""
        return not (self.decisions or self.tasks or self.starts or self.stops or self.resizes)
