"""What one cycle decides, in order, each decision with its reason."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from pliant.model.ledger import Disruptions
from pliant.model.machine import Placement
from pliant.model.reason import Named, Reason
from pliant.model.workload import AttemptId, Task
from pliant.sched.verdicts import Verdicts


class Verb(StrEnum):
    """What a decision does to a workload."""

    PLACE = "place"  # gives claims to tasks that had none
    GROW = "grow"  # gives a portion to one that runs or is placed
    SHRINK = "shrink"  # takes a portion, the core stays
    MOVE = "move"  # takes claims and gives others, nothing is lost
    EVICT = "evict"  # takes the core; it goes back to pending


PLACE: Final = Verb.PLACE  # as CORE of pliant.sched.world.chunks


# Three constructors are written out: these are made for each placement, and mypyc compiles no derived one.
@dataclass(slots=True, init=False)
class Decision:
    """One change of claims; never changed. `gpu` values are the workload's milli-GPUs before and after it."""

    verb: Verb
    action: str  # allocate, shrink, consolidate, reclaim, preempt, stale, hasten, grow, release or vacate
    workload: str
    tasks: tuple[str, ...]
    gpu_before: int
    gpu_after: int
    reason: Reason
    beneficiary: str  # id of the workload it was done for; empty: for its own

    def __init__(
        self, verb: Verb, action: str, workload: str, tasks: tuple[str, ...], gpu_before: int, gpu_after: int,
        reason: Reason, beneficiary: str = "",
    ) -> None:  # fmt: skip
        self.verb = verb
        self.action = action
        self.workload = workload
        self.tasks = tasks
        self.gpu_before = gpu_before
        self.gpu_after = gpu_after
        self.reason = reason
        self.beneficiary = beneficiary

    @property
    def told(self) -> tuple[object, ...]:
        """The fields that records of a plan keep of it."""
        head = self.verb, self.action, self.workload, self.tasks
        return (*head, self.gpu_before, self.gpu_after, self.reason, self.beneficiary)


@dataclass(slots=True, init=False)
class StartIntent:
    """This task's next attempt can start now: everything it claims is physically free. Never changed."""

    task: Task  # its row in the plan, with the attempt ordered
    placement: Placement
    decision: int  # index into Plan.decisions, or -1: decided in an earlier cycle

    def __init__(self, task: Task, placement: Placement, decision: int) -> None:
        self.task = task
        self.placement = placement
        self.decision = decision

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.task.workload, self.task.name, self.task.attempt)

    @property
    def told(self) -> tuple[object, ...]:
        """The fields that records of a plan keep of it."""
        return self.attempt, self.placement, self.decision


@dataclass(slots=True, init=False)
class StopIntent:
    """The live attempt no longer matches its task's claims. Never changed."""

    attempt: AttemptId
    reason: Reason
    decision: int

    def __init__(self, attempt: AttemptId, reason: Reason, decision: int) -> None:
        self.attempt = attempt
        self.reason = reason
        self.decision = decision

    @property
    def told(self) -> tuple[object, ...]:
        """The fields that records of a plan keep of it."""
        return self.attempt, self.reason, self.decision


class ResizeIntent(NamedTuple):
    """A live attempt should change to this placement."""

    attempt: AttemptId
    placement: Placement
    decision: int


class QueueStanding(NamedTuple):
    """What one queue deserved of one pool in this cycle; milli-GPUs."""

    queue: str  # key in the queue tree
    pool: str
    quota: int  # calculated if derived; -1: unlimited
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
        """The shorter of both: within it no other workload may evict one of them."""
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
        """True if it changes nothing; it may still have verdicts."""
        return not (self.decisions or self.tasks or self.starts or self.stops or self.resizes)
