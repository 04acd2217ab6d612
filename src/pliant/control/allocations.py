"""Allocation documents: what a workload of several tasks has now and will lose, told to each of them."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from pliant.control.ports import Engine
from pliant.control.state import State
from pliant.model.workload import AttemptId, Task, TaskPhase, Workload

log = logging.getLogger(__name__)

Members = list[dict[str, Any]]


class Allocations:
    """Belongs to the loop's thread. Writes a document whenever what it says has changed."""

    def __init__(self, state: State, engine: Callable[[str], Engine]) -> None:
        self._state = state
        self._engine = engine  # by node
        self._told: dict[AttemptId, Members] = {}  # what the living attempts have been told

    def write(self) -> None:
        """Tell the tasks of all workloads that this cycle touched; before their orders leave."""
        for identity in sorted(self._state.touched):
            workload = self._state.world.workloads.get(identity)
            tasks = self._state.world.tasks_of(identity) if workload is not None else []
            live = [task for task in tasks if task.phase.live]
            for attempt in [told for told in self._told if told.workload == identity]:
                if not any(task.name == attempt.task and task.attempt == attempt.number for task in live):
                    del self._told[attempt]
            if workload is not None and len(tasks) > 1 and not workload.phase.final:
                self._tell(workload, tasks, live)

    def _tell(self, workload: Workload, tasks: list[Task], live: list[Task]) -> None:
        members = list(self._members(workload, tasks))
        document = {"version": self._version, "epoch": self._state.epoch, "tasks": members}
        for task in live:
            attempt = AttemptId(task.workload, task.name, task.attempt)
            if task.carries is None or self._told.get(attempt) == members:
                continue
            try:
                self._engine(task.carries.node).allocation(attempt, document)
            except (OSError, ValueError) as error:  # the job goes on with the document it has
                log.warning("the allocation document of %s cannot be written: %s", attempt, error)
            else:
                self._told[attempt] = members

    @property
    def _version(self) -> int:
        """Rises with every change, under every later server too."""
        return self._state.epoch * 10**9 + self._state.cycles

    def _members(self, workload: Workload, tasks: list[Task]) -> Iterator[dict[str, Any]]:
        """Its tasks that have devices or are promised some, leader first."""
        for task in tasks:
            place = task.carries or task.claims
            if place is None:
                continue
            ends = task.phase is TaskPhase.STOPPING or task.claims is None
            state = "pending" if not task.phase.live else "draining" if ends else "active"
            attempt = self._state.attempts.get(AttemptId(task.workload, task.name, task.attempt))
            stopped = attempt.stop_ordered if attempt is not None else None
            yield {
                "id": task.name,
                "attempt": task.attempt,
                "node": place.node,
                "gpus": list(place.uuids),
                "state": state,
                "deadline": stopped + workload.launch.grace if ends and stopped is not None else None,
            }
