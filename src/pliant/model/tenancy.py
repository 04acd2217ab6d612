"""Who owns quota: departments and the projects in them."""

from dataclasses import dataclass, replace
from typing import TypeVar

from pliant.model.machine import DEFAULT_POOL

UNLIMITED = -1
"""In a Quota: no bound on this resource."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one project or department may have of one node pool."""

    gpu: int = 0  # milli-GPUs it may always have (`deserved`); UNLIMITED allowed
    gpu_limit: int = UNLIMITED  # hard cap on quota + over quota
    weight: int | None = None  # thousandths; share of the idle rest; None: its own quota is its weight
    rank: int = 100  # higher goes first, before weights matter
    cpu: int = UNLIMITED  # millicores
    cpu_limit: int = UNLIMITED
    memory: int = UNLIMITED  # bytes
    memory_limit: int = UNLIMITED
    reclaim_min_runtime: int | None = (
        None  # ms safe from other queues; None: as the level above, then the pool
    )
    preempt_min_runtime: int | None = None  # ms safe from higher priorities of its project; None: likewise


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Ends workloads that overstay, in ms; None: no limit."""

    interactive: int | None = None  # running time of a workspace
    interactive_idle: int | None = None  # non-preemptible workspace with idle GPUs
    interactive_preemptible_idle: int | None = None
    training: int | None = None
    training_idle: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """What departments and projects have in common: a name, a parent, quotas per node pool."""

    id: str
    name: str
    quotas: tuple[tuple[str, Quota], ...] = ()  # (pool name, quota), sorted by pool name
    created: int = 0  # ms since the epoch
    description: str = ""
    limits: TimeLimits = TimeLimits()
    origin: str = ""  # the object on a cluster that alone may change it, as kubectl names it; empty: none

    def quota(self, pool: str = DEFAULT_POOL) -> Quota:
        """Its quota in one pool; NO_QUOTA (nothing but over quota) if none was set."""
        for name, quota in self.quotas:
            if name == pool:
                return quota
        return NO_QUOTA


@dataclass(frozen=True, slots=True)
class Department(Queue):
    """Parent of projects and of departments. Its quota caps what they may be guaranteed together."""

    derived: bool = False  # quota unset: the department deserves what the cluster has
    parent: str = ""  # id of the department above it; empty: at the top


@dataclass(frozen=True, slots=True)
class Project(Queue):
    """Owner of quota and of workloads."""

    department: str = ""  # id
    derived: bool = (
        False  # quota unset: what the department's other projects leave, not below non-preemptible use
    )
    default_pools: tuple[str, ...] = ()
    interactive_node_types: tuple[str, ...] = ()  # allowed values of run.ai/type; empty: all
    training_node_types: tuple[str, ...] = ()
    namespace: str = ""


AnyQueue = TypeVar("AnyQueue", Department, Project)


def with_quota(queue: AnyQueue, pool: str, quota: Quota) -> AnyQueue:
    """The same queue with its quota in one pool replaced."""
    return replace(queue, quotas=tuple(sorted({**dict(queue.quotas), pool: quota}.items())))
