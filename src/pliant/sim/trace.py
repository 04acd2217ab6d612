"""The input of a simulation: machines, the owners of quota, and the jobs with their submission times."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pliant.model.machine import DEFAULT_POOL, NODE_TYPE, Gpu, Node, NodePool
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.topology import Topology
from pliant.model.workload import Workload
from pliant.sched.settings import Settings

START = 1_700_000_000_000
"""Start of traces without absolute times, in ms since the epoch."""

GIB = 2**30
CARD = 80 * GIB
"""Bytes of a GPU if the trace does not give its memory."""

Setup = Node | NodePool | Department | Project | Topology


@dataclass(frozen=True, slots=True)
class Job:
    """One submission of a trace."""

    workload: Workload  # as submitted, at `workload.created`
    run: int | None  # ms of its run with the requested GPUs; None: it does not end by itself
    ends: int | None = None  # ms; deleted at this time in any state; None: never deleted
    work: int | None = None  # milli-GPU-ms of an elastic job; None: `run` times the request


@dataclass(frozen=True, slots=True)
class Change:
    """A row that replaces the one before it from `at` on, or that is removed then."""

    at: int  # ms
    row: Setup
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace; jobs and changes are sorted by time."""

    name: str
    began: int  # ms
    setup: Sequence[Setup]
    jobs: Sequence[Job]
    changes: Sequence[Change] = ()
    settings: Settings = field(default_factory=Settings)
    until: int | None = None  # ms; the end of what is known
    warnings: Sequence[str] = ()  # about its files, e.g. lines not read; they name the file


def machine(
    name: str,
    gpus: int,
    cpu: int | None = None,
    memory: int | None = None,
    model: str = "",
    labels: Sequence[tuple[str, str]] = (),
) -> Node:
    """A virtual node; cores and memory that are not given exceed any request."""
    cards = tuple(Gpu(f"{name}/{index}", index, CARD, model) for index in range(gpus))
    named = ((NODE_TYPE, model),) if model else ()
    return Node(
        name,
        cards,
        2**40 if cpu is None else cpu,
        2**60 if memory is None else memory,
        tuple(sorted((*named, *labels))),
        engine="virtual",
        simulated=True,
    )


def owner(name: str, quota: Quota, department: str = "default", created: int = 0) -> Project:
    """A project whose id is its name."""
    return Project(name, name, ((DEFAULT_POOL, quota),), created, department=department)


def department(name: str = "default", quota: Quota | None = None) -> Department:
    """A department; without a quota it deserves what the cluster has."""
    if quota is None:
        return Department(name, name, derived=True)
    return Department(name, name, ((DEFAULT_POOL, quota),))
