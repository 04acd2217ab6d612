"""Sends orders to engines once the rows that they follow from are on disk, and again after a restart."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pliant.control.ports import Engine
from pliant.control.state.draft import Draft
from pliant.control.state.holds import hold as begin_hold
from pliant.control.state.imports import Answer
from pliant.control.state.state import State
from pliant.model.order import Order, Resize, Start, Stop
from pliant.model.reason import EnvironmentLost
from pliant.model.workload import Attempt, AttemptId, TaskPhase, Workload
from pliant.sched.actions.intents import unconfirmed

log = logging.getLogger(__name__)


class Orders:
    """Belongs to the loop's thread."""

    def __init__(self, state: State, engines: Mapping[str, Engine]) -> None:
        self._state = state
        self._engines = engines

    def engine(self, node: str) -> Engine:
        row = self._state.node(node)
        return self._engines.get(row.engine if row else "") or next(iter(self._engines.values()))

    def kind(self, order: Order) -> str:
        """start, stop or resize; a stop of a task that keeps claims is the first half of a resize."""
        if isinstance(order, Start):
            return "start"
        task = self._state.world.tasks.get((order.attempt.workload, order.attempt.task))
        kept = task is not None and task.claims is not None
        return "resize" if kept or isinstance(order, Resize) else "stop"

    def send(self, order: Order) -> None:
        match order:
            case Start():
                self.engine(order.placement.node).start(order)
            case Stop():
                self.engine(order.node).stop(order)
            case Resize():
                self.engine(order.placement.node).resize(order)

    def repeat(self) -> None:
        """After a restart: send again what was recorded and never confirmed. Engines accept repetitions."""
        for attempt in sorted(self._state.attempts.values(), key=lambda row: row.id):
            order = self._outstanding(attempt)
            if order is not None:
                self.send(order)

    def _outstanding(self, attempt: Attempt) -> Order | None:
        world = self._state.world
        workload = world.workloads.get(attempt.id.workload)
        task = world.tasks.get((attempt.id.workload, attempt.id.task))
        if workload is None or task is None or task.attempt != attempt.id.number:
            return None
        epoch, node = self._state.epoch, attempt.placement.node
        if attempt.stop_ordered is not None:
            return Stop(attempt.id, node, workload.launch.grace, attempt.stop_cause, epoch)
        if task.phase is TaskPhase.ORDERED:
            return Start(attempt.id, attempt.placement, workload, attempt.cause, epoch)
        target = unconfirmed(workload, task)
        if target is not None:
            return Resize(attempt.id, target, workload.launch.grace, attempt.cause, epoch)
        return None

    def hold(self, draft: Draft) -> None:
        """Hold workloads whose sealed environment the engine lacks; release those that it has again."""
        engine = next(iter(self._engines.values()))
        for workload in self._state.world.workloads.values():
            lost = workload.sealed and not engine.sealed(workload.id)
            if lost != (workload.held == EnvironmentLost.code):
                held = EnvironmentLost.code if lost else begin_hold(workload, draft.now)
                draft.put(replace(workload, held=held))
            for task in self._state.world.tasks_of(workload.id) if lost else ():
                if not task.phase.live:  # else a lost task would start again where it was
                    draft.put(replace(task, claims=None))

    def recorded(self, attempt: AttemptId) -> None:
        """Tell the engines that the end of that attempt is on disk."""
        for engine in self._engines.values():
            engine.recorded(attempt)

    def answer(self, answers: Iterable[Answer]) -> None:
        """Tell engines what became of the work that they found."""
        for each in answers:
            self._engines[each.engine].answer(each.workload, each.why, taken=each.taken)

    def forget(self, workload: Workload) -> None:
        """Have the engines delete what they keep of a workload without live tasks."""
        for engine in self._engines.values():
            try:
                engine.forget(workload)
            except (OSError, ValueError) as error:  # the next server tries again
                log.warning("what %s left on disk stays there for now: %s", workload.name, error)
