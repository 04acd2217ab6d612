"""Takes in workloads that engines found: people created them in the engine and may change them there."""

import re
from collections.abc import Collection, Container
from dataclasses import dataclass, replace
from functools import partial
from operator import eq

from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.event import EventKind
from pliant.model.hold import ASSEMBLING
from pliant.model.origin import Origin
from pliant.model.priority import PREEMPTIBLE_BELOW, PRIORITIES, PriorityClass
from pliant.model.workload import Desired, Phase, Task, TaskGroup, TaskPhase, Workload


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of work that was found."""

    engine: str
    workload: str  # id
    why: str  # why it is not taken in, or waits; '': it is taken in
    taken: bool  # True if it is a workload now


class Imports:
    """Belongs to the loop's thread."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._refused: dict[str, Workload] = {}  # in the order in which they were found
        self._again: dict[str, Workload] = {}  # found again before their old row was gone
        self._answers: list[Answer] = []
        self._codes: dict[str, str] = {}  # workload -> code of the last reported reason

    def answers(self) -> list[Answer]:
        """The answers since the last call."""
        told, self._answers = self._answers, []
        return told

    def found(self, row: Workload, draft: Draft) -> None:
        known = self._state.world.workloads.get(row.id)
        if known is None:
            self._take(row, draft)
        elif known.desired is not Desired.DELETED:
            self._follow(known, row, draft)
        else:
            self._again[row.id] = row

    def gone(self, identity: str, draft: Draft) -> None:
        self._refused.pop(identity, None)
        self._again.pop(identity, None)
        known = self._state.world.workloads.get(identity)
        if known is not None and known.origin is not None and known.desired is not Desired.DELETED:
            self._state.put(draft, replace(known, desired=Desired.DELETED))
            draft.event(identity, EventKind.DELETED, f"{known.origin} is gone.", who="engine")

    def listed(self, engine: str, there: frozenset[str], draft: Draft) -> None:
        for row in list(self._state.world.workloads.values()):
            origin = row.origin
            if origin is not None and origin.makes and origin.engine == engine and row.id not in there:
                self.gone(row.id, draft)

    def explain(self, now: int) -> None:
        """Tell engines why their workloads wait, as far as the project may know, if the code has changed."""
        state = self._state
        for identity in sorted(state.touched):
            row, verdict = state.world.workloads.get(identity), state.verdicts.of(identity)
            if row is None or row.origin is None or not row.origin.makes or verdict is None:
                self._codes.pop(identity, None)
            elif self._codes.get(identity) != verdict.reason.code:
                self._codes[identity] = verdict.reason.code
                why = verdict.reason.seen_by(partial(eq, row.project)).text(now)
                self._answers.append(Answer(row.origin.engine, identity, why, taken=True))

    def look(self, draft: Draft) -> None:
        """Try refused work again when projects have changed, hold incomplete work, close completed work."""
        if self._state.moved and self._refused:
            waiting, self._refused = self._refused, {}
            for row in waiting.values():
                self._take(row, draft)
        for identity in [each for each in self._again if each not in self._state.world.workloads]:
            self._take(self._again.pop(identity), draft)
        for identity in sorted(self._state.touched):
            known = self._state.world.workloads.get(identity)
            origin = known.origin if known is not None else None
            if known is not None and origin is not None and origin.makes and not known.phase.final:
                if origin.over:
                    self._close(known, origin, draft)
                    continue
                held = ASSEMBLING if self._lacks(known) else ""
                if held != known.held:
                    self._state.put(draft, replace(known, held=held))

    def _close(self, row: Workload, origin: Origin, draft: Draft) -> None:
        """End its waiting tasks once none lives: its maker makes no more pods. They fail if the maker did."""
        tasks = self._state.world.tasks_of(row.id)
        waiting = [task for task in tasks if task.phase is TaskPhase.WAITING]
        if not waiting or any(task.phase.live for task in tasks):
            return
        phase = TaskPhase.FAILED if origin.failure else TaskPhase.SUCCEEDED
        for task in waiting:
            self._state.put(draft, replace(task, phase=phase, claims=None, retry_at=None))
        said = f"{origin} has failed: {origin.failure}" if origin.failure else f"{origin} is complete"
        words = f"{said.rstrip('.')}."
        self._state.last_words[row.id] = words
        draft.event(row.id, EventKind.EXITED, words, who="engine")

    def _lacks(self, row: Workload) -> bool:
        ready, wanted = dict(row.origin.ready if row.origin is not None else ()), dict[str, int]()
        for task in self._state.world.tasks_of(row.id):
            wanted[task.group] = wanted.get(task.group, 0) + (task.phase is TaskPhase.WAITING)
        return any(count > ready.get(group, 0) for group, count in wanted.items())

    def _take(self, row: Workload, draft: Draft) -> None:
        """Make it a workload; refuse it if its project does not exist."""
        assert row.origin is not None
        state, world = self._state, self._state.world
        project = next((it for it in world.projects.values() if it.name == row.project), None)
        if project is None:
            self._refused[row.id] = row
            why = (
                f"Project {row.project} does not exist. Create it with "
                f"`pliant project create {row.project} --quota 0`, or correct the label pliant/project."
            )
            self._answers.append(Answer(row.origin.engine, row.id, why, taken=False))
            return
        state.serial += 1
        own = valued(row, state.priorities.get(row.priority_class))
        made = replace(
            own,
            name=free_name(row.name, row.id, state.names.get(project.id, ())),
            project=project.id,
            phase=Phase.PENDING,
            phase_since=draft.now,
            created=draft.now,
            serial=state.serial,
        )
        state.put(draft, made)
        for task in tasks_of(made):
            state.put(draft, task)
        words = f"{row.origin} was found on the cluster and taken into project {project.name}."
        draft.event(row.id, EventKind.SUBMITTED, words, who="engine")
        self._answers.append(Answer(row.origin.engine, row.id, "", taken=True))

    def _follow(self, known: Workload, row: Workload, draft: Draft) -> None:
        """Follow a change at its origin: how many pods wait, and how many there are to be."""
        assert row.origin is not None and known.origin is not None
        tasks = {task.name: task for task in self._state.world.tasks_of(known.id)}
        groups = groups_of(known, row, tasks.values())
        most = {group.name: group.max for group in groups}
        waiting = [task for task in tasks.values() if task.phase is TaskPhase.WAITING]
        gone = [task for task in waiting if task.index >= most.get(task.group, 0)]
        past = max([known.origin.past, *(task.attempt for task in gone)])
        changed = replace(known, origin=replace(row.origin, past=past), groups=groups)
        if changed == known:
            return
        self._state.put(draft, changed)
        for task in tasks_of(changed):
            if task.name not in tasks:
                self._state.put(draft, replace(task, attempt=past))
        for task in gone:
            draft.drop(task)
            self._state.note(task, gone=True)


def valued(row: Workload, known: PriorityClass | None) -> Workload:
    """The workload with the priority that its class has here; the cluster's value if the class is unknown."""
    if row.priority_class in PRIORITIES:
        value = PRIORITIES[row.priority_class]
        return replace(row, priority=value, preemptible=row.preemptible and value < PREEMPTIBLE_BELOW)
    return row if known is None else replace(row, priority=known.value)


def free_name(wanted: str, identity: str, taken: Container[str]) -> str:
    """A name that no other workload of its project has."""
    clean = re.sub(r"[^a-z0-9-]+", "-", wanted.lower()).strip("-")[:63].strip("-")
    name = clean if clean[:1].isalpha() else f"pod-{clean}"[:63].strip("-")
    return name if name not in taken else f"{name[:54].strip('-')}-{identity[:8]}"


def tasks_of(workload: Workload) -> list[Task]:
    """The task rows of a new workload."""
    return [
        Task(workload.id, f"{group.name}-{index}", group.name, index)
        for group in workload.groups
        for index in range(group.at_once or group.max)
    ]


def groups_of(known: Workload, row: Workload, tasks: Collection[Task]) -> tuple[TaskGroup, ...]:
    """The groups of the row, adjusted so that running tasks continue: no minimum rises while a task lives,
    and a group that the row no longer names stays until its last task is gone.
    """
    before = {group.name: group for group in known.groups}
    if any(task.phase.live for task in tasks):
        least = {name: group.min for name, group in before.items()}
        now = [replace(group, min=min(group.min, least.get(group.name, 0))) for group in row.groups]
    else:
        now = list(row.groups)
    there = {task.group for task in tasks if task.phase is not TaskPhase.WAITING}
    left = sorted(there - {group.name for group in now})
    return (*now, *(replace(before[name], min=0, wanted=0, max=0, at_once=0) for name in left))
