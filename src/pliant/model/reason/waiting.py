"""Why something does not have what it asks for."""

from dataclasses import dataclass
from typing import ClassVar

from pliant.model.quantity import format_gpus
from pliant.model.reason.base import Reason, amount


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
        what = amount(self.short_of, self.asked)
        best, all_ = amount(self.short_of, self.free_best), amount(self.short_of, self.free_all)
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
        asked, largest = amount(self.short_of, self.asked), amount(self.short_of, self.largest)
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
class NoDomain(Reason):
    """It must lie in one domain of a topology, and none has room for all of it."""

    code: ClassVar[str] = "no-domain"
    level: str  # label key of the required level
    tasks: int  # that must lie together
    room: int  # for so many of them the best domain has room
    best: str  # its name: the value of the label; empty without any domain
    domains: int  # that it could use
    ever: bool = True  # False: no domain could hold it even if it were empty

    @property
    def text(self) -> str:
        what = "It" if self.tasks == 1 else f"Its {self.tasks} tasks"
        must = f"{what} must lie in one domain of {self.level}"
        if not self.domains:
            return f"{must}, but no node that it can use has this label in its topology."
        if not self.ever:
            return f"{must}: none of the {self.domains} could hold that even if it were empty."
        return f"{must}: of {self.domains} the best, {self.best}, has room for {self.room}."


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
            f"{amount(self.resource, self.quota)}, and such work uses {amount(self.resource, self.used)}; "
            f"this asks for {amount(self.resource, self.asked)}."
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
            f"{self.level.capitalize()} {self.queue} may use {amount(self.resource, self.limit)} at most; it"
            f" uses {amount(self.resource, self.used)}; this asks for {amount(self.resource, self.asked)}."
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
    past_use: int | None = None  # thousandths of the pool that it used of late; None: that does not count

    @property
    def text(self) -> str:
        past = "" if self.past_use is None else f", with {self.past_use / 10:g} % of the pool used of late,"
        return (
            f"It waits for {format_gpus(self.asked)} GPUs ({format_gpus(self.free_all)} are free, at most "
            f"{format_gpus(self.free_best)} on one node): project {self.project} has "
            f"{format_gpus(self.allocated)} of a fair share of {format_gpus(self.fair_share)}"
            f"{past} and cannot take that much from others."
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
class SetAside(Reason):
    """Its own numbers contradict each other: nothing is decided about it."""

    code: ClassVar[str] = "set-aside"
    flaw: str

    @property
    def text(self) -> str:
        return f"It is set aside, for {self.flaw}; submit it anew with other numbers."


@dataclass(frozen=True, slots=True)
class UnknownProject(Reason):
    code: ClassVar[str] = "unknown-project"
    project: str  # id

    @property
    def text(self) -> str:
        return f"Its project {self.project} does not exist."
