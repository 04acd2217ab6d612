"""Why something was decided."""

from dataclasses import dataclass
from typing import ClassVar

from pliant.model.quantity import format_gpus
from pliant.model.reason.base import Reason, amount


@dataclass(frozen=True, slots=True)
class Placed(Reason):
    code: ClassVar[str] = "placed"
    node: str  # names, comma-separated
    gpus: int
    project: str
    allocated: int  # by the project, this included
    quota: int  # -1: unlimited

    @property
    def text(self) -> str:
        over = self.allocated - self.quota
        if self.quota < 0 or over <= 0:
            where = "inside its quota"
        else:
            where = f"over its quota of {format_gpus(self.quota)} by {format_gpus(over)}, on idle GPUs"
        what = f"{format_gpus(self.gpus)} GPUs" if self.gpus else "a place"
        return f"Gets {what} on {self.node}; project {self.project} is {where}."


@dataclass(frozen=True, slots=True)
class Grown(Reason):
    """Idle GPUs that nobody waits for are lent to an elastic workload."""

    code: ClassVar[str] = "grown"
    gpus: int  # added
    node: str
    asked: int  # what it was submitted with; more than that is lent

    @property
    def text(self) -> str:
        if not self.gpus:
            return f"Gets one more place on {self.node} that was free."
        return f"Grows by {format_gpus(self.gpus)} GPUs on {self.node} that were free."


@dataclass(frozen=True, slots=True)
class Shrunk(Reason):
    """What it held beyond its request is needed."""

    code: ClassVar[str] = "shrunk"
    gpus: int  # given back
    beneficiary: str
    project: str  # of the beneficiary

    @property
    def text(self) -> str:
        return (
            f"Gives back {format_gpus(self.gpus)} GPUs that it held beyond its request, "
            f"for {self.beneficiary} of project {self.project}."
        )


@dataclass(frozen=True, slots=True)
class Reclaimed(Reason):
    code: ClassVar[str] = "reclaimed"
    gpus: int  # taken
    beneficiary: str
    project: str  # of the beneficiary
    rule: str  # quota: it was below its quota; fair-share: it was below its fair share
    allocated: int  # by the beneficiary's queue, before
    due: int  # its quota or fair share; -1: without bound
    from_project: str
    from_allocated: int  # by the queue that gives, before
    from_due: int
    resource: str = "gpu"  # of which the last five numbers are: gpu, cpu or memory

    @property
    def text(self) -> str:
        due = "quota" if self.rule == "quota" else "fair share"
        what = f"{format_gpus(self.gpus)} GPUs go to" if self.resource == "gpu" else "It makes room for"
        return (
            f"{what} {self.beneficiary}: project {self.project} had {self._said(self.allocated)} of its "
            f"{due} of {self._said(self.due)}, project {self.from_project} "
            f"{self._said(self.from_allocated)} of {self._said(self.from_due)}."
        )

    def _said(self, value: int) -> str:
        """An amount of the resource; GPUs without their name, which the sentence has."""
        if value < 0:
            return "any amount"
        return format_gpus(value) if self.resource == "gpu" else amount(self.resource, value)


@dataclass(frozen=True, slots=True)
class Preempted(Reason):
    code: ClassVar[str] = "preempted"
    gpus: int
    beneficiary: str
    priority: int  # of the beneficiary
    own_priority: int

    @property
    def text(self) -> str:
        what = f"{format_gpus(self.gpus)} GPUs go to" if self.gpus else "It makes room for"
        return (
            f"{what} {self.beneficiary} of the same project, whose priority {self.priority} is above "
            f"{self.own_priority}."
        )


@dataclass(frozen=True, slots=True)
class Moved(Reason):
    code: ClassVar[str] = "moved"
    beneficiary: str
    source: str  # node names, comma-separated
    target: str
    gpus: int = 0  # given back on the way, of what it held beyond its request

    @property
    def text(self) -> str:
        rest = (
            f"gives back {format_gpus(self.gpus)} GPUs beyond its request"
            if self.gpus
            else "keeps all it has"
        )
        return f"Moves from {self.source} to {self.target} so that {self.beneficiary} fits; it {rest}."


@dataclass(frozen=True, slots=True)
class Hastened(Reason):
    """Its place was still being given back; another became free before."""

    code: ClassVar[str] = "hastened"
    source: str  # node names, comma-separated
    target: str

    @property
    def text(self) -> str:
        return f"Starts on {self.target} at once: its place on {self.source} was still being given back."


@dataclass(frozen=True, slots=True)
class NodeLost(Reason):
    code: ClassVar[str] = "node-lost"
    node: str

    @property
    def text(self) -> str:
        return f"Its place on node {self.node} is gone: the node or its GPU does not take work any more."


@dataclass(frozen=True, slots=True)
class Tainted(Reason):
    """Its node does not take it any more."""

    code: ClassVar[str] = "tainted"
    node: str
    taint: str  # `key=value:Effect`; empty: the node's labels changed before it was started

    @property
    def text(self) -> str:
        if not self.taint:
            return f"Its place on node {self.node} is gone: the node no longer has the labels it asks for."
        return f"It leaves node {self.node}, whose taint {self.taint} it does not tolerate."


@dataclass(frozen=True, slots=True)
class StaleGang(Reason):
    code: ClassVar[str] = "stale-gang"
    since: int
    tasks: int  # that still had a place
    needed: int

    @property
    def text(self) -> str:
        return (
            f"Only {self.tasks} of the {self.needed} tasks it needs were left for too long; it starts over."
        )


@dataclass(frozen=True, slots=True)
class Incomplete(Reason):
    """Places are no use to a workload of which nothing lives and whose core is not complete."""

    code: ClassVar[str] = "incomplete"
    tasks: int  # that had a place
    needed: int

    @property
    def text(self) -> str:
        return f"Only {self.tasks} of the {self.needed} tasks it needs had a place; it gets all together."


@dataclass(frozen=True, slots=True)
class ByOwner(Reason):
    code: ClassVar[str] = "by-owner"
    desired: str  # Stopped or Deleted

    @property
    def text(self) -> str:
        return "Its owner deleted it." if self.desired == "Deleted" else "Its owner suspended it."


@dataclass(frozen=True, slots=True)
class Ended(Reason):
    code: ClassVar[str] = "ended"
    phase: str

    @property
    def text(self) -> str:
        return f"The workload is {self.phase}; what is left of it is stopped."


@dataclass(frozen=True, slots=True)
class Restarted(Reason):
    """The attempt ends so that the next one starts with what the task has been given since."""

    code: ClassVar[str] = "restarted"
    node: str
    gpus: int

    @property
    def text(self) -> str:
        return f"Restarts on {self.node} with {format_gpus(self.gpus)} GPUs."
