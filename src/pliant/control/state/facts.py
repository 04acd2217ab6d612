"""Changes rows as facts arrive and as time passes."""

from dataclasses import replace

from pliant.control.state.draft import Draft
from pliant.control.state.holds import Holds
from pliant.control.state.imports import Imports
from pliant.control.state.marks import Marks
from pliant.control.state.retries import describe_exit, task_ended
from pliant.control.state.state import State
from pliant.control.state.transitions import time_limit
from pliant.control.state.usage import UsageBook
from pliant.model.booking import Stage
from pliant.model.event import EventKind
from pliant.model.fact import (
    AttemptEnded,
    AttemptResized,
    AttemptStarted,
    Fact,
    NodeLost,
    NodeSeen,
    ResizeDenied,
    WorkFound,
    WorkGone,
    WorkListed,
)
from pliant.model.identity import OWNER_GONE
from pliant.model.machine import Placement
from pliant.model.quantity import format_duration
from pliant.model.reason import NodeLost as PlaceLost
from pliant.model.reason import NotResized
from pliant.model.reason.base import amount
from pliant.model.tenancy import Project, Queue
from pliant.model.workload import AttemptId, Desired, Exit, Task, TaskPhase, Workload


class FactBook:
    """Applies facts to the loop's world. Only facts about a task's present attempt change the task."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._holds = Holds(state)
        self._usage = UsageBook(state)
        self.imports = Imports(state)
        self.wake: int | None = None  # ms; when a time limit, a deletion or a begin is next due
        self.leaving: set[str] = set()  # nodes that no engine reports any more but where something lives

    def take(self, fact: Fact, draft: Draft) -> None:
        match fact:
            case NodeSeen(node=node):
                known = self._state.node(node.name)
                seen = self._state.marks.get(node.name, Marks()).over(node)
                seen = replace(seen, draining=known.draining) if known is not None else seen
                if seen != known:
                    self._state.put(draft, seen)
            case NodeLost(name=name):
                self.lose_node(name, draft)
            case AttemptStarted(attempt=attempt, at=at):
                self._started(attempt, at, draft)
            case AttemptEnded(attempt=attempt, exit=end):
                self._ended(attempt, end, draft)
            case WorkFound(workload=workload):
                self.imports.found(workload, draft)
            case WorkGone(workload=identity):
                self.imports.gone(identity, draft)
            case WorkListed(engine=engine, workloads=there):
                self.imports.listed(engine, there, draft)
            case AttemptResized():
                self._resized(fact, draft)
            case ResizeDenied():
                self._denied(fact, draft)

    def _resized(self, fact: AttemptResized, draft: Draft) -> None:
        attempt, task = fact.attempt, self._present(fact.attempt)
        if task is None or task.carries is None:
            return
        before, claims = task.carries, task.claims
        cpu = before.cpu if fact.cpu is None else fact.cpu
        memory = before.memory if fact.memory is None else fact.memory
        carries = replace(before, shares=fact.shares, cpu=cpu, memory=memory)
        workload = self._state.world.workloads.get(attempt.workload)
        origin = workload.origin if workload is not None else None
        if claims is not None and origin is not None and origin.makes:  # only its maker decides
            claims = replace(claims, cpu=cpu, memory=memory)
        self._state.put(draft, replace(task, claims=claims, carries=carries))
        row = self._state.attempts.get(attempt)
        if row is not None and fact.shares == before.shares:
            self._state.put(draft, replace(row, placement=carries))
        elif row is not None:
            held = row.held(draft.now)
            self._usage.resized(row, draft)
            self._state.put(draft, replace(row, placement=carries, resized=draft.now, held_before=held))
        self._vacated(attempt, before, carries, draft)
        if fact.cpu is not None and isinstance(self._state.reasons.get(attempt.workload), NotResized):
            del self._state.reasons[attempt.workload]
            self._state.touched.add(attempt.workload)
        if (before.cpu, before.memory) != (cpu, memory):
            said = f"{attempt.task} has {amount('cpu', cpu)} and {amount('memory', memory)} now."
            draft.event(attempt.workload, EventKind.RESIZED, said, who="engine", attempt=str(attempt))

    def _denied(self, fact: ResizeDenied, draft: Draft) -> None:
        attempt, task = fact.attempt, self._present(fact.attempt)
        if task is None or task.claims is None:
            return
        claims = task.claims
        reason = NotResized(task.name, claims.node, claims.cpu, claims.memory, fact.later, fact.said)
        if self._state.reasons.get(attempt.workload) != reason:
            self._state.reasons[attempt.workload] = reason
            self._state.touched.add(attempt.workload)
            words = reason.text(draft.now)
            draft.event(attempt.workload, EventKind.WARNING, words, who="engine", reason=reason)

    def _vacated(self, attempt: AttemptId, before: Placement, after: Placement, draft: Draft) -> None:
        gone = [gpu for gpu in before.uuids if gpu not in after.uuids]
        self._state.vacated.update((attempt, gpu) for gpu in gone)
        if gone:
            said = f"{attempt.task} has left {len(gone)} of {len(before.shares)} GPUs and continues."
            draft.event(attempt.workload, EventKind.RESIZED, said, who="engine", attempt=str(attempt))

    def _present(self, attempt: AttemptId) -> Task | None:
        """The task, if this attempt is its present one and not known to have ended."""
        task = self._state.world.tasks.get((attempt.workload, attempt.task))
        return task if task is not None and task.attempt == attempt.number and task.phase.live else None

    def _started(self, attempt: AttemptId, at: int, draft: Draft) -> None:
        task = self._present(attempt)
        if task is None or task.started is not None:
            return
        at = min(at, draft.now)
        phase = TaskPhase.STOPPING if task.phase is TaskPhase.STOPPING else TaskPhase.RUNNING
        first = at if task.first_started is None else task.first_started
        self._state.put(draft, replace(task, phase=phase, started=at, first_started=first))
        row = self._state.attempts.get(attempt)
        if row is not None:
            self._state.put(draft, replace(row, started=at))
        where = task.carries.node if task.carries is not None else "?"
        draft.event(
            attempt.workload,
            EventKind.STARTED,
            f"{attempt.task} runs on {where}.",
            who="engine",
            attempt=str(attempt),
        )

    def _ended(self, attempt: AttemptId, end: Exit, draft: Draft) -> None:
        task = self._present(attempt)
        workload = self._state.world.workloads.get(attempt.workload)
        row = self._state.attempts.get(attempt)
        end = replace(end, at=min(end.at, draft.now))  # a clock may be ahead, or a job may have written it
        if row is not None:
            if row.started is not None and end.at < row.started:  # the engine read the start after the end
                end = replace(end, at=row.started)
            self._usage.ended(row, end, draft)
            self._state.put(draft, replace(row, exit=end))
        if task is None or workload is None:
            return
        if end.error.endswith(f": {OWNER_GONE}") and workload.desired is Desired.RUNNING:
            workload = replace(workload, desired=Desired.STOPPED)
            self._state.put(draft, workload)
            draft.event(attempt.workload, EventKind.SUSPENDED, f"Suspended: {end.error}.", who="server")
        after, what_follows = task_ended(task, workload, end, self._state.settings)
        words = f"{attempt.task} {describe_exit(end)}"
        if what_follows:
            words += f"; {what_follows}"
        if not end.stopped:
            self._state.last_words[attempt.workload] = words + "."
        self._state.put(draft, after)
        kind = EventKind.LOST if end.lost else EventKind.RETRYING if after.retry_at else EventKind.EXITED
        draft.event(attempt.workload, kind, words + ".", who="engine", attempt=str(attempt))

    def lose_node(self, name: str, draft: Draft) -> None:
        """Drop a node; record all that lived on it as lost."""
        node = self._state.node(name)
        if node is None:
            return
        for task in list(self._state.world.tasks.values()):
            if task.phase.live and task.carries is not None and task.carries.node == name:
                gone = AttemptId(task.workload, task.name, task.attempt)
                self._ended(gone, Exit(draft.now, lost=True), draft)
        self._state.note(node, gone=True)
        draft.drop(node)
        draft.event(f"node/{name}", EventKind.LOST, f"Node {name} is gone.", who="engine")

    def leave(self, draft: Draft) -> None:
        """Stop what lives on the nodes in `leaving`; drop each node once nothing lives there."""
        for name in sorted(self.leaving):
            node = self._state.node(name)
            if node is None:
                continue
            tasks = list(self._state.world.tasks.values())
            if not any(task.phase.live and task.carries and task.carries.node == name for task in tasks):
                self.lose_node(name, draft)
                continue
            if node.ready:
                self._state.put(draft, replace(node, ready=False))
            for task in tasks:
                if task.claims is not None and task.claims.node == name:
                    reason = PlaceLost(name)
                    self._state.put(draft, replace(task, claims=None))
                    self._state.reasons[task.workload] = reason
                    draft.event(task.workload, EventKind.STOPPING, reason.text(draft.now), reason=reason)

    def timers(self, draft: Draft) -> None:
        """Do what is due by now: limits on running time, deletion after the end, bookings, begin times."""
        due: list[int] = []
        state, world = self._state, self._state.world
        for workload in [world.workloads[identity] for identity in state.expired(draft.now)]:
            state.put(draft, replace(workload, desired=Desired.DELETED))
            if workload.ttl is None:
                kept = format_duration(state.settings.keep_finished)
                why = f"Deleted {kept} after its end, as the setting keep-finished says."
            else:
                why = f"Deleted {format_duration(workload.ttl)} after its end, as requested at submit."
            draft.event(workload.id, EventKind.DELETED, why, who="server")
        limited = any(map(_limits, world.projects.values())) or any(map(_limits, world.departments.values()))
        for workload in [world.workloads[identity] for identity in sorted(state.running) if limited]:
            project = world.projects.get(workload.project)
            if project is None or workload.desired is Desired.DELETED:
                continue
            found = self._limit(workload, project)
            if found is None:
                continue
            limit, owner = found
            at = workload.phase_since + limit - workload.running_ms
            if at <= draft.now:
                self._state.put(draft, replace(workload, desired=Desired.STOPPED))
                why = f"Suspended after {format_duration(limit)}: the time limit of {owner}."
                draft.event(workload.id, EventKind.SUSPENDED, why, who="server")
            else:
                due.append(at)
        due += self._calendar(draft)
        self._state.renew_phases(draft)  # workloads that just ended let others begin
        if state.expiring:
            due.append(state.expiring[0][0])
        self.imports.look(draft)
        self._holds.look(draft)
        if self._holds.wake is not None:
            due.append(self._holds.wake)
        self.wake = min(due) if due else None

    def _calendar(self, draft: Draft) -> list[int]:
        """Record begun and ended bookings, so that a clock set back cannot undo it, and drop old ones.

        Returns the times (ms) of the next changes.
        """
        due: list[int] = []
        for row in list(self._state.world.bookings.values()):
            stage, at = row.stage_at(draft.now), row.changes_at(draft.now)
            if stage is not row.stage:
                self._state.put(draft, replace(row, stage=stage))
                words = f"Booking {row.name} has {'begun' if stage is Stage.ACTIVE else 'ended'}."
                draft.event(f"booking/{row.name}", EventKind.UPDATED, words, who="server")
            if at is None:
                at = row.end + self._state.settings.keep_history
                if at <= draft.now:
                    draft.drop(row)
                    self._state.note(row, gone=True)
                    continue
            due.append(at)
        return due

    def _limit(self, workload: Workload, project: Project) -> tuple[int, str] | None:
        """(ms that it may run, whose limit it is): the smallest of its project and the departments above."""
        found = []
        queue: Queue | None = project
        above = project.department
        while queue is not None:
            limit = time_limit(workload, queue.limits.interactive, queue.limits.training)
            if limit is not None:
                found.append((limit, f"{type(queue).__name__.lower()} {queue.name}"))
            department = self._state.world.departments.get(above)
            queue, above = department, department.parent if department is not None else ""
        return min(found, key=lambda entry: entry[0], default=None)


def _limits(queue: Queue) -> bool:
    """True if it limits how long workloads may run."""
    return queue.limits.interactive is not None or queue.limits.training is not None
