"""The reasons of workloads that do not have what they ask for."""

from dataclasses import dataclass
from typing import ClassVar

from pliant.model.quantity import counted, listed, plain, spell_duration, spell_gpus
from pliant.model.reason.base import Named, Reason, amount, are, bare, together, victim
from pliant.model.reason.held import left


@dataclass(frozen=True, slots=True)
class NoCapacity(Reason):
    """Its queue may have it, but it is not free and no workload has to give it up."""

    code: ClassVar[str] = "no-capacity"
    asked: int  # of all its tasks that must start together
    tasks: int
    free_best: int  # on the node where most is free
    free_all: int  # on all nodes that it could use
    nodes: int  # that it could use
    short_of: str = "gpu"  # the resource that is short: gpu, cpu or memory
    only: str = ""  # name of the node, if it could use no other

    def text(self, now: int) -> str:
        needs = f"Needs {amount(self.short_of, self.asked)}"
        if self.only:
            has = amount(self.short_of, self.free_best)
            return f"{needs}; the only eligible node, {self.only}, has {has} free."
        where = "on one node" if self.tasks == 1 else f"for {self.tasks} tasks"
        return (
            f"{needs} {where}; {are(self.short_of, self.free_all, 'free')} on {self.nodes} eligible nodes, "
            f"at most {bare(self.short_of, self.free_best)} on a single node."
        )


@dataclass(frozen=True, slots=True)
class BesideOthers(Reason):
    """A part of a GPU is free only beside parts of other accounts, whose limits nothing enforces."""

    code: ClassVar[str] = "beside-others"
    asked: int
    gpus: int  # that have this much free beside other parts
    whose: str = "user"  # or project: whose jobs share a GPU

    def text(self, now: int) -> str:
        has = "1 GPU has" if self.gpus == 1 else f"{self.gpus} GPUs have"
        return (
            f"Needs {spell_gpus(self.asked)}; {has} that much free, beside jobs of other {self.whose}s. "
            f"Nothing enforces parts of a GPU between users, so only jobs of one {self.whose} share a GPU."
        )


@dataclass(frozen=True, slots=True)
class NeverFits(Reason):
    """No node of this cluster could hold it even if it were empty."""

    code: ClassVar[str] = "never-fits"
    asked: int  # of one node
    largest: int  # what the largest node that it could use has
    nodes: int
    short_of: str = "gpu"  # gpu, cpu, memory or GPU memory
    tasks: int = 1  # over 1: every task fits, but not all of them together

    def text(self, now: int) -> str:
        asked, largest = amount(self.short_of, self.asked), bare(self.short_of, self.largest)
        if self.tasks > 1:
            return f"Never fits: its {self.tasks} tasks request {asked}, the eligible nodes have {largest}."
        return f"Never fits: it requests {asked}, the largest eligible node has {largest}."


@dataclass(frozen=True, slots=True)
class NoMatchingNode(Reason):
    """Its filters leave no node that takes work."""

    code: ClassVar[str] = "no-matching-node"
    pool: str
    node_types: str  # allowed values of run.ai/type, comma-separated; empty: any
    nodes: int  # in the pool, whatever their type or state

    def text(self, now: int) -> str:
        kind = f" of type {self.node_types}" if self.node_types else ""
        return (
            f"Node pool {self.pool} has no schedulable node{kind} ({counted(self.nodes, 'node')} in total)."
        )


@dataclass(frozen=True, slots=True)
class NoDomain(Reason):
    """All of it must be in one domain of a topology, and none has room for that."""

    code: ClassVar[str] = "no-domain"
    level: str  # label key of the required level
    tasks: int  # that must be there together
    room: int  # how many of them fit into the best domain
    best: str  # its name: the value of the label; empty without any domain
    domains: int  # that it could use
    ever: bool = True  # False: no domain could hold it even if it were empty

    def text(self, now: int) -> str:
        needs = f"Needs one topology domain ({self.level}) for {counted(self.tasks, 'task')}"
        if not self.domains:
            return f"{needs}; no eligible node has this label."
        if not self.ever:
            return f"{needs}; none of {self.domains} is large enough, even if it were empty."
        return f"{needs}; the best of {self.domains}, {self.best}, has room for {self.room}."


@dataclass(frozen=True, slots=True)
class NonPreemptibleOverQuota(Reason):
    code: ClassVar[str] = "non-preemptible-over-quota"
    api_code: ClassVar[str] = "NonPreemptibleOverQuota"
    level: str  # project or department
    queue: Named
    pool: str
    resource: str
    quota: int
    used: int  # by non-preemptible workloads
    asked: int

    def text(self, now: int) -> str:
        return (
            f"Non-preemptible jobs run only within quota: {self.queue} has a quota of "
            f"{amount(self.resource, self.quota)}, its non-preemptible jobs use "
            f"{bare(self.resource, self.used)}, this one requests {bare(self.resource, self.asked)}."
        )


@dataclass(frozen=True, slots=True)
class OverLimit(Reason):
    code: ClassVar[str] = "over-limit"
    api_code: ClassVar[str] = "OverLimit"
    level: str
    queue: Named
    pool: str
    resource: str
    limit: int
    used: int
    asked: int

    def text(self, now: int) -> str:
        said = str(self.queue)
        return (
            f"{said[0].upper()}{said[1:]} has a limit of {amount(self.resource, self.limit)} and uses "
            f"{bare(self.resource, self.used)}; this job requests {bare(self.resource, self.asked)}."
        )


@dataclass(frozen=True, slots=True)
class NothingIdle(Reason):
    """Background work takes only what is neither claimed nor occupied."""

    code: ClassVar[str] = "nothing-idle"
    asked: int  # milli-GPUs
    idle_best: int  # on one node
    idle_all: int

    def text(self, now: int) -> str:
        return (
            f"Background jobs run only on idle GPUs: this one needs {spell_gpus(self.asked)}; "
            f"{are('gpu', self.idle_all, 'idle')}, at most {plain(self.idle_best)} on one node."
        )


@dataclass(frozen=True, slots=True)
class NotEntitled(Reason):
    """Others hold what it asks for, and with it its project would exceed its fair share."""

    code: ClassVar[str] = "not-entitled"
    project: Named
    pool: str
    asked: int
    allocated: int
    fair_share: int
    quota: int  # -1: unlimited
    free_best: int
    free_all: int
    past_use: int | None = None  # thousandths of the pool that it used recently; None: this does not count

    def text(self, now: int) -> str:
        past = f" after using {plain(self.past_use * 100)}% of the pool," if self.past_use is not None else ""
        who = str(self.project)
        return (
            f"Needs {spell_gpus(self.asked)}; {are('gpu', self.free_all, 'free')}, at most "
            f"{plain(self.free_best)} on a single node. {who[0].upper()}{who[1:]} has "
            f"{plain(self.allocated)} of its fair share of {spell_gpus(self.fair_share)},{past} so it cannot "
            f"reclaim {plain(self.asked)} more."
        )


SHOWN = 5
"""Projects that a sentence names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Overpromised(Reason):
    """Its project may have it, but quotas promise more than there is, and others use theirs."""

    code: ClassVar[str] = "overpromised"
    project: Named
    pool: str
    asked: int
    allocated: int
    quota: int
    promised: int  # all quotas of the pool together
    has: int  # the GPUs of its ready nodes
    held: int  # by others within their quotas
    holders: tuple[Named, ...]  # the largest first

    def text(self, now: int) -> str:
        who, many = str(self.project), len(self.holders) > 1
        unnamed = (Named("project", ""),) * (len(self.holders) - SHOWN)
        return (
            f"Needs {spell_gpus(self.asked)}. {who[0].upper()}{who[1:]} uses {plain(self.allocated)} of its "
            f"quota of {spell_gpus(self.quota)}, but the quotas of pool {self.pool} promise "
            f"{spell_gpus(self.promised)} and its ready nodes have {plain(self.has)}; "
            f"{together((*self.holders[:SHOWN], *unnamed))} {'use' if many else 'uses'} "
            f"{spell_gpus(self.held)} within quota."
        )


@dataclass(frozen=True, slots=True)
class WaitingForRelease(Reason):
    """It has its place; what still runs there is being stopped."""

    code: ClassVar[str] = "waiting-for-release"
    node: str
    gpus: int
    holders: tuple[Named, ...]
    grace: int = 0  # ms that the slowest of them may take to stop; 0: not known

    def text(self, now: int) -> str:
        grace = f" (grace period, up to {spell_duration(self.grace)})" if self.grace else ""
        what = f"{spell_gpus(self.gpus)} on {self.node}" if self.gpus else self.node
        if not self.holders:
            return f"Waiting for the release of {what}{grace}."
        return f"Waiting for {together(self.holders)} to release {what}{grace}."


@dataclass(frozen=True, slots=True)
class WaitingForGang(Reason):
    """It has all its places, but its core starts together and some of it cannot start yet."""

    code: ClassVar[str] = "waiting-for-gang"
    task: str  # one that could start
    others: tuple[str, ...]  # names of those that cannot yet

    def text(self, now: int) -> str:
        others = listed(self.others) if self.others else "the other tasks"
        return f"Gang: {self.task} is placed, waiting for {others}."


@dataclass(frozen=True, slots=True)
class BackOff(Reason):
    code: ClassVar[str] = "back-off"
    task: str
    until: int
    failures: int
    short_runs: int = 0  # successes in a row, each soon after its start

    def text(self, now: int) -> str:
        number = self.failures or self.short_runs
        times = "once" if number == 1 else counted(number, "time")
        how = "failed" if self.failures else "ended successfully within 10 minutes"
        how = f"{how} {times}" if number else "was lost"
        when = f"in {spell_duration(self.until - now)}" if self.until > now else "now"
        return f"{self.task} {how}; next attempt {when} (backoff)."


@dataclass(frozen=True, slots=True)
class MinRuntime(Reason):
    """It is entitled to what another holds, which is still within its minimum runtime."""

    code: ClassVar[str] = "min-runtime"
    protected: Named
    pool: str
    until: int
    asked: int
    level: str = "pool"  # whose setting it is: pool, project or department
    owner: Named | None = None  # that project or department; None: the pool

    def text(self, now: int) -> str:
        whose = f"pool {self.pool}" if self.owner is None else str(self.owner)
        return (
            f"Needs {spell_gpus(self.asked)}; {victim(self.protected)} is within the minimum runtime of "
            f"{whose}{left(self.until, now)}."
        )


@dataclass(frozen=True, slots=True)
class Suspended(Reason):
    code: ClassVar[str] = "suspended"

    def text(self, now: int) -> str:
        return "Suspended. Resume it to let it run."


@dataclass(frozen=True, slots=True)
class Cancelled(Reason):
    code: ClassVar[str] = "cancelled"

    def text(self, now: int) -> str:
        return "Cancelled. It cannot be resumed; submit it again to run it."


@dataclass(frozen=True, slots=True)
class SetAside(Reason):
    """Its own numbers contradict each other: it is not scheduled."""

    code: ClassVar[str] = "set-aside"
    flaw: str  # no-groups | same-names | negative-tasks | task-counts | negative-request | portion
    group: str = ""  # of tasks
    resource: str = ""  # devices, gpu_memory, cpu or memory; of a negative request
    value: int = 0  # what is wrong: a count, an amount, thousandths of a GPU
    most: int = 0  # tasks, where their counts contradict each other

    @property
    def clause(self) -> str:
        """The flaw as a clause."""
        match self.flaw:
            case "no-groups":
                return "it has no task group"
            case "same-names":
                return "two of its task groups have the same name"
            case "negative-tasks":
                return f"the task count of {self.group} is negative ({self.value})"
            case "task-counts":
                return f"task counts of {self.group} must satisfy min ≤ max; got {self.value} and {self.most}"
            case "negative-request":
                what = {"devices": "GPUs", "gpu_memory": "GPU memory", "cpu": "CPU"}.get(
                    self.resource, "memory"
                )
                return f"{self.group} requests a negative amount of {what} ({self.value})"
            case "portion":
                return (
                    f"{self.group} requests {plain(self.value)} of each GPU; a portion is above 0, at most 1"
                )
        raise ValueError(f"no words for the flaw {self.flaw!r}")

    def text(self, now: int) -> str:
        return f"Not scheduled: {self.clause}. Correct it and submit the job again."


@dataclass(frozen=True, slots=True)
class UnknownProject(Reason):
    code: ClassVar[str] = "unknown-project"
    project: str  # id

    def text(self, now: int) -> str:
        return f"Project {self.project} does not exist."
