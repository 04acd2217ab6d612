"""Why: the closed set of reasons, each with its numbers, made where the decision is made.

GPU amounts are milli-GPUs, instants ms since the epoch. Names are those for people, not ids.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pliant.model.quantity import format_bytes, format_gpus


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons. `code` is stable and machine-readable; `text` is one sentence for people."""

    code: ClassVar[str] = ""
    api_code: ClassVar[str] = ""  # the API's phaseReason, where it has one

    @property
    def text(self) -> str:
        raise NotImplementedError(type(self).__name__)

    @property
    def numbers(self) -> tuple[tuple[str, Any], ...]:
        """Field names and values, for JSON and history."""
        return tuple((field.name, getattr(self, field.name)) for field in fields(self))


def _amount(resource: str, value: int) -> str:
    if resource == "gpu":
        return f"{format_gpus(value)} GPUs"
    if resource == "cpu":
        return f"{value / 1000:g} cores"
    return f"{format_bytes(value)} of memory"


def _tasks(count: int) -> str:
    return "it" if count == 1 else f"its {count} tasks"


# ------------------------------------------------------- why something does not have what it asks for
@dataclass(frozen=True, slots=True)
class NoCapacity(Reason):
    """Its queue may have it, but it is not free and nobody has to give it up."""

    code: ClassVar[str] = "no-capacity"
    asked: int  # of all its tasks that must start together
    tasks: int
    free_best: int  # on the node where most is free
    free_all: int  # on all nodes that it could use
    nodes: int  # that it could use
    short_of: str = "gpu"  # the resource that is short: gpu, cpu or memory

    @property
    def text(self) -> str:
        what = _amount(self.short_of, self.asked)
        best, all_ = _amount(self.short_of, self.free_best), _amount(self.short_of, self.free_all)
        if self.nodes == 1:
            return f"It waits for {what}: the only node that it can use has {best} free."
        return (
            f"It waits for {what}: of the {self.nodes} nodes that it can use the best has {best} free, "
            f"all together {all_}."
        )


@dataclass(frozen=True, slots=True)
class NeverFits(Reason):
    """No node of this cluster could hold it even if it were empty."""

    code: ClassVar[str] = "never-fits"
    asked: int  # of one node
    largest: int  # what the largest node that it could use has
    nodes: int
    short_of: str = "gpu"
    tasks: int = 1  # over 1: every task fits, but not all of them together

    @property
    def text(self) -> str:
        asked, largest = _amount(self.short_of, self.asked), _amount(self.short_of, self.largest)
        if self.tasks > 1:
            return f"Its {self.tasks} tasks start together and ask for {asked}; its nodes have {largest}."
        return (
            f"No node can ever hold it: it asks for {asked}, and the largest that it can use has {largest}."
        )


@dataclass(frozen=True, slots=True)
class NoMatchingNode(Reason):
    """Its filters leave no node that takes work."""

    code: ClassVar[str] = "no-matching-node"
    pool: str
    node_types: str  # allowed values of run.ai/type, comma-separated; empty: any
    nodes: int  # in the pool, whatever their type or state

    @property
    def text(self) -> str:
        kind = f" of type {self.node_types}" if self.node_types else ""
        return f"Node pool {self.pool} has no node{kind} that takes work ({self.nodes} nodes in all)."


@dataclass(frozen=True, slots=True)
class NonPreemptibleOverQuota(Reason):
    code: ClassVar[str] = "non-preemptible-over-quota"
    api_code: ClassVar[str] = "NonPreemptibleOverQuota"
    level: str  # project or department
    queue: str
    pool: str
    resource: str
    quota: int
    used: int  # by non-preemptible workloads
    asked: int

    @property
    def text(self) -> str:
        return (
            f"Non-preemptible work runs only inside quota: {self.level} {self.queue} has "
            f"{_amount(self.resource, self.quota)}, and such work uses {_amount(self.resource, self.used)}; "
            f"this asks for {_amount(self.resource, self.asked)}."
        )


@dataclass(frozen=True, slots=True)
class OverLimit(Reason):
    code: ClassVar[str] = "over-limit"
    api_code: ClassVar[str] = "OverLimit"
    level: str
    queue: str
    pool: str
    resource: str
    limit: int
    used: int
    asked: int

    @property
    def text(self) -> str:
        return (
            f"{self.level.capitalize()} {self.queue} may use {_amount(self.resource, self.limit)} at most; it"
            f" uses {_amount(self.resource, self.used)}; this asks for {_amount(self.resource, self.asked)}."
        )


@dataclass(frozen=True, slots=True)
class NotEntitled(Reason):
    """Others hold what it asks for, and its project has all it is due."""

    code: ClassVar[str] = "not-entitled"
    project: str
    pool: str
    asked: int
    allocated: int
    fair_share: int
    quota: int  # -1: unlimited
    free_best: int
    free_all: int

    @property
    def text(self) -> str:
        return (
            f"It waits for {format_gpus(self.asked)} GPUs ({format_gpus(self.free_all)} are free, at most "
            f"{format_gpus(self.free_best)} on one node): project {self.project} has "
            f"{format_gpus(self.allocated)} of a fair share of {format_gpus(self.fair_share)} "
            "and cannot take that much from others."
        )


@dataclass(frozen=True, slots=True)
class WaitingForRelease(Reason):
    """It has its place; what still runs there is being stopped."""

    code: ClassVar[str] = "waiting-for-release"
    node: str
    gpus: int
    holders: str  # names, comma-separated

    @property
    def text(self) -> str:
        whom = f" by {self.holders}" if self.holders else ""
        return f"Its place on node {self.node} ({format_gpus(self.gpus)} GPUs) is being given back{whom}."


@dataclass(frozen=True, slots=True)
class WaitingForGang(Reason):
    """It has all its places, but its core starts together and some of it cannot start yet."""

    code: ClassVar[str] = "waiting-for-gang"
    task: str  # one that could start
    others: str  # names of those that cannot yet, comma-separated

    @property
    def text(self) -> str:
        return f"Its task {self.task} has a place and starts together with {self.others or 'the others'}."


@dataclass(frozen=True, slots=True)
class BackOff(Reason):
    code: ClassVar[str] = "back-off"
    task: str
    until: int
    failures: int

    @property
    def text(self) -> str:
        if not self.failures:
            return f"Its task {self.task} was lost; it is started again after a pause."
        times = "once" if self.failures == 1 else f"{self.failures} times"
        return f"Its task {self.task} failed {times}; it is tried again after a pause."


@dataclass(frozen=True, slots=True)
class MinRuntime(Reason):
    """It is entitled to what another holds, who may run a while yet."""

    code: ClassVar[str] = "min-runtime"
    protected: str  # name of the workload
    pool: str
    until: int
    asked: int

    @property
    def text(self) -> str:
        return (
            f"It waits for {format_gpus(self.asked)} GPUs: {self.protected} has not yet run for the minimum "
            f"that node pool {self.pool} guarantees."
        )


@dataclass(frozen=True, slots=True)
class Suspended(Reason):
    code: ClassVar[str] = "suspended"

    @property
    def text(self) -> str:
        return "It was suspended; resume it to let it run."


@dataclass(frozen=True, slots=True)
class UnknownProject(Reason):
    code: ClassVar[str] = "unknown-project"
    project: str  # id

    @property
    def text(self) -> str:
        return f"Its project {self.project} does not exist."


# ------------------------------------------------------- why something was decided
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
        return f"Gets {format_gpus(self.gpus)} GPUs on {self.node}; project {self.project} is {where}."


@dataclass(frozen=True, slots=True)
class Grown(Reason):
    """Idle GPUs that nobody waits for are lent to an elastic workload."""

    code: ClassVar[str] = "grown"
    gpus: int  # added
    node: str
    asked: int  # what it was submitted with; more than that is lent

    @property
    def text(self) -> str:
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
    due: int  # its quota or fair share
    from_project: str
    from_allocated: int  # by the queue that gives, before
    from_due: int

    @property
    def text(self) -> str:
        due = "quota" if self.rule == "quota" else "fair share"
        return (
            f"{format_gpus(self.gpus)} GPUs go to {self.beneficiary}: project {self.project} had "
            f"{format_gpus(self.allocated)} of its {due} of {format_gpus(self.due)}, "
            f"project {self.from_project} {format_gpus(self.from_allocated)} of {format_gpus(self.from_due)}."
        )


@dataclass(frozen=True, slots=True)
class Preempted(Reason):
    code: ClassVar[str] = "preempted"
    gpus: int
    beneficiary: str
    priority: int  # of the beneficiary
    own_priority: int

    @property
    def text(self) -> str:
        return (
            f"{format_gpus(self.gpus)} GPUs go to {self.beneficiary} of the same project, whose priority "
            f"{self.priority} is above {self.own_priority}."
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
class NodeLost(Reason):
    code: ClassVar[str] = "node-lost"
    node: str

    @property
    def text(self) -> str:
        return f"Its place on node {self.node} is gone: the node or its GPU does not take work any more."


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
