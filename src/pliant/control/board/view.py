"""Read models: what readers see of the world, published whole after each cycle, never changed later."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, ValuesView
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import filterfalse
from operator import attrgetter

from pliant.control.board.access import Access
from pliant.model.asset import Asset
from pliant.model.booking import Booking
from pliant.model.ledger import PastUse
from pliant.model.machine import Cluster, Node, NodePool, Placement
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.quantity import Resources
from pliant.model.reason import Reason
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Desired, Phase, Task, TaskPhase, Workload
from pliant.sched.plan import Protection
from pliant.sched.settings import Settings
from pliant.sched.shares.promises import Promise
from pliant.sched.verdicts import Verdicts

CLUSTER = "cluster"
"""Subject of events about the whole cluster: changed settings, rows that contradict the rest."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload with its tasks and the reason for its state."""

    workload: Workload
    project: Project
    department: Department | None
    tasks: tuple[Task, ...]
    reason: Reason | None = None  # of the newest verdict, or of the last change while it runs
    pool: str = ""  # node pool it is in
    lacks: bool = False  # it lacks something that it requested: the reason is a verdict of the last cycle
    started: int | None = None  # ms; when the newest of its live attempts started
    progress: Progress | None = None  # what its job reported last

    @property
    def pods(self) -> list[Task]:
        """Its tasks that have a pod: those that were started, and those that may still start."""
        wanted = {group.name: group.wanted for group in self.workload.groups}
        return [
            task
            for task in self.tasks
            if task.attempt or (task.index < wanted[task.group] and not self.workload.phase.final)
        ]

    @property
    def occupied(self) -> tuple[Placement, ...]:
        """What its live attempts really occupy."""
        return tuple(task.carries for task in self.tasks if task.carries is not None)

    @property
    def gpu(self) -> int:
        """Milli-GPUs it really has; 0 while it is pending or over."""
        return sum(placement.gpu for placement in self.occupied)

    @property
    def asked(self) -> int:
        """Milli-GPUs it asked for; a memory request counts 0."""
        return sum(group.request.gpu * (group.at_once or group.wanted) for group in self.workload.groups)

    @property
    def missing(self) -> int:
        """Milli-GPUs that it asked for and has not been given."""
        given = sum(task.claims.gpu for task in self.tasks if task.claims is not None)
        return max(0, self.asked - given)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(placement.node for placement in self.occupied))

    @property
    def running(self) -> int:
        return sum(task.phase is TaskPhase.RUNNING for task in self.tasks)

    @property
    def competes(self) -> bool:
        """True if it waits to start: its owner wants it to run, no hold applies, and no task runs."""
        return not self.workload.held and self.workload.desired is Desired.RUNNING and not self.running

    @property
    def waiting(self) -> int:
        """Number of requested tasks that do not run yet."""
        if self.workload.phase.final or self.workload.phase is Phase.STOPPED:
            return 0
        counts = {group.name: group.wanted for group in self.workload.groups}
        return sum(
            task.index < counts[task.group] and task.phase in (TaskPhase.WAITING, TaskPhase.ORDERED)
            for task in self.tasks
        )


_SERIAL = attrgetter("workload.serial")


class Views(Mapping[str, WorkloadView]):
    """Workloads by id, in the order of submission. A waiting one gets the reason of its newest verdict when
    it is read.

    Numbers in verdicts change with every start and end of others: to update every view at once would make
    thousands of views for each one that is read.
    """

    def __init__(self, views: Iterable[WorkloadView], verdicts: Verdicts) -> None:
        self._views: dict[str, WorkloadView] = {}
        self._aside: dict[str, None] = {}  # ids of those that have verdicts and are not in the queue
        self._holding: dict[str, None] = {}  # ids of those that have GPUs
        self._names: dict[str, tuple[str, ...]] = {}  # ids by name, in the order of submission
        self._know(verdicts)
        for view in sorted(views, key=_SERIAL):
            self._put(view.workload.id, view)

    def _know(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._places: Places | None = None  # made when first read
        self._whole = False  # every view has the reason of its newest verdict

    def _put(self, identity: str, view: WorkloadView | None) -> None:
        self._aside.pop(identity, None)
        self._holding.pop(identity, None)
        if view is None:
            gone = self._views.pop(identity, None)
            if gone is not None:
                self._unname(identity, gone.workload.name)
            if gone is not None and gone.lacks:  # the newest verdicts may still have it
                self._aside[identity] = None
            return
        if identity not in self._views:
            name = view.workload.name
            self._names[name] = (*self._names.get(name, ()), identity)
        self._views[identity] = view
        if view.lacks and not view.competes:
            self._aside[identity] = None
        if view.gpu:
            self._holding[identity] = None

    def _unname(self, identity: str, name: str) -> None:
        left = tuple([it for it in self._names[name] if it != identity])
        if left:
            self._names[name] = left
        else:
            del self._names[name]

    def __getitem__(self, identity: str) -> WorkloadView:
        return self._newest(identity)

    def _newest(self, identity: str) -> WorkloadView:
        """Its view, with the reason of its newest verdict put in."""
        view = self._views[identity]
        if view.lacks:
            reason = self._verdicts.reason(identity)
            if reason is not None and reason is not view.reason:
                view = self._views[identity] = replace(view, reason=reason)
        return view

    def values(self) -> ValuesView[WorkloadView]:
        if not self._whole:
            verdicts, views = self._verdicts, self._views
            for begin, end, reason in verdicts.within(0, len(verdicts)):
                for identity in verdicts.workloads[begin:end]:
                    view = views.get(identity)
                    if view is not None and view.lacks and view.reason is not reason:
                        views[identity] = replace(view, reason=reason)
            self._whole = True
        return self._views.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, identity: object) -> bool:
        return identity in self._views

    def changed(self, views: Mapping[str, WorkloadView | None], verdicts: Verdicts) -> "Views":
        """A copy with these views in place of the old ones; None removes one."""
        last = next(reversed(self._views.values()), None)
        there = sorted((view for view in views.values() if view is not None), key=_SERIAL)
        first = next((view for view in there if view.workload.id not in self._views), None)
        if first is not None and last is not None and _SERIAL(first) < _SERIAL(last):
            kept = (view for identity, view in self._views.items() if identity not in views)
            made = Views((*kept, *there), verdicts)
            made._aside |= {it: None for it in (*self._aside, *views) if it not in made._views}
            return made
        now = copy(self)
        now._views = dict(self._views)
        now._aside, now._holding, now._names = dict(self._aside), dict(self._holding), dict(self._names)
        now._know(verdicts)
        for identity in [it for it in now._aside if it not in now._views and verdicts.position(it) is None]:
            del now._aside[identity]
        for identity in (identity for identity, view in views.items() if view is None):
            now._put(identity, None)
        for view in there:
            now._put(view.workload.id, view)
        return now

    def named(self, name: str) -> list[WorkloadView]:
        """Those of that name, in all projects, in the order of submission."""
        return [self._newest(identity) for identity in self._names.get(name, ())]

    @property
    def standing(self) -> ValuesView[WorkloadView]:
        """All of them; the reasons of waiting ones may be older than the newest verdicts."""
        return self._views.values()

    @property
    def holding(self) -> list[WorkloadView]:
        """Those that have GPUs."""
        return list(map(self._views.__getitem__, self._holding))

    @property
    def places(self) -> "Places":
        """The places of those that compete."""
        if self._places is None:
            self._places = Places(self._views, self._verdicts, self._aside)
        return self._places


class Places(Mapping[str, int]):
    """Places in the queue, from 1, by workload, in their order; each is computed when it is read."""

    def __init__(
        self, views: Mapping[str, WorkloadView], verdicts: Verdicts, aside: Mapping[str, None]
    ) -> None:
        self._views, self._verdicts, self._ids = views, verdicts, aside
        self._aside = sorted(place for place in map(verdicts.position, aside) if place is not None)

    def __getitem__(self, identity: str) -> int:
        view = self._views.get(identity)
        place = self._verdicts.position(identity) if view is not None and view.lacks else None
        if place is None or identity in self._ids:
            raise KeyError(identity)
        return place - bisect_left(self._aside, place)

    def __iter__(self) -> Iterator[str]:
        known = filter(self._views.__contains__, self._verdicts.workloads)
        return filterfalse(self._ids.__contains__, known)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class GpuView:
    uuid: str
    claimed: int  # milli-GPUs
    carried: int
    releasing: int
    promised: int
    workloads: tuple[str, ...]  # ids, of claims and carries


@dataclass(frozen=True, slots=True)
class NodeView:
    node: Node
    pool: str
    gpus: tuple[GpuView, ...]
    used: Resources  # carried


@dataclass(frozen=True, slots=True)
class PoolUse:
    """What one project or department has of one node pool."""

    pool: str
    quota: int  # milli-GPUs, derived quotas resolved
    allocated: Resources
    non_preemptible: Resources
    requested: Resources
    fair_share: int  # milli-GPUs
    past: PastUse | None = None  # its use of the pool; None: none ever
    past_whole: PastUse | None = None  # the pool's capacity over the same time
    capacity: int = 0  # milli-GPUs of the pool's ready nodes


@dataclass(frozen=True, slots=True)
class QueueView:
    queue: Department | Project
    uses: tuple[PoolUse, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """Everything readers see. `version` grows by one with each publication that changed something."""

    version: int = 0
    cluster: Cluster | None = None
    workloads: Views = field(default_factory=lambda: Views((), Verdicts()))
    nodes: tuple[NodeView, ...] = ()
    pools: tuple[NodePool, ...] = ()
    departments: Mapping[str, QueueView] = field(default_factory=dict)
    projects: Mapping[str, QueueView] = field(default_factory=dict)
    topologies: tuple[Topology, ...] = ()
    bookings: tuple[Booking, ...] = ()  # by start
    access: Access = field(default_factory=Access)
    priorities: tuple[PriorityClass, ...] = ()  # by name
    assets: tuple[Asset, ...] = ()  # the oldest first
    settings: Settings = field(default_factory=Settings)
    faults: tuple[str, ...] = ()  # rows that contradict the rest, a sentence each
    promises: tuple[Promise, ...] = ()  # those that the machines cannot keep
    protections: Mapping[tuple[str, str], Protection] = field(default_factory=dict)  # by project and pool
    cycles: int = 0
    cycle_us: int = 0  # duration of the last cycle's decision, microseconds
    at: int = 0  # ms

    @property
    def cluster_id(self) -> str:
        """Its UUID; empty until there is one."""
        return self.cluster.uuid if self.cluster is not None else ""

    @property
    def queue(self) -> Mapping[str, int]:
        """Places of pending workloads, by id, in the order of the last cycle."""
        return self.workloads.places

    @property
    def pending(self) -> list[WorkloadView]:
        """The pending workloads in the order of the last cycle."""
        return [self.workloads[identity] for identity in self.queue]

    def protection(self, view: WorkloadView) -> Protection | None:
        """What protects it from eviction for some time after its start; None: nothing."""
        if not view.workload.preemptible or view.started is None:
            return None
        return self.protections.get((view.project.id, view.pool))

    def named(self, project: str, name: str) -> WorkloadView | None:
        """The workload of that name in that project (id)."""
        mine = (view for view in self.workloads.named(name) if view.workload.project == project)
        return next(mine, None)
