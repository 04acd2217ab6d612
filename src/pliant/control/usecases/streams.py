"""Use cases about one running task: its log, its input, commands inside it."""

from collections.abc import Iterator, Sequence
from signal import Signals

from pliant.control.board.pods import pod_names
from pliant.control.board.view import Board, WorkloadView
from pliant.control.errors import BadRequest, Conflict, NoInput, NotFound
from pliant.control.ports import Engine, Input, Session
from pliant.control.state.draft import Draft
from pliant.control.usecases.submissions import Submissions
from pliant.model.event import EventKind
from pliant.model.workload import Attempt, AttemptId, Task, TaskPhase
from pliant.sched.world.chunks import workload_open

FOLLOW_WAIT = 0.2
"""Seconds between two looks for the next attempt of a task whose log is followed."""


class Streams(Submissions):
    """The part of the service that reaches tasks."""

    def workload(self, identity: str) -> WorkloadView:
        """The workload with that id."""
        view = self.board.workloads.get(identity)
        if view is None:
            raise NotFound(f"There is no workload {identity!r}.", "See the workloads with: pliant list")
        return view

    def watch(self, after: int, timeout: float) -> tuple[Board, frozenset[str] | None]:
        """Wait for a board newer than `after`; which workloads changed since (None: unknown, read all)."""
        return self._loop.wait(after, timeout)

    def attempts(self, *identities: str) -> Sequence[Attempt]:
        return self._loop.store.attempts(*identities)

    def logs(
        self,
        identity: str,
        *,
        task: str = "",
        number: int = 0,
        follow: bool = False,
        tail: int | None = None,
        since: int | None = None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """Log output of one task's newest attempt, or of the attempt with that number. `since` in ms.

        With `follow` and no number it continues with the later attempts, until the workload ends.
        """
        chosen = self._task(identity, task)
        wanted = number or chosen.attempt
        found = [
            row for row in self.attempts(identity) if row.id.task == chosen.name and row.id.number == wanted
        ]
        if not found and number and chosen.attempt:
            raise NotFound(
                f"{chosen.name} has no attempt {wanted}.", f"Its newest attempt is {chosen.attempt}."
            )
        if not found:
            raise Conflict(
                f"{chosen.name} has not been started yet.", "Its log begins with its first attempt."
            )
        engine, attempt = self._engine(found[0].placement.node), found[0].id
        if timestamps and not engine.timed(attempt):
            name = self.workload(identity).workload.name
            raise BadRequest(f"{name} has no timestamps: it ran before this version recorded them.")
        stream = engine.logs(attempt, follow=follow, tail=tail, since=since, timestamps=timestamps)
        return self._onward(attempt, stream, timestamps) if follow and not number else stream

    def _onward(self, attempt: AttemptId, stream: Iterator[bytes], timestamps: bool) -> Iterator[bytes]:
        """The output of an attempt, and then of its successors; b'' while there is none yet."""
        while True:
            yield from stream
            board = self.board
            view = board.workloads.get(attempt.workload)
            if view is None or not workload_open(view.workload):
                return
            if not any(task.name == attempt.task and task.attempt > attempt.number for task in view.tasks):
                self.watch(board.version, FOLLOW_WAIT)
                stream = iter((b"",))
                continue
            later = (row for row in self.attempts(attempt.workload) if row.id.task == attempt.task)
            row = next(row for row in later if row.id.number > attempt.number)
            attempt = row.id
            stream = self._engine(row.placement.node).logs(
                attempt, follow=True, tail=None, since=None, timestamps=timestamps
            )

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
            raise BadRequest("No command to run was given.", "Write it after the name of the workload.")
        attempt, engine = self._running(identity, task)
        return engine.exec(attempt, argv, tty=tty, stdin=stdin, rows=rows, columns=columns)

    def tunnels(self, identity: str, *, task: str = "") -> bool:
        """True if only `connect` reaches a port of a running task."""
        return self._running(identity, task)[1].tunnels is not None

    def connect(self, identity: str, port: int, *, task: str = "") -> Session:
        """A connection to a program that listens in a running task. Raises ValueError and OSError."""
        attempt, engine = self._running(identity, task)
        if engine.tunnels is None:
            raise BadRequest(
                "Tasks listen on the ports of the server's own machine.", f"Connect to its port {port} there."
            )
        return engine.tunnels.connect(attempt, port)

    def signal(self, identity: str, number: int, user: str) -> int:
        """Send a signal to all processes of all running tasks and change nothing else; how many tasks."""
        view = self.workload(identity)
        workload = view.workload
        rows = {(row.id.task, row.id.number): row for row in self.attempts(identity)}  # no older than `view`
        running = [
            rows[task.name, task.attempt]
            for task in view.tasks
            if task.phase is TaskPhase.RUNNING and task.carries is not None
        ]
        if not running:
            raise Conflict(f"{workload.name} does not run now.", "Wait until its status is Running.")
        for row in running:
            try:
                self._engine(row.placement.node).signal(row.id, number)
            except (OSError, ValueError) as error:
                raise Conflict(f"{row.id.task} did not get the signal: {error}.") from error
        name = Signals(number).name

        def note(draft: Draft) -> None:
            draft.event(identity, EventKind.UPDATED, f"{user} sent {name} to {workload.name}.", who=user)

        self._loop.call(note)
        return len(running)

    def input(self, identity: str, *, task: str = "", number: int = 0) -> Input:
        """The input of a running task; with a number, of that attempt only."""
        attempt, engine = self._running(identity, task)
        if number and number != attempt.number:
            raise Conflict(f"Attempt {number} has ended.", f"Attempt {attempt.number} runs now.")
        try:
            return engine.input(attempt)
        except ValueError as error:
            name = self.workload(identity).workload.name
            raise NoInput(f"{name} takes no input: {error}.", "Submit it with --stdin.") from error

    def _running(self, identity: str, name: str) -> tuple[AttemptId, Engine]:
        """The present attempt of a running task, and its engine. Raises Conflict if the task does not run."""
        chosen = self._task(identity, name, running=True)
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
        return attempt, self._engine(chosen.carries.node)

    def _task(self, identity: str, name: str, *, running: bool = False) -> Task:
        """The task of that name; without a name the first that runs or (not `running`) was started, else the
        first of all."""
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
