"""Publishes the board: after each cycle, replaces the views of what the cycle touched."""

import threading
from collections.abc import Mapping
from dataclasses import replace

from pliant.control.board.view import (
    Board,
    GpuView,
    NodeView,
    PoolUse,
    QueueView,
    WorkloadView,
)
from pliant.control.state.accounting import WHOLE
from pliant.control.state.promises import broken
from pliant.control.state.state import State
from pliant.model.quantity import Resources
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Desired
from pliant.sched.placement.eligibility import pending
from pliant.sched.plan import QueueStanding
from pliant.sched.shares.entitlement import quota_of
from pliant.sched.world.queue_tree import NOTHING, department_key
from pliant.sched.world.state import World


class Publisher:
    """Holds the newest board. Only the loop's thread publishes; any thread may read or wait."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.board = Board()
        self._nodes: dict[str, NodeView] = {}  # those of the board
        self._changed = threading.Condition()
        self._log: list[tuple[int, frozenset[str]]] = []  # (version, touched workloads), newest last, bounded

    def publish(self, now: int, took: int) -> None:
        """Replace the views of all that this cycle changed, and the totals over everything."""
        old, state, world = self.board, self._state, self._state.world
        if not (state.touched or state.told or state.moved):
            self.board = replace(old, access=state.access.seen, cycles=state.cycles, cycle_us=took, at=now)
            return
        world.update_sets()
        touched = {identity: self._workload(identity) for identity in sorted(state.touched)}
        for name in state.shaken:
            if name in world.nodes:
                self._nodes[name] = self._node(name)
            else:
                self._nodes.pop(name, None)
        pools = tuple(world.pools[name] for name in sorted(world.pools))
        standing = {(it.queue, it.pool): it for it in state.standings}
        lacking = _lacking(world, pending(world, first=True))
        board = Board(
            version=old.version + 1,
            cluster=state.cluster,
            workloads=old.workloads.changed(touched, state.verdicts),
            nodes=tuple(self._nodes[name] for name in sorted(self._nodes)),
            pools=pools,
            departments={
                key: self._queue(row, standing, lacking) for key, row in sorted(world.departments.items())
            },
            projects={
                key: self._queue(row, standing, lacking) for key, row in sorted(world.projects.items())
            },
            topologies=tuple(world.topologies[name] for name in sorted(world.topologies)),
            bookings=tuple(sorted(world.bookings.values(), key=lambda row: (row.start, row.id))),
            access=state.access.seen,
            priorities=tuple(state.priorities[name] for name in sorted(state.priorities)),
            assets=tuple(sorted(state.assets.values(), key=lambda row: (row.created, row.id))),
            settings=state.settings,
            faults=tuple(state.faults),
            promises=broken(world) if state.reshaped else old.promises,
            protections={(it.project, it.pool): it for it in state.protections},
            cycles=state.cycles,
            cycle_us=took,
            at=now,
        )
        with self._changed:
            self.board = board
            self._log.append((board.version, frozenset(state.touched)))
            del self._log[:-1000]
            self._changed.notify_all()
        state.published()

    def wait(self, after: int, timeout: float) -> tuple[Board, frozenset[str] | None]:
        """The board once its version is above `after` (or time is up), and the workloads changed in between.

        A change of only the place in the queue or the numbers of a reason does not count: every start and end
        of other workloads causes it. None instead of a set: `after` is too old to know, so read everything.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.board.version > after, timeout)
            board = self.board
            if board.version <= after:
                return board, frozenset()
            if not self._log or self._log[0][0] > after + 1:
                return board, None
            return board, frozenset().union(*(ids for version, ids in self._log if version > after))

    def _workload(self, identity: str) -> WorkloadView | None:
        known = self._state
        workload = known.world.workloads.get(identity)
        if workload is None:
            return None
        project = known.world.projects[workload.project]
        tasks = known.world.tasks_of(identity)
        verdict = known.verdicts.reason(identity)
        reason = verdict or known.reasons.get(identity)
        if workload.phase.final:
            reason = None  # the phase's message says how it ended; why it started no longer matters
        placed = next((task.carries or task.claims for task in tasks if task.carries or task.claims), None)
        node = known.world.nodes.get(placed.node) if placed is not None else None
        pool = known.world.pool_of(node.row) if node is not None else ""
        return WorkloadView(
            workload=workload,
            project=project,
            department=known.world.departments.get(project.department),
            tasks=tuple(tasks),
            reason=reason,
            pool=pool,
            lacks=verdict is not None and not workload.phase.final,
            started=max((task.started for task in tasks if task.started is not None), default=None),
            progress=known.progress.get(identity),
        )

    def _node(self, name: str) -> NodeView:
        world = self._state.world
        state = world.nodes[name]
        gpus = []
        for gpu in state.row.gpus:
            device = state.devices[gpu.uuid]
            gpus.append(
                GpuView(
                    gpu.uuid,
                    device.claimed,
                    device.carried,
                    device.releasing,
                    device.promised,
                    tuple(sorted({key[0] for key in device.tasks})),
                )
            )
        used = Resources(sum(gpu.carried for gpu in gpus), state.carried_cpu, state.carried_memory)
        return NodeView(state.row, world.pool_of(state.row), tuple(gpus), used)

    def _queue(
        self,
        row: Department | Project,
        standing: Mapping[tuple[str, str], QueueStanding],
        lacking: Mapping[tuple[str, str], Resources],
    ) -> QueueView:
        world = self._state.world
        key = row.id if isinstance(row, Project) else department_key(row.id)
        uses = []
        for pool in sorted(world.pools):
            due = standing.get((key, pool))
            if due is None:  # newer than the newest plan
                due = QueueStanding(key, pool, quota_of(world, row.id, pool).gpu, 0)
            allocated, fixed = world.use(key, pool)
            uses.append(
                PoolUse(
                    pool=pool,
                    quota=due.quota if row.derived else row.quota(pool).gpu,  # may be newer than the plan
                    allocated=allocated,
                    non_preemptible=fixed,
                    requested=allocated.plus(lacking.get((key, pool), NOTHING)),
                    fair_share=due.fair_share,
                    past=world.past_uses.get((row.id, pool)) if isinstance(row, Project) else None,
                    past_whole=world.past_uses.get((WHOLE, pool)),
                    capacity=world.capacity.get(pool, NOTHING).gpu,
                )
            )
        return QueueView(row, tuple(uses))


def _lacking(
    world: World, asked: Mapping[str, Mapping[str, Resources]]
) -> Mapping[tuple[str, str], Resources]:
    """What is requested and not claimed, by key of the queue tree and pool; `asked`: by pool and project."""
    found: dict[tuple[str, str], Resources] = {}
    for pool, projects in asked.items():
        for project, lacks in projects.items():
            for key in world.path(project):
                found[key, pool] = found.get((key, pool), NOTHING).plus(lacks)
    return found


def alive(view: WorkloadView) -> bool:
    """True if its owner has not deleted it."""
    return view.workload.desired is not Desired.DELETED
