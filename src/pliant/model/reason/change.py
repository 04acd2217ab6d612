"""The reasons of decisions."""

from dataclasses import dataclass
from typing import ClassVar

from pliant.model.quantity import plain, spell_duration, spell_gpus
from pliant.model.reason.base import Named, Reason, amount, bare


@dataclass(frozen=True, slots=True)
class Placed(Reason):
    code: ClassVar[str] = "placed"
    node: str  # names, comma-separated
    gpus: int
    project: Named
    allocated: int  # by the project, this included
    quota: int  # -1: unlimited

    def text(self, now: int) -> str:
        what = f"Allocated {spell_gpus(self.gpus)}" if self.gpus else "Placed"
        over = self.allocated - self.quota
        if self.quota < 0 or over <= 0:
            return f"{what} on {self.node}, within the quota of {self.project}."
        above = f"{spell_gpus(over)} over its quota of {plain(self.quota)}"
        return f"{what} on {self.node}; {self.project} is {above}."


@dataclass(frozen=True, slots=True)
class Grown(Reason):
    """An elastic workload gets idle GPUs for which no workload waits."""

    code: ClassVar[str] = "grown"
    gpus: int  # added
    node: str
    asked: int  # what it was submitted with; more than that is lent

    def text(self, now: int) -> str:
        if not self.gpus:
            return f"Grew by one task on {self.node}, which had room."
        return f"Grew by {spell_gpus(self.gpus)} on {self.node}, which had idle GPUs."


@dataclass(frozen=True, slots=True)
class Shrunk(Reason):
    """What it held beyond its request is needed."""

    code: ClassVar[str] = "shrunk"
    gpus: int  # given back
    beneficiary: Named
    project: Named  # of the beneficiary

    def text(self, now: int) -> str:
        what = spell_gpus(self.gpus) if self.gpus else "one task"
        return f"Shrank by {what} above its request, for {self.beneficiary.full}."


@dataclass(frozen=True, slots=True)
class MadeWay(Reason):
    """A booking has begun in its place."""

    code: ClassVar[str] = "made-way"
    gpus: int  # that it no longer has
    node: str
    target: str  # where it moves, comma-separated; empty: nowhere
    project: Named | None  # whose booking it is; None: maintenance
    until: int  # ms; its end

    def text(self, now: int) -> str:
        why = (
            f"{self.node} is under maintenance"
            if self.project is None
            else f"its GPUs on {self.node} are booked for {self.project}"
        )
        left = f" for {spell_duration(max(0, self.until - now))}"
        if self.target:
            lost = f" with {spell_gpus(self.gpus)} fewer" if self.gpus > 0 else ""
            return f"Moved from {self.node} to {self.target}{lost}: {why}{left}."
        what = f"Released {spell_gpus(self.gpus)}" if self.gpus else "Made room"
        return f"{what}: {why}{left}."


@dataclass(frozen=True, slots=True)
class GaveWay(Reason):
    """Other work needs the room of background work."""

    code: ClassVar[str] = "gave-way"
    gpus: int  # that it no longer has
    beneficiary: Named
    project: Named  # of the beneficiary

    def text(self, now: int) -> str:
        what = f"Released {spell_gpus(self.gpus)}" if self.gpus else "Made room"
        return f"{what} for {self.beneficiary.full}: background jobs give way to every other job."


@dataclass(frozen=True, slots=True)
class Reclaimed(Reason):
    code: ClassVar[str] = "reclaimed"
    gpus: int  # taken
    beneficiary: Named
    project: Named  # the queue that takes: its project, or a department above it
    rule: str  # quota: it was below its quota; fair-share: it was below its fair share
    allocated: int  # by the queue that takes, before
    due: int  # its quota or fair share; -1: without bound
    from_project: Named  # the queue that gives, beside it
    from_allocated: int  # before
    from_due: int
    resource: str = "gpu"  # of `allocated`, `due` and those of from_project: gpu, cpu or memory

    def text(self, now: int) -> str:
        what = f"Reclaimed {spell_gpus(self.gpus)}" if self.gpus else "Evicted"
        return (
            f"{what} for {self.beneficiary}: {self.project} had {self._of(self.allocated, self.due)}, "
            f"{self.from_project} had {self._of(self.from_allocated, self.from_due)}."
        )

    def _of(self, allocated: int, due: int) -> str:
        of = "quota" if self.rule == "quota" else "fair share"
        if due < 0:
            return f"{amount(self.resource, allocated)} of an unlimited {of}"
        return f"{bare(self.resource, allocated)} of its {of} of {amount(self.resource, due)}"


@dataclass(frozen=True, slots=True)
class Preempted(Reason):
    code: ClassVar[str] = "preempted"
    gpus: int
    beneficiary: Named
    priority: int  # of the beneficiary
    own_priority: int

    def text(self, now: int) -> str:
        what = f"Released {spell_gpus(self.gpus)} to" if self.gpus else "Made room for"
        return (
            f"{what} {self.beneficiary} of the same project: priority {self.priority} is higher than "
            f"{self.own_priority}."
        )


@dataclass(frozen=True, slots=True)
class Moved(Reason):
    code: ClassVar[str] = "moved"
    beneficiary: Named
    source: str  # node names, comma-separated
    target: str
    gpus: int = 0  # given back on the way, of what it held beyond its request

    def text(self, now: int) -> str:
        rest = f"; it gave up {spell_gpus(self.gpus)} above its request" if self.gpus else ""
        return f"Moved from {self.source} to {self.target} to make room for {self.beneficiary}{rest}."


@dataclass(frozen=True, slots=True)
class Hastened(Reason):
    """Its place was still being released; another one became free earlier."""

    code: ClassVar[str] = "hastened"
    source: str  # node names, comma-separated
    target: str

    def text(self, now: int) -> str:
        return f"Starts on {self.target}: its place on {self.source} is still being released."


@dataclass(frozen=True, slots=True)
class NodeLost(Reason):
    code: ClassVar[str] = "node-lost"
    node: str

    def text(self, now: int) -> str:
        return f"Evicted from node {self.node}: the node or its GPU is no longer schedulable."


@dataclass(frozen=True, slots=True)
class Tainted(Reason):
    """Its node does not take it any more."""

    code: ClassVar[str] = "tainted"
    node: str
    taint: str  # `key=value:Effect`; empty: the node's labels changed before it was started

    def text(self, now: int) -> str:
        if not self.taint:
            return f"Evicted from node {self.node}: the node no longer matches its node affinity."
        return f"Evicted from node {self.node}: it does not tolerate the taint {self.taint}."


@dataclass(frozen=True, slots=True)
class StaleGang(Reason):
    code: ClassVar[str] = "stale-gang"
    since: int
    tasks: int  # that still had a place
    needed: int

    def text(self, now: int) -> str:
        return (
            f"Evicted: only {self.tasks} of {self.needed} required tasks remained at the end of the grace "
            f"period; the gang starts again together."
        )


@dataclass(frozen=True, slots=True)
class Incomplete(Reason):
    """A workload without a live task whose core is not complete has no use for its places."""

    code: ClassVar[str] = "incomplete"
    tasks: int  # that had a place
    needed: int

    def text(self, now: int) -> str:
        return (
            f"Released: only {self.tasks} of {self.needed} required tasks had a place; the gang is placed "
            f"together."
        )


@dataclass(frozen=True, slots=True)
class NotResized(Reason):
    """It runs without the cores and memory that its owner has requested for it since."""

    code: ClassVar[str] = "not-resized"
    task: str
    node: str
    cpu: int  # of its own from now on
    memory: int
    later: bool  # it gets them as soon as its node can give them
    said: str  # by the node or the cluster

    def text(self, now: int) -> str:
        what = f"{amount('cpu', self.cpu)} and {amount('memory', self.memory)}"
        if self.later:
            return f"{self.task} waits for {what} on {self.node}: {self.said}"
        return (
            f"{self.task} does not get {what} on {self.node}: {self.said} "
            "Reduce the request, or suspend and resume it: another node may have room."
        )


@dataclass(frozen=True, slots=True)
class ByOwner(Reason):
    code: ClassVar[str] = "by-owner"
    desired: str  # Stopped, Deleted or Cancelled

    def text(self, now: int) -> str:
        return {"Deleted": "Deleted by its owner.", "Cancelled": "Cancelled by request."}.get(
            self.desired, "Suspended by its owner."
        )


@dataclass(frozen=True, slots=True)
class Ended(Reason):
    code: ClassVar[str] = "ended"
    phase: str

    def text(self, now: int) -> str:
        return f"Stopped: the workload is {self.phase.lower()}."


@dataclass(frozen=True, slots=True)
class Restarted(Reason):
    """The attempt ends so that the next one starts with what the task has been given since."""

    code: ClassVar[str] = "restarted"
    node: str
    gpus: int

    def text(self, now: int) -> str:
        return f"Restarts on {self.node} with {spell_gpus(self.gpus)}."
