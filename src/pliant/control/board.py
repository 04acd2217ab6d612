"""Publishes the board: after each cycle, views of what it touched replace the old ones."""

import threading

from pliant.control.state import State
from pliant.control.view import (
    Board,
    GpuView,
    NodeView,
    PoolUse,
    QueueView,
    WorkloadView,
)
from pliant.model.quantity import Resources
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Desired
from pliant.sched.share import fair_shares


class Publisher:
    """Holds the newest board. Only the loop's thread publishes; any thread may read or wait."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.board = Board()
        self._changed = threading.Condition()
        self._log: list[tuple[int, frozenset[str]]] = []  # (version, touched workloads), newest last, bounded

    def publish(self, now: int, took: int) -> None:
        """Replace the views of all touched workloads and of what depends on them."""
        old, state = self.board, self._state
        touched = frozenset(state.touched)
        state.touched.clear()
        if not touched and not state.moved:
            self.board = Board(
                old.version,
                old.cluster,
                old.workloads,
                old.nodes,
                old.pools,
                old.departments,
                old.projects,
                old.queue,
                state.cycles,
                took,
                now,
            )
            return
        state.moved = False
        workloads = dict(old.workloads)
        for identity in sorted(touched):
            view = self._workload(identity)
            if view is None:
                workloads.pop(identity, None)
            else:
                workloads[identity] = view
        world = state.world
        verdicts = sorted(state.verdicts.values(), key=lambda verdict: verdict.position)
        pools = tuple(world.pools[name] for name in sorted(world.pools))
        shares = {pool.name: fair_shares(world, pool.name) for pool in pools}
        board = Board(
            version=old.version + 1,
            cluster=state.cluster,
            workloads=workloads,
            nodes=tuple(self._node(name) for name in sorted(world.nodes)),
            pools=pools,
            departments={key: self._queue(row, shares) for key, row in sorted(world.departments.items())},
            projects={key: self._queue(row, shares) for key, row in sorted(world.projects.items())},
            queue=tuple(verdict.workload for verdict in verdicts),
            cycles=state.cycles,
            cycle_us=took,
            at=now,
        )
        with self._changed:
            self.board = board
            self._log.append((board.version, touched))
            del self._log[:-1000]
            self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> tuple[Board, frozenset[str] | None]:
        """The board once its version is above `after` (or time is up), and the workloads changed in between.

        None instead of a set: too long ago to know, read everything.
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
        verdict = known.verdicts.get(identity)
        reason = verdict.reason if verdict is not None else known.reasons.get(identity)
        if workload.phase.final:
            reason = None  # how it ended is its phase's message; why it once started does not matter any more
        placed = next((task.carries or task.claims for task in tasks if task.carries or task.claims), None)
        node = known.world.nodes.get(placed.node) if placed is not None else None
        pool = known.world.pool_of(node.row) if node is not None else ""
        safe = None
        row = known.world.pools.get(pool)
        starts = [task.started for task in tasks if task.started is not None]
        if row is not None and row.min_runtime and starts and workload.preemptible:
            safe = max(starts) + row.min_runtime
        return WorkloadView(
            workload=workload,
            project=project,
            department=known.world.departments.get(project.department),
            tasks=tuple(tasks),
            reason=reason,
            reason_text=reason.text if reason is not None else workload.phase_message,
            position=verdict.position if verdict is not None else None,
            pool=pool,
            safe_until=safe,
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
                    tuple(sorted({key[0] for key in device.users()})),
                )
            )
        used = Resources(sum(gpu.carried for gpu in gpus), state.carried.cpu, state.carried.memory)
        return NodeView(state.row, world.pool_of(state.row), tuple(gpus), used)

    def _queue(self, row: Department | Project, shares: dict[str, dict[str, int]]) -> QueueView:
        world = self._state.world
        uses = []
        for pool in sorted(world.pools):
            allocated, fixed = world.usage(row.id, pool)
            uses.append(
                PoolUse(
                    pool=pool,
                    quota=world.deserved(row.id, pool).gpu,
                    allocated=allocated,
                    non_preemptible=fixed,
                    requested=world.requested(row.id, pool),
                    fair_share=shares[pool].get(row.id, 0),
                )
            )
        return QueueView(row, tuple(uses))


def alive(view: WorkloadView) -> bool:
    """True for what its owner has not deleted."""
    return view.workload.desired is not Desired.DELETED
