"""What the API, the console and tests may ask. Changes go through the loop; reads come from the board."""

import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pliant.control.board.outcome import Outcome, outcome_of
from pliant.control.board.pods import pod_names
from pliant.control.board.view import Board, WorkloadView
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.explain.aside import aside
from pliant.control.explain.questions import Questions
from pliant.control.explain.rehearsal import Rehearsal, rehearse
from pliant.control.fractions import TaskUse
from pliant.control.loop import Loop
from pliant.control.ports import Engine, Remembered, Session
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.control.submit.groups import groups_of, leader_of
from pliant.control.submit.placing import check_placing
from pliant.control.submit.submission import (
    Accepted,
    Checked,
    Submission,
    backoff_of,
    check_image,
    check_name,
    check_ports,
    check_times,
    priority_of,
    request_of,
)
from pliant.control.usecases.jobs import Jobs
from pliant.control.usecases.priorities import Priorities, valued
from pliant.control.usecases.tenancy import Tenancy
from pliant.control.usecases.tuning import Tuning
from pliant.model.event import Event, EventKind
from pliant.model.reason import Reason
from pliant.model.tenancy import Project
from pliant.model.topology import Topology
from pliant.model.workload import Attempt, AttemptId, Desired, Kind, Phase, Task, TaskPhase, Workload
from pliant.sched.plan import Plan

Answered = Callable[[Accepted], tuple[int, str]]
"""Renders the answer to a submission, so that the same answer can be given again for the same key."""

FOLLOW_WAIT = 0.2
"""Seconds between two looks for the next attempt of a task whose log is followed."""


class Service(Tenancy, Tuning):
    """The use cases. Every method that changes something returns once the change is on disk."""

    def __init__(self, loop: Loop, engines: Mapping[str, Engine]) -> None:
        super().__init__(loop)
        self.questions = Questions(loop)
        self._engines = engines
        self.jobs = Jobs(loop, self._engine)
        self.priorities = Priorities(loop)

    # -- reading ------------------------------------------------------------------------------------

    def workload(self, identity: str) -> WorkloadView:
        """The workload with that id."""
        view = self.board.workloads.get(identity)
        if view is None:
            raise NotFound(f"There is no workload {identity!r}.", "List them to see which there are.")
        return view

    def history(self, identity: str, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Event]]:
        """What happened to it, oldest first, with sequence numbers."""
        return self._loop.store.events(identity, after=after, limit=limit)

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        """What living tasks use of their shares of GPUs, as it was seen last."""
        return {attempt: use for engine in self._engines.values() for attempt, use in engine.uses().items()}

    def attempts(self, identity: str) -> Sequence[Attempt]:
        return self._loop.store.attempts(identity)

    def ended(self) -> Sequence[Workload]:
        """Deleted workloads that are still remembered, newest first."""
        return self._loop.store.ended()

    def remembered(self, key: str) -> Remembered | None:
        """The answer once given to this `Idempotency-Key`."""
        return self._loop.store.remembered(key)

    def now(self) -> int:
        """Ms since the epoch, by the server's own clock."""
        return self._loop.clock.now()

    def watch(self, after: int, timeout: float) -> tuple[Board, frozenset[str] | None]:
        """Wait for a board newer than `after`; which workloads changed since (None: unknown, read all)."""
        return self._loop.wait(after, timeout)

    # -- workloads ----------------------------------------------------------------------------------

    def check(self, ask: Submission) -> Checked:
        """What this would become, not yet submitted. Raises BadRequest."""
        ask = valued(ask, self.board.priorities)
        launch = check_image(ask.launch)
        if ask.name is not None:
            check_name(ask.name)
        request = request_of(ask)
        groups = groups_of(ask, request)
        value, word, preemptible = priority_of(ask)
        placing = check_placing(ask.placing)
        engine = next(iter(self._engines.values()))
        for one in (launch, *(group.launch for group in groups if group.launch is not None)):
            if (refusal := engine.refuse(one)) is not None:
                raise BadRequest(refusal)
        notice = engine.notice(launch)
        serves = ask.kind is Kind.INFERENCE
        framework = ask.distribution.framework if ask.distribution is not None else ""
        workload = Workload(
            id=str(uuid.uuid4()),
            name=ask.name or "",
            project="",
            kind=ask.kind,
            launch=launch,
            groups=groups,
            priority=value,
            preemptible=preemptible,
            pools=ask.pools,
            affinity=placing.affinity,
            tolerations=placing.tolerations,
            apart=placing.apart,
            backoff_limit=backoff_of(ask),
            restart=ask.restart or serves,
            framework=framework,
            ports=check_ports(ask),
            slots=ask.distribution.slots if ask.distribution is not None else 1,
            subgroups=ask.distribution.levels if ask.distribution is not None else (),
            min_groups=ask.distribution.least_groups if ask.distribution is not None else None,
            ends_with=leader_of(ask),
            source=ask.source,
            category=ask.category
            or {Kind.WORKSPACE: "Build", Kind.INFERENCE: "Deploy"}.get(ask.kind, "Train"),
            priority_class=word,
            **ask.fields,
        )
        check_times(workload)
        return Checked(ask, workload, (notice,) if notice else ())

    def submit(
        self,
        checked: Checked,
        user: str,
        *,
        key: str = "",
        fingerprint: str = "",
        render: Answered | None = None,
    ) -> Accepted:
        """Accept a workload. With `key`, the answer that `render` gives is remembered with it."""

        def run(draft: Draft) -> Accepted:
            placed, made = self._placed(checked, draft.now)
            if made is not None:
                draft.put(made)
            self._loop.state.serial += 1
            workload = replace(placed, user=user, phase_since=draft.now, serial=self._loop.state.serial)
            draft.put(workload)
            for task in tasks_of(workload):
                draft.put(task)
            words = f"{user} submitted {workload.name} to {self._project(workload.project).name}."
            draft.event(workload.id, EventKind.SUBMITTED, words, who=user)
            accepted = Accepted(workload)

            def conclude(whole: Draft, plan: Plan) -> None:
                accepted.reason = next(
                    (verdict.reason for verdict in plan.verdicts if verdict.workload == workload.id), None
                )
                if key and render is not None:
                    status, body = render(accepted)
                    whole.put(Remembered(key, fingerprint, status, body, whole.now))

            draft.when_decided.append(conclude)
            return accepted

        return self._loop.call(run)

    def rehearse(self, checked: Checked) -> Rehearsal:
        """What the scheduler would do with it now. Nothing is recorded."""
        now = self.now()

        def run(state: State) -> Rehearsal:  # on a copy of all that self knows
            guest, made = self._placed(checked, now)
            if made is not None:  # one domain each: nothing known lies in any
                guest = replace(guest, within=None)
            return rehearse(state, guest, tasks_of(guest), now)

        return aside(self._loop, run)

    def _placed(self, checked: Checked, now: int) -> tuple[Workload, Topology | None]:
        """(the workload in its project, by its name; a topology to be made for it). On the loop's thread."""
        project = self._project(checked.asked.project)
        for pool in checked.asked.pools:
            self._pool(pool)
        within, made = self._nearness(project, checked.asked, checked.workload)
        name = self._free_name(project, checked.asked)
        placed = replace(
            checked.workload, name=name, within=within, project=project.id, created=now, phase=Phase.PENDING
        )
        return placed, made

    def _free_name(self, project: Project, ask: Submission) -> str:
        taken = {
            workload.name
            for workload in self._loop.world.workloads.values()
            if workload.project == project.id and workload.desired is not Desired.DELETED
        }
        if ask.name is not None and ask.name_base is None:
            if ask.name in taken:
                raise NameTaken(
                    f"A workload named {ask.name!r} already exists in project {project.name}.",
                    "Delete it first, or choose another name.",
                )
            return ask.name
        base = check_name(ask.name_base or ask.kind.value.lower(), "workload's prefix")
        if not ask.name_index:
            return check_name(f"{base}-{secrets.token_hex(6)}")
        index = 0
        while f"{base}-{index}" in taken:
            index += 1
        return check_name(f"{base}-{index}")

    def suspend(self, identity: str, user: str) -> None:
        """Stop it and keep it; its GPUs are free once its tasks have ended."""

        def run(draft: Draft) -> None:
            workload = self._live(identity)
            if workload.phase.final:
                raise Conflict(
                    f"{workload.name} is over ({workload.phase.value}).", "There is nothing to suspend."
                )
            if workload.desired is Desired.RUNNING:
                draft.put(replace(workload, desired=Desired.STOPPED))
                draft.event(identity, EventKind.SUSPENDED, f"{user} suspended {workload.name}.", who=user)

        self._loop.call(run)

    def cancel(self, identity: str, user: str, *, now: bool = False) -> Workload:
        """End it for good and keep its record, log and files; `now` leaves its processes no grace period.

        Returns the workload as it was: one that had ended stays as it is.
        """

        def run(draft: Draft) -> Workload:
            workload = self._live(identity)
            if workload.phase.final or workload.cancelled_by:
                return workload
            ending = replace(workload, desired=Desired.STOPPED, cancelled_by=user)
            draft.put(without_grace(ending) if now else ending)
            draft.event(identity, EventKind.CANCELLED, f"{user} cancelled {workload.name}.", who=user)
            return workload

        return self._loop.call(run)

    def outcome(self, identity: str) -> Outcome:
        """How the workload ended, or that it has not; also of a deleted one that is still remembered."""
        view = self.board.workloads.get(identity)
        workload = view.workload if view is not None else None
        if workload is None:
            workload = next((row for row in self.ended() if row.id == identity), None)
        if workload is None:
            raise NotFound(f"There is no workload {identity!r}.", "List them to see which there are.")
        return outcome_of(workload, self.attempts(identity), self.now())

    def past(
        self, *, project: str | None = None, since: int = 0, limit: int = 500
    ) -> list[tuple[Workload, Outcome]]:
        """Workloads that were submitted since then (ms), the newest first, deleted ones too as long as they
        are remembered; `project` by id or name.
        """
        chosen = self._project(project).id if project is not None else None
        living = (view.workload for view in self.board.workloads.values())
        rows = [
            row
            for row in (*living, *self.ended())
            if row.created >= since and (chosen is None or row.project == chosen)
        ]
        rows.sort(key=lambda row: -row.serial)
        now = self.now()
        return [(row, outcome_of(row, self.attempts(row.id), now)) for row in rows[:limit]]

    def resume(self, identity: str, user: str) -> None:
        """Let a suspended workload compete again."""

        def run(draft: Draft) -> None:
            workload = self._live(identity)
            if workload.phase.final or workload.cancelled_by:
                raise Conflict(
                    f"{workload.name} is over ({workload.phase.value}).", "Submit it again under a new name."
                )
            if workload.desired is Desired.STOPPED:
                draft.put(replace(workload, desired=Desired.RUNNING, running_ms=0))
                for task in self._loop.world.tasks_of(identity):
                    if task.phase is TaskPhase.WAITING:
                        draft.put(replace(task, failures=0, retry_at=None))
                draft.event(identity, EventKind.RESUMED, f"{user} resumed {workload.name}.", who=user)

        self._loop.call(run)

    def delete(self, identity: str, user: str) -> None:
        """End it and forget it; its name is free at once."""

        def run(draft: Draft) -> None:
            workload = self._live(identity)
            draft.put(replace(workload, desired=Desired.DELETED))
            draft.event(identity, EventKind.DELETED, f"{user} deleted {workload.name}.", who=user)

        self._loop.call(run)

    def _live(self, identity: str) -> Workload:
        workload = self._loop.world.workloads.get(identity)
        if workload is None or workload.desired is Desired.DELETED:
            raise NotFound(f"There is no workload {identity!r}.", "It may have been deleted already.")
        return workload

    # -- a task's own streams -----------------------------------------------------------------------

    def logs(
        self,
        identity: str,
        *,
        task: str = "",
        number: int = 0,
        follow: bool = False,
        tail: int | None = None,
        since: int | None = None,
    ) -> Iterator[bytes]:
        """Log output of one task's newest attempt, or of the attempt with that number. `since` in ms.

        With `follow` and no number it goes on with the attempts that come after, until the workload ends.
        """
        chosen = self._task(identity, task)
        wanted = number or chosen.attempt
        found = [
            row for row in self.attempts(identity) if row.id.task == chosen.name and row.id.number == wanted
        ]
        if not found:
            raise Conflict(
                f"{chosen.name} has not been started yet.", "Its log begins with its first attempt."
            )
        stream = self._engine(found[0].placement.node).logs(
            found[0].id, follow=follow, tail=tail, since=since
        )
        return self._onward(found[0].id, stream) if follow and not number else stream

    def _onward(self, attempt: AttemptId, stream: Iterator[bytes]) -> Iterator[bytes]:
        """What an attempt prints, and then its successors; b'' while there is none yet."""
        while True:
            yield from stream
            board = self.board
            view = board.workloads.get(attempt.workload)
            if view is None or view.workload.phase.final or view.workload.desired is not Desired.RUNNING:
                return
            if not any(task.name == attempt.task and task.attempt > attempt.number for task in view.tasks):
                self.watch(board.version, FOLLOW_WAIT)
                stream = iter((b"",))
                continue
            later = (row for row in self.attempts(attempt.workload) if row.id.task == attempt.task)
            row = next(row for row in later if row.id.number > attempt.number)
            attempt = row.id
            stream = self._engine(row.placement.node).logs(attempt, follow=True, tail=None, since=None)

    def exec(
        self,
        identity: str,
        argv: Sequence[str],
        *,
        task: str = "",
        tty: bool = False,
        stdin: bool = False,
        rows: int = 24,
        columns: int = 80,
    ) -> Session:
        """Run a command in the environment of a running task."""
        if not argv:
            raise BadRequest("There is no command to run.", "Name one after the workload.")
        chosen = self._task(identity, task, running=True)
        if chosen.phase is not TaskPhase.RUNNING or chosen.carries is None:
            raise Conflict(
                f"{self.workload(identity).workload.name} does not run now.",
                "Wait until its status is Running.",
            )
        attempt = next(
            row.id
            for row in self.attempts(identity)
            if row.id.task == chosen.name and row.id.number == chosen.attempt
        )
        engine = self._engine(chosen.carries.node)
        return engine.exec(attempt, argv, tty=tty, stdin=stdin, rows=rows, columns=columns)

    def _task(self, identity: str, name: str, *, running: bool = False) -> Task:
        """The task of that name; without one the leader, or else the first that runs, or that ever began."""
        view = self.workload(identity)
        if not name:
            good = (
                task for task in view.tasks if (task.phase is TaskPhase.RUNNING if running else task.attempt)
            )
            return next(good, view.tasks[0])
        pods = pod_names(view.workload, view.tasks, self.attempts(identity))
        for task in view.tasks:
            if name in (task.name, pods[task.name], f"{view.workload.name}-{task.name}"):
                return task
        known = ", ".join(task.name for task in view.tasks)
        raise NotFound(f"{view.workload.name} has no pod {name!r}.", f"It has {known}.")

    def _engine(self, node: str) -> Engine:
        found = next((view.node for view in self.board.nodes if view.node.name == node), None)
        return self._engines.get(found.engine if found else "") or next(iter(self._engines.values()))

    def reason(self, identity: str) -> Reason | None:
        return self.workload(identity).reason


def without_grace(workload: Workload) -> Workload:
    """The workload with a grace period of 0 for all of its tasks."""
    return replace(
        workload,
        launch=replace(workload.launch, grace=0),
        groups=tuple(
            replace(group, launch=replace(group.launch, grace=0)) if group.launch is not None else group
            for group in workload.groups
        ),
    )


def tasks_of(workload: Workload) -> list[Task]:
    """The task rows of a new workload."""
    return [
        Task(workload.id, f"{group.name}-{index}", group.name, index)
        for group in workload.groups
        for index in range(group.at_once or group.max)
    ]
