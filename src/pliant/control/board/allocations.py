"""Allocation documents: what a workload has now and what it will lose, for its tasks and the API."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pliant.control.ports import Engine
from pliant.control.state.state import State
from pliant.model.machine import Placement
from pliant.model.workload import AttemptId, Task, TaskPhase, Workload

log = logging.getLogger(__name__)

Members = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Told:
    """The newest document of a workload; never changed."""

    version: int
    document: dict[str, Any]
    attempts: tuple[AttemptId, ...]  # those that have it


@dataclass(frozen=True, slots=True)
class Drain:
    """A device that a live attempt was told to leave; kept until the device is seen empty."""

    version: int  # of the first document that said so
    deadline: int  # ms since the epoch


class Allocations:
    """Belongs to the loop's thread, except `document`. A document is replaced when its content changes."""

    def __init__(self, state: State, engine: Callable[[str], Engine]) -> None:
        self._state = state
        self._engine = engine  # by node
        self._told: dict[str, Told] = {}  # by workload; entries are replaced whole
        self._drains: dict[tuple[AttemptId, str], Drain] = {}  # by attempt and device

    def document(self, workload: str) -> dict[str, Any] | None:
        """The newest document, for any thread; None while no task of the workload has or awaits a place."""
        told = self._told.get(workload)
        return told.document if told is not None else None

    def drained(self, attempt: AttemptId, version: int, gpus: Iterable[str]) -> list[str]:
        """Those of `gpus` that a document up to `version` told this attempt to leave."""
        found = ((gpu, self._drains.get((attempt, gpu))) for gpu in gpus)
        return [gpu for gpu, drain in found if drain is not None and drain.version <= version]

    def write(self, now: int) -> None:
        """Write the documents of all workloads that this cycle touched, before their orders are sent."""
        for key in self._state.vacated:
            self._drains.pop(key, None)  # if the same cycle gives it back, it is to be used again
        self._state.vacated.clear()
        for identity in sorted(self._state.touched):
            workload = self._state.world.workloads.get(identity)
            tasks = self._state.world.tasks_of(identity) if workload is not None else []
            self._note_drains(identity, workload, tasks, now)
            members = list(self._members(workload, tasks)) if workload is not None else []
            if workload is None or workload.phase.final or not members:
                self._told.pop(identity, None)
                continue
            self._tell(workload, members, [task for task in tasks if task.phase.live])

    def _tell(self, workload: Workload, members: Members, live: list[Task]) -> None:
        before = self._told.get(workload.id)
        present = tuple(AttemptId(task.workload, task.name, task.attempt) for task in live)
        if before is not None and before.document["tasks"] == members:
            if before.attempts == present:
                return
            document = before.document
        else:
            document = {"version": self._version, "epoch": self._state.epoch, "tasks": members}
        reached = list(before.attempts) if before is not None and before.document is document else []
        for task, attempt in zip(live, present, strict=True):
            if task.carries is None or attempt in reached:
                continue
            try:  # the engine writes a document that cannot change, at the start
                if _follows(workload, members):
                    self._engine(task.carries.node).allocation(attempt, document)
            except (OSError, ValueError) as error:  # the job continues with the document it has
                log.warning("the allocation document of %s cannot be written: %s", attempt, error)
            else:
                reached.append(attempt)
        self._told[workload.id] = Told(document["version"], document, tuple(reached))

    @property
    def _version(self) -> int:
        """Rises with every cycle, and from one server to the next."""
        return self._state.epoch * 10**9 + self._state.turns

    def _note_drains(self, identity: str, workload: Workload | None, tasks: list[Task], now: int) -> None:
        """Note which devices live attempts have to leave, since which version and until when."""
        going: dict[tuple[AttemptId, str], Drain] = {}
        for task in tasks:
            if workload is None or task.carries is None or task.phase is TaskPhase.STOPPING:
                continue
            attempt = AttemptId(task.workload, task.name, task.attempt)
            stays = set(task.claims.uuids) if task.claims is not None else set(task.carries.uuids)
            for gpu in task.carries.uuids:
                known = self._drains.get((attempt, gpu))
                if known is not None or gpu not in stays:
                    fresh = Drain(self._version, now + workload.launch.grace)
                    going[attempt, gpu] = known or fresh
        for key in [key for key in self._drains if key[0].workload == identity]:
            del self._drains[key]
        self._drains |= going

    def _members(self, workload: Workload, tasks: list[Task]) -> Iterator[dict[str, Any]]:
        """What its tasks have, lose and will get, in their order; an entry for each state of a task."""
        for task in tasks:
            carries, claims = task.carries, task.claims
            attempt = AttemptId(task.workload, task.name, task.attempt)
            if carries is None:
                if claims is not None:
                    yield _entry(task, claims, claims.uuids, "pending")
                continue
            if task.phase is TaskPhase.STOPPING or claims is None:
                row = self._state.attempts.get(attempt)
                stopped = row.stop_ordered if row is not None else None
                deadline = stopped + workload.launch.grace if stopped is not None else None
                yield _entry(task, carries, carries.uuids, "draining", deadline)
                continue
            leaves = {gpu: drain for gpu in carries.uuids if (drain := self._drains.get((attempt, gpu)))}
            yield _entry(task, carries, [gpu for gpu in carries.uuids if gpu not in leaves], "active")
            for deadline in sorted({drain.deadline for drain in leaves.values()}):
                gone = [gpu for gpu, drain in leaves.items() if drain.deadline == deadline]
                yield _entry(task, carries, gone, "draining", deadline)
            comes = [gpu for gpu in claims.uuids if gpu not in carries.uuids]
            if comes:
                yield _entry(task, claims, comes, "pending")


def _follows(workload: Workload, members: Members) -> bool:
    """True if the GPUs of a live task may change, or other tasks may come and go."""
    return len(members) > 1 or any(group.elastic or group.max > 1 for group in workload.groups)


def _entry(
    task: Task, place: Placement, gpus: Iterable[str], state: str, deadline: int | None = None
) -> dict[str, Any]:
    return {
        "id": task.name,
        "attempt": task.attempt,
        "node": place.node,
        "gpus": list(gpus),
        "state": state,
        "deadline": deadline,
    }
