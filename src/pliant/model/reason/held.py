"""Why something that could be had is held back for now: rules that somebody has set."""

from dataclasses import dataclass
from typing import ClassVar

from pliant.model.quantity import format_duration, format_gpus
from pliant.model.reason.base import Reason


@dataclass(frozen=True, slots=True)
class EnvironmentLost(Reason):
    """It was restored without the sealed values of its environment variables."""

    code: ClassVar[str] = "environment-lost"

    @property
    def text(self) -> str:
        return (
            "Held: the values of its environment variables are not on this machine, as after a restore. "
            "Delete the workload and submit it again."
        )


HOLDS = {kind.code: kind for kind in (EnvironmentLost,)}
"""Reasons for which a workload is not started, by the code that its row has."""


@dataclass(frozen=True, slots=True)
class PreemptionDelay(Reason):
    """It may take from others, but has not waited for long enough."""

    code: ClassVar[str] = "preemption-delay"
    asked: int
    delay: int  # ms
    until: int

    @property
    def text(self) -> str:
        return (
            f"It waits for {format_gpus(self.asked)} GPUs: it may take them from others once it has waited "
            f"for {format_duration(self.delay)}, its preemption delay."
        )


@dataclass(frozen=True, slots=True)
class Outwaited(Reason):
    """Its priority is higher, but what it would take had waited for long before it ran."""

    code: ClassVar[str] = "outwaited"
    holder: str  # name of the workload
    holder_priority: int
    aged: int  # that priority with what waiting has added
    priority: int  # its own
    asked: int

    @property
    def text(self) -> str:
        return (
            f"It waits for {format_gpus(self.asked)} GPUs: {self.holder}, whose priority is "
            f"{self.holder_priority}, had waited for so long that it counts as {self.aged}; this has "
            f"{self.priority}."
        )


@dataclass(frozen=True, slots=True)
class ChurnBudget(Reason):
    """Work of a project was disturbed as often as it may be."""

    code: ClassVar[str] = "churn-budget"
    asked: int
    project: str  # whose work would be disturbed
    budget: int  # decisions against it in `window`
    window: int  # ms
    until: int  # when the first of them no longer counts

    @property
    def text(self) -> str:
        times = "once" if self.budget == 1 else f"{self.budget} times"
        return (
            f"It waits for {format_gpus(self.asked)} GPUs: project {self.project} was disturbed {times} "
            f"within {format_duration(self.window)}, which is all that is allowed."
        )


@dataclass(frozen=True, slots=True)
class Reserved(Reason):
    """What it could use is kept free for a larger gang that waits."""

    code: ClassVar[str] = "reserved"
    asked: int
    gang: str  # name of the workload for which it is kept
    gpus: int  # that the gang waits for
    until: int | None  # ms; when the gang is expected to start; None: nobody knows
    runtime: int | None  # ms that this says it runs at most; None: it says nothing

    @property
    def text(self) -> str:
        if self.until is None:
            cure = "when that starts is not known"
        elif self.runtime is None:
            cure = "it could run before that if it declared a maximal run time that ends in time"
        else:
            cure = (
                f"its declared run time of {format_duration(self.runtime)} would not end before that starts"
            )
        return (
            f"It waits for {format_gpus(self.asked)} GPUs: what is free is kept for {self.gang}, "
            f"which waits for {format_gpus(self.gpus)}; {cure}."
        )


@dataclass(frozen=True, slots=True)
class NotApart(Reason):
    """Its tasks must not share a node, a rack or the like, and there are too few that could take one more."""

    code: ClassVar[str] = "not-apart"
    key: str  # of the label
    tasks: int  # that still need a place
    domains: int  # values of the label among the nodes that it can use
    room: int  # of those, how many could take one of its tasks now
    ever: bool = True  # False: there are fewer domains than tasks

    @property
    def text(self) -> str:
        must = f"Each of its tasks needs another {self.key}, and {self.tasks} have none yet"
        if not self.ever:
            return f"{must}: its nodes have only {self.domains}."
        return f"{must}: of {self.domains} only {self.room} have room for one now."


@dataclass(frozen=True, slots=True)
class Unsuited(Reason):
    """All nodes of the pool that take work are ruled out by what it asks of labels, or by taints."""

    code: ClassVar[str] = "unsuited"
    pool: str
    nodes: int  # of the pool and of the right type that take work
    unlike: int  # of those, ruled out by its affinity
    tainted: int  # the others: with a taint that it does not tolerate
    taint: str  # one such taint, `key=value:Effect`; empty without any

    @property
    def text(self) -> str:
        parts = []
        if self.unlike:
            parts.append(f"{self.unlike} do not have the labels that it asks for")
        if self.tainted:
            parts.append(f"{self.tainted} have a taint that it does not tolerate ({self.taint})")
        return f"None of the {self.nodes} nodes of pool {self.pool} can take it: {', '.join(parts)}."
