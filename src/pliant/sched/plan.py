"""What one cycle decides, in order, each decision with its reason."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, chain, count, groupby, repeat
from typing import Final, Literal, NamedTuple

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


PLACE: Final = Verb.PLACE  # as CORE of pliant.sched.world.chunks


# Three constructors are written out: these are made for each placement, and mypyc compiles no derived one.
@dataclass(slots=True, init=False)
class Decision:
    """One change of claims; never changed. `gpu` values are the workload's milli-GPUs before and after it."""

    verb: Verb
    action: (
        str  # the action that took it: allocate, shrink, consolidate, reclaim, preempt, stale, hasten, grow
    )
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
        """What records of what was decided hold of it."""
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
        """What records of what was decided hold of it."""
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
        """What records of what was decided hold of it."""
        return self.attempt, self.reason, self.decision


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


Run = tuple[Reason, int]
"""A reason, and how many workloads that follow one another have it."""

Kept = tuple[int, int, int]
"""A part of one order that is in another one: where it begins in that one, where in this one, its length."""

GAP = 1 << 32
"""Between the keys of neighbours: so often something may come between them before all keys are made again."""

EDITS = 8
"""Places at which two orders may differ before what is between the first and the last counts as another."""


@dataclass(slots=True)
class Verdicts:
    """Verdicts in the order in which the cycle looked at the workloads; never changed once they are made.

    Thousands of workloads wait for one reason, and each cycle tells it of all of them: so reasons are held by
    runs. Of those that `follow` others only what differs is looked at; all of such a chain share one index.
    """

    workloads: tuple[str, ...] = ()  # ids, each once
    runs: tuple[Run, ...] = ()  # their reasons; neighbours may be equal
    kept: tuple[Kept, ...] = field(default=(), compare=False)  # what was in those which it follows
    _ends: list[int] | None = field(default=None, init=False, repr=False, compare=False)  # of the runs
    _places: dict[str, int] | None = field(default=None, init=False, repr=False, compare=False)
    _index: "_Index | None" = field(default=None, init=False, repr=False, compare=False)
    _keys: list[int] = field(default_factory=list, init=False, repr=False, compare=False)  # rise; by place

    @classmethod
    def of_each(cls, workloads: Sequence[str], reasons: Sequence[Reason]) -> "Verdicts":
        """From the reason of each; those that wait for the same share one object."""
        alike = [list(group) for _, group in groupby(reasons, id)]
        return cls(tuple(workloads), tuple([(group[0], len(group)) for group in alike]))

    def __len__(self) -> int:
        return len(self.workloads)

    def __iter__(self) -> Iterator[Verdict]:
        return map(Verdict, self.workloads, self.reasons, count(1))

    def __getitem__(self, at: int) -> Verdict:
        place = range(1, len(self.workloads) + 1)[at]
        return Verdict(self.workloads[place - 1], self._reason_at(place), place)

    @property
    def reasons(self) -> Iterator[Reason]:
        """That of each."""
        return chain.from_iterable([repeat(reason, length) for reason, length in self.runs])

    def of(self, workload: str) -> Verdict | None:
        """That of one workload; None if it lacks nothing."""
        place = self.position(workload)
        return Verdict(workload, self._reason_at(place), place) if place is not None else None

    def reason(self, workload: str) -> Reason | None:
        """That of one workload; None if it lacks nothing."""
        place = self.position(workload)
        return self._reason_at(place) if place is not None else None

    def position(self, workload: str) -> int | None:
        """From 1; None if it lacks nothing. For any thread."""
        if self._index is None:
            return self.places.get(workload)
        return self._index.position(workload, self.workloads, self._keys)

    def _reason_at(self, place: int) -> Reason:
        return self.runs[bisect_left(self._run_ends(), place)][0]

    def _run_ends(self) -> list[int]:
        if self._ends is None:
            self._ends = list(accumulate([length for _, length in self.runs]))
        return self._ends

    @property
    def places(self) -> dict[str, int]:
        """Positions by workload, in order; not to be changed."""
        if self._places is None:
            self._places = dict(zip(self.workloads, count(1), strict=False))
        return self._places

    def without(self, gone: Collection[str]) -> "Verdicts":
        """Those of all but these workloads."""
        if not gone or set(gone).isdisjoint(self.workloads):
            return self
        kept = [it for it in self if it.workload not in gone]
        return Verdicts.of_each([it.workload for it in kept], [it.reason for it in kept])

    def follow(self, before: "Verdicts") -> "Verdicts":
        """The same, as a change of those before: their index becomes that of these."""
        index = before._index
        if index is None:
            index, before = _Index(), Verdicts()
        found = Verdicts(self.workloads, self.runs, shared(before.workloads, self.workloads))
        found._index = index
        found._keys = index.change(before, found)
        return found

    def recoded(self, before: "Verdicts") -> Iterator[tuple[str, Reason]]:
        """Workloads whose code is not the one that they had in those which it follows, with their reasons."""
        had: dict[str, str] = {}
        end = 0
        for since, _, length in (*self.kept, (len(before), 0, 0)):
            for begin, until, reason in before.within(end, since):
                had.update(dict.fromkeys(before.workloads[begin:until], reason.code))
            end = since + length
        end = 0
        for since, first, length in (*self.kept, (0, len(self), 0)):
            for begin, until, reason in self.within(end, first):
                for workload in self.workloads[begin:until]:
                    if had.get(workload) != reason.code:
                        yield workload, reason
            end = first + length
            for begin, until, reason in self.within(first, end):
                for at, to, other in before.within(begin - first + since, until - first + since):
                    if other.code != reason.code:
                        for workload in before.workloads[at:to]:
                            yield workload, reason

    def lost(self, before: "Verdicts") -> set[str]:
        """Workloads that had a verdict in those which it follows, and have none now."""
        old, new = between(self.kept, before.workloads, self.workloads)
        return {workload for part in old for workload in part}.difference(*new)

    def within(self, begin: int, end: int) -> Iterator[tuple[int, int, Reason]]:
        """(begin, end, reason) of the runs in that part of the order, cut to it."""
        if begin >= end:
            return
        ends = self._run_ends()
        for at in range(bisect_right(ends, begin), len(ends)):
            reason, length = self.runs[at]
            yield max(begin, ends[at] - length), min(end, ends[at]), reason
            if ends[at] >= end:
                return


class _Index:
    """Where the workloads of a chain of verdicts are: a key for each that rises with its place."""

    def __init__(self) -> None:
        self._key: dict[str, int] = {}
        self._newest: list[int] | None = None  # keys of the newest verdicts; None: it is being changed

    def change(self, before: Verdicts, now: Verdicts) -> list[int]:
        """Let it be about the next ones; their keys."""
        self._newest = None  # a look-up in older ones goes through their order meanwhile
        old, new = between(now.kept, before.workloads, now.workloads)
        for workload in [workload for part in old for workload in part]:
            del self._key[workload]
        keys: list[int] = []
        parts = zip(new, (*now.kept, (0, 0, 0)), strict=True)
        for part, (since, _, length) in parts:
            left = keys[-1] if keys else 0
            step = (before._keys[since] - left) // (len(part) + 1) if length else GAP
            made = [left + step * at for at in range(1, len(part) + 1)]
            if not step and made:
                keys = [GAP * at for at in range(1, len(now.workloads) + 1)]
                self._key = dict(zip(now.workloads, keys, strict=True))
                break
            self._key.update(zip(part, made, strict=True))
            keys += made
            keys += before._keys[since : since + length]
        self._newest = keys
        return keys

    def position(self, workload: str, order: tuple[str, ...], keys: list[int]) -> int | None:
        key = self._key.get(workload)
        if key is not None:
            at = bisect_left(keys, key)
            if at < len(order) and order[at] == workload:
                return at + 1
        if self._newest is keys:  # it was so when it was looked up, too
            return None
        return order.index(workload) + 1 if workload in order else None


def shared(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[Kept, ...]:
    """The parts of one order that are in the other, where they differ at few places; in their order."""
    at = place = alike(old, new, 0, 0)
    found = [(0, 0, at)]
    most = min(len(old), len(new)) - at
    last = 0
    while last < most and old[len(old) - last - 1] == new[len(new) - last - 1]:
        size = most - last
        while old[len(old) - last - size : len(old) - last] != new[len(new) - last - size : len(new) - last]:
            size //= 2
        last += size
    end, until, far = len(old) - last, len(new) - last, len(old) + len(new)
    for _ in range(EDITS):
        if at == end or place == until:
            break
        gone = old.index(new[place], at, end) - at if new[place] in old[at:end] else far
        come = new.index(old[at], place, until) - place if old[at] in new[place:until] else far
        if gone == come == far:  # one in the place of another
            gone, come = 1, 1
        elif gone <= come:
            come = 0
        else:
            gone = 0
        at, place = at + gone, place + come
        length = alike(old[:end], new[:until], at, place)
        found.append((at, place, length))
        at, place = at + length, place + length
    found.append((end, until, last))
    return tuple([it for it in found if it[2]])


def alike(old: tuple[str, ...], new: tuple[str, ...], at: int, place: int) -> int:
    """How many are the same from there on."""
    length, most = 0, min(len(old) - at, len(new) - place)
    while length < most and old[at + length] == new[place + length]:
        size = most - length
        while old[at + length : at + length + size] != new[place + length : place + length + size]:
            size //= 2
        length += size
    return length


def between(
    kept: tuple[Kept, ...], old: tuple[str, ...], new: tuple[str, ...]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """What is in one order before, between and behind the kept parts, and what is there in the other."""
    ends = [(0, 0), *((at + length, place + length) for at, place, length in kept)]
    begins = [*((at, place) for at, place, _ in kept), (len(old), len(new))]
    gaps = [(*end, *begin) for end, begin in zip(ends, begins, strict=True)]
    return [old[at:to] for at, _, to, _ in gaps], [new[at:to] for _, at, _, to in gaps]


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
