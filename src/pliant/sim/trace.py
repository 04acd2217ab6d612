"""What a simulation is given: machines, who owns what of them, and what is submitted when."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pliant.model.machine import DEFAULT_POOL, NODE_TYPE, Gpu, Node, NodePool
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.topology import Topology
from pliant.model.workload import Workload
from pliant.sched.settings import Settings

START = 1_700_000_000_000
"""Ms since the epoch at which traces begin that tell no time of day."""

GIB = 2**30
CARD = 80 * GIB
"""Bytes of a GPU of which the trace does not say more."""

Setup = Node | NodePool | Department | Project | Topology


@dataclass(frozen=True, slots=True)
class Job:
    """One submission of a trace."""

    workload: Workload  # as it is submitted, at `workload.created`
    run: int | None  # ms that it runs from its first start, with what it asks for; None: it does not end
    ends: int | None = None  # ms; it is deleted then, whatever it does; None: it ends by itself
    work: int | None = None  # milli-GPU-ms of an elastic job, where known; None: `run` with what it asks for


@dataclass(frozen=True, slots=True)
class Change:
    """A row that is another from then on, or gone."""

    at: int  # ms
    row: Setup
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """In the order of time."""

    name: str
    began: int  # ms
    setup: Sequence[Setup]
    jobs: Sequence[Job]
    changes: Sequence[Change] = ()
    settings: Settings = field(default_factory=Settings)
    until: int | None = None  # ms; nothing is known of what came later
    warnings: Sequence[str] = ()  # what of its files was not read, with file and line


def machine(
    name: str,
    gpus: int,
    cpu: int | None = None,
    memory: int | None = None,
    model: str = "",
    labels: Sequence[tuple[str, str]] = (),
) -> Node:
    """A virtual node; cores and memory that are not said are more than anything asks for."""
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
    """A project that is known by its name."""
    return Project(name, name, ((DEFAULT_POOL, quota),), created, department=department)


def department(name: str = "default", quota: Quota | None = None) -> Department:
    """Without a quota it owns what there is."""
    if quota is None:
        return Department(name, name, derived=True)
    return Department(name, name, ((DEFAULT_POOL, quota),))
