"""The reasons of work that rules hold back for now: dependencies, limits, bookings, budgets and others."""

from dataclasses import dataclass
from typing import ClassVar

from pliant.model.hold import ARRAY_LIMIT, ASSEMBLING, BEGIN_TIME, DEPENDENCY, USER_LIMIT, When
from pliant.model.quantity import counted, listed, plain, spell_duration, spell_gpus
from pliant.model.reason.base import Named, Reason, are, victim
from pliant.model.workload import Workload


@dataclass(frozen=True, slots=True)
class EnvironmentLost(Reason):
    """It was restored without the sealed values of its environment variables."""

    code: ClassVar[str] = "environment-lost"

    def text(self, now: int) -> str:
        return (
            "Held: the values of its environment variables are not on this machine, as after a restore. "
            "Delete the job and submit it again."
        )


@dataclass(frozen=True, slots=True)
class DependencyHold(Reason):
    """It was submitted with --dependency, and that condition is not met yet."""

    code: ClassVar[str] = DEPENDENCY
    waits_for: tuple[str, ...]  # names of workloads of its own project
    when: str  # When of all of them; empty: they differ
    one: bool = False  # one of them is enough

    def text(self, now: int) -> str:
        names = " or ".join(self.waits_for) if self.one else listed(self.waits_for)
        return f"Waiting for {names} to {_VERBS.get(self.when, 'end')}."


_VERBS = {When.AFTER.value: "start", When.OK.value: "succeed", When.NOT_OK.value: "fail"}


@dataclass(frozen=True, slots=True)
class BeginTime(Reason):
    """It was submitted with --begin."""

    code: ClassVar[str] = BEGIN_TIME
    until: int

    def text(self, now: int) -> str:
        return f"Waiting for its begin time{left(self.until, now)}."


@dataclass(frozen=True, slots=True)
class ArrayLimit(Reason):
    """The allowed number of elements of its array compete or run already."""

    code: ClassVar[str] = ARRAY_LIMIT
    array: str  # its name
    at_once: int

    def text(self, now: int) -> str:
        return f"Waiting for its turn: array {self.array} runs {counted(self.at_once, 'element')} at a time."


@dataclass(frozen=True, slots=True)
class UserLimit(Reason):
    """Its user has as much as an administrator allows."""

    code: ClassVar[str] = USER_LIMIT
    of: str  # gpus: held at once; gpu-hours: within 30 days
    most: int  # milli-GPUs; milli-GPU-ms
    in_project: bool  # False: in all projects together
    asked: int
    until: int | None = None

    def text(self, now: int) -> str:
        where = " in this project" if self.in_project else ""
        if self.of == "gpus":
            return (
                f"Needs {spell_gpus(self.asked)}; its user may hold {spell_gpus(self.most)} at a time"
                f"{where}, those of pending jobs included."
            )
        hours = f"{plain(self.most // HOUR)} GPU hours in 30 days"
        again = f"; the next are there in {spell_duration(self.until - now)}" if self.until else ""
        return f"Its user has used all of {hours}{where}{again}."


HOUR = 3_600_000
"""Ms."""


@dataclass(frozen=True, slots=True)
class Assembling(Reason):
    """It was made on the cluster, and not all that it needs to start is there."""

    code: ClassVar[str] = ASSEMBLING
    origin: str  # kind, namespace and name of what it was made from
    ready: int  # pods that wait

    def text(self, now: int) -> str:
        return f"Waiting for more pods of {self.origin}: {counted(self.ready, 'pod')} can start now."


def hold_of(row: Workload) -> Reason:
    """The reason of a held workload, from its row."""
    if row.held == DEPENDENCY:
        open_ones = [one for one in row.after if not one.met]
        kinds = {one.when for one in open_ones}
        when = kinds.pop().value if len(kinds) == 1 else ""
        return DependencyHold(tuple(one.name for one in open_ones), when, row.after_any)
    if row.held == BEGIN_TIME and row.begin is not None:
        return BeginTime(row.begin)
    if row.held == ARRAY_LIMIT and row.element is not None:
        return ArrayLimit(row.element.name, row.element.at_once)
    if row.held == USER_LIMIT and (it := row.limited) is not None:
        return UserLimit(it.of, it.most, it.in_project, it.asked, it.until)
    if row.held == ASSEMBLING and row.origin is not None:
        return Assembling(str(row.origin), sum(count for _, count in row.origin.ready))
    return EnvironmentLost()


@dataclass(frozen=True, slots=True)
class PreemptionDelay(Reason):
    """It may take from others, but has not been pending for long enough."""

    code: ClassVar[str] = "preemption-delay"
    asked: int
    delay: int  # ms
    until: int

    def text(self, now: int) -> str:
        return (
            f"Needs {spell_gpus(self.asked)}; it may preempt or reclaim after its preemption delay of "
            f"{spell_duration(self.delay)}{left(self.until, now)}."
        )


@dataclass(frozen=True, slots=True)
class Outwaited(Reason):
    """Its priority is higher, but its victim had waited for long before it ran."""

    code: ClassVar[str] = "outwaited"
    holder: Named
    holder_priority: int
    aged: int  # that priority plus the steps gained by waiting
    priority: int  # its own
    asked: int

    def text(self, now: int) -> str:
        return (
            f"Needs {spell_gpus(self.asked)}; {victim(self.holder)} has priority {self.aged} "
            f"({self.holder_priority}, raised while it was pending), this job has {self.priority}."
        )


@dataclass(frozen=True, slots=True)
class ChurnBudget(Reason):
    """Work of a project was disrupted as often as its budget allows."""

    code: ClassVar[str] = "churn-budget"
    asked: int
    project: Named  # whose work would be disrupted
    budget: int  # decisions against it in `window`
    window: int  # ms
    until: int  # when the first of them no longer counts

    def text(self, now: int) -> str:
        times = "once" if self.budget == 1 else counted(self.budget, "time")
        return (
            f"Needs {spell_gpus(self.asked)}; {self.project} was disrupted {times} within "
            f"{spell_duration(self.window)}, the most that is allowed{left(self.until, now)}."
        )


@dataclass(frozen=True, slots=True)
class Reserved(Reason):
    """What it could use is kept free for a larger gang that waits."""

    code: ClassVar[str] = "reserved"
    asked: int
    gang: Named  # the workload for which it is reserved
    gpus: int  # that the gang waits for
    until: int | None  # ms; when the gang is expected to start; None: not known
    runtime: int | None  # ms; its own maximum runtime; None: not set

    def text(self, now: int) -> str:
        said = (
            f"Needs {spell_gpus(self.asked)}; the free GPUs are reserved for {self.gang}, which needs "
            f"{spell_gpus(self.gpus)}"
        )
        if self.until is None:
            return f"{said} and has no estimated start."
        start = f"before the gang starts in {spell_duration(max(0, self.until - now))}"
        if self.runtime is None:
            return f"{said}. Set --max-runtime to let it end {start}."
        return f"{said}. Its maximum runtime of {spell_duration(self.runtime)} does not end {start}."


@dataclass(frozen=True, slots=True)
class Booked(Reason):
    """What it could use is booked for another project, or its node goes into maintenance."""

    code: ClassVar[str] = "booked"
    asked: int
    node: str
    gpus: int  # milli-GPUs that are booked there
    project: Named | None  # whose booking it is; None: maintenance
    start: int  # ms
    until: int  # ms
    begun: bool
    runtime: int | None  # ms; its own maximum runtime; None: not set

    def text(self, now: int) -> str:
        needs = f"Needs {spell_gpus(self.asked)}; " if self.asked else ""
        if self.begun:
            what = (
                f"{self.node} is under maintenance"
                if self.project is None
                else f"{are('gpu', self.gpus, 'booked')} on {self.node} for {self.project}"
            )
            said = f"{needs}{what}{left(self.until, now)}."
        else:
            what = (
                f"maintenance of {self.node}"
                if self.project is None
                else f"the booking of {spell_gpus(self.gpus)} on {self.node} for {self.project}"
            )
            begins = spell_duration(max(0, self.start - now))
            longer = "not set" if self.runtime is None else spell_duration(self.runtime)
            said = (
                f"{needs}{what} begins in {begins}, and the maximum runtime of this non-preemptible job is "
                f"{longer}. Submit it with --max-runtime {begins} or less to start before."
            )
        return said[0].upper() + said[1:]


@dataclass(frozen=True, slots=True)
class NotApart(Reason):
    """Its tasks must not share a node, a rack or the like, and there are too few that could take one more."""

    code: ClassVar[str] = "not-apart"
    key: str  # of the label
    tasks: int  # that still need a place
    domains: int  # values of the label among the nodes that it can use
    room: int  # of those, how many could take one of its tasks now
    ever: bool = True  # False: there are fewer domains than tasks

    def text(self, now: int) -> str:
        must = f"Needs a different {self.key} for each task, {self.tasks} still to be placed"
        if not self.ever:
            return f"{must}; its nodes have only {self.domains}."
        return f"{must}; only {self.room} of {self.domains} can take one now."


@dataclass(frozen=True, slots=True)
class Unsuited(Reason):
    """All nodes of the pool that take work are ruled out by what it asks of labels, or by taints."""

    code: ClassVar[str] = "unsuited"
    pool: str
    nodes: int  # of the pool and of the right type that take work
    unlike: int  # of those, ruled out by its affinity
    tainted: int  # the others: with a taint that it does not tolerate
    taint: str  # one such taint, `key=value:Effect`; empty without any

    def text(self, now: int) -> str:
        parts = []
        if self.unlike:
            parts.append(f"{self.unlike} {'does' if self.unlike == 1 else 'do'} not match its node affinity")
        if self.tainted:
            has = "has" if self.tainted == 1 else "have"
            parts.append(f"{self.tainted} {has} a taint that it does not tolerate ({self.taint})")
        return f"No eligible node among {self.nodes} in node pool {self.pool}: {', '.join(parts)}."


def left(until: int, now: int) -> str:
    """' (4m left)'; nothing once it is over."""
    return f" ({spell_duration(until - now)} left)" if until > now else ""
