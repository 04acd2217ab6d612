"""Read models: what readers see of the world, published whole after each cycle, never changed later."""

from collections.abc import Iterator, Mapping, Set, ValuesView
from dataclasses import dataclass, field, replace

from pliant.control.board.access import Access
from pliant.model.asset import Asset
from pliant.model.ledger import PastUse
from pliant.model.machine import Cluster, Node, NodePool, Placement
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.quantity import Resources
from pliant.model.reason import Reason
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Desired, Phase, Task, TaskPhase, Workload
from pliant.sched.plan import Protection, Verdict
from pliant.sched.settings import Settings
from pliant.sched.shares.promises import Promise

CLUSTER = "cluster"
"""Subject of events that concern all: changed settings, rows that contradict the rest."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload with its tasks and why it stands where it stands."""

    workload: Workload
    project: Project
    department: Department | None
    tasks: tuple[Task, ...]
    reason: Reason | None = None  # of the newest verdict, or of the last change while it runs
    pool: str = ""  # node pool it is in
    lacks: bool = False  # it has not all that it asked for: the reason is a verdict of the last cycle
    started: int | None = None  # ms; when the newest of its live attempts started
    progress: Progress | None = None  # what its job reported last

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
        """True for what waits: nothing of it runs, its owner wants it to, and no hold keeps it from that."""
        return not self.workload.held and self.workload.desired is Desired.RUNNING and not self.running

    @property
    def waiting(self) -> int:
        """Tasks that were asked for and do not run."""
        if self.workload.phase.final or self.workload.phase is Phase.STOPPED:
            return 0
        counts = {group.name: group.wanted for group in self.workload.groups}
        return sum(
            task.index < counts[task.group] and task.phase in (TaskPhase.WAITING, TaskPhase.ORDERED)
            for task in self.tasks
        )


class Views(Mapping[str, WorkloadView]):
    """Workloads by id, in the order of submission.

    Of one that waits the reason is that of the newest verdict, put in when it is read. Numbers
    in verdicts change with every start and end of others: thousands of views would be made for each that is
    read.
    """

    def __init__(
        self,
        views: dict[str, WorkloadView],
        verdicts: Mapping[str, Verdict],
        resting: Set[str] | None = None,
        holding: Set[str] | None = None,
    ) -> None:
        """`verdicts`, in the order of the queue, is never changed later."""
        self._views = views
        self._verdicts = verdicts
        self._resting = _resting(views) if resting is None else resting
        self._holding = _holding(views) if holding is None else holding
        self._queue: tuple[str, ...] | None = None
        self._places: Mapping[str, int] | None = None
        self._whole = False  # every view has the reason of its newest verdict

    def __getitem__(self, identity: str) -> WorkloadView:
        """Its view, with the reason of its newest verdict put in."""
        view = self._views[identity]
        if view.lacks:
            verdict = self._verdicts.get(identity)
            if verdict is not None and verdict.reason is not view.reason:
                view = self._views[identity] = replace(view, reason=verdict.reason)
        return view

    def values(self) -> ValuesView[WorkloadView]:
        if not self._whole:
            for identity in self._verdicts:
                if identity in self._views:
                    self[identity]
            self._whole = True
        return self._views.values()

    def standing(self) -> ValuesView[WorkloadView]:
        """The same for those who ask for no reasons: each has the one with which it was read last."""
        return self._views.values()

    def holding(self) -> Iterator[WorkloadView]:
        """Those that have GPUs, in no order, with whatever reason."""
        return map(self._views.__getitem__, self._holding)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, identity: object) -> bool:
        return identity in self._views

    def changed(self, views: Mapping[str, WorkloadView | None], verdicts: Mapping[str, Verdict]) -> "Views":
        """With these in place of the old ones; None: it has gone."""
        now = dict(self._views)
        for identity, view in views.items():
            if view is None:
                now.pop(identity, None)
            else:
                now[identity] = view
        there = {identity: view for identity, view in views.items() if view is not None}
        resting = (self._resting - views.keys()) | _resting(there)
        holding = (self._holding - views.keys()) | _holding(there)
        made = Views(now, verdicts, resting, holding)
        told = verdicts.keys() & views.keys()
        same = told <= self._views.keys() and told <= now.keys() and told & resting == told & self._resting
        if verdicts is self._verdicts and same:
            made._queue, made._places = self._queue, self._places  # nobody came to it, nobody left it
        return made

    @property
    def queue(self) -> tuple[str, ...]:
        """Ids of those that compete and of which nothing runs, in the order of the last cycle."""
        if self._queue is None:
            views, resting = self._views, self._resting
            self._queue = tuple(it for it in self._verdicts if it in views and it not in resting)
        return self._queue

    @property
    def places(self) -> Mapping[str, int]:
        """Their places in it, from 1."""
        if self._places is None:
            self._places = {identity: at for at, identity in enumerate(self.queue, 1)}
        return self._places


def _resting(views: Mapping[str, WorkloadView]) -> set[str]:
    """Ids of those that do not compete."""
    return {identity for identity, view in views.items() if not view.competes}


def _holding(views: Mapping[str, WorkloadView]) -> set[str]:
    """Ids of those that have GPUs."""
    return {identity for identity, view in views.items() if view.gpu}


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
    quota: int  # milli-GPUs it deserves now, derived quotas resolved
    allocated: Resources
    non_preemptible: Resources
    requested: Resources
    fair_share: int  # milli-GPUs
    past: PastUse | None = None  # what it has used of the pool; None: never anything
    past_whole: PastUse | None = None  # what the pool had meanwhile
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
    workloads: Views = field(default_factory=lambda: Views({}, {}))
    nodes: tuple[NodeView, ...] = ()
    pools: tuple[NodePool, ...] = ()
    departments: Mapping[str, QueueView] = field(default_factory=dict)
    projects: Mapping[str, QueueView] = field(default_factory=dict)
    topologies: tuple[Topology, ...] = ()
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
    def queue(self) -> tuple[str, ...]:
        """Ids of pending workloads in the order of the last cycle."""
        return self.workloads.queue

    @property
    def pending(self) -> list[WorkloadView]:
        """The pending workloads in the order of the last cycle."""
        return [self.workloads[identity] for identity in self.queue]

    def protection(self, view: WorkloadView) -> Protection | None:
        """What keeps others from evicting it for some time after its start; None: nothing."""
        if not view.workload.preemptible or view.started is None:
            return None
        return self.protections.get((view.project.id, view.pool))

    def named(self, project: str, name: str) -> WorkloadView | None:
        """The workload of that name in that project (id)."""
        return next(
            (
                view
                for view in self.workloads.values()
                if view.workload.project == project and view.workload.name == name
            ),
            None,
        )
