"""Commands that run inside tasks for clients, by id; ends those that no client uses any more."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pliant.api.pace import AtOnce
from pliant.control.errors import Conflict, NotFound
from pliant.control.ports import Session
from pliant.control.service import Service
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

AWAY = 60.0
"""Seconds without any client after which a command is ended and forgotten."""

SWEEP_EVERY = 5.0


class Open:
    """One command, and the clients that use it."""

    __slots__ = ("attempt", "person", "readers", "seen", "session")

    def __init__(self, session: Session, attempt: AttemptId, now: float, person: str) -> None:
        self.session = session
        self.attempt = attempt
        self.person = person  # who started it
        self.seen = now  # seconds of the sessions' clock; last request about it
        self.readers = 0  # 0 or 1 streams of its output


class Sessions:
    """The commands of all clients. Thread-safe."""

    def __init__(
        self,
        service: Service,
        clock: Callable[[], float] = time.monotonic,
        sweep_every: float = SWEEP_EVERY,
        most: int = 0,
    ) -> None:
        """`most`: commands of one person at a time; 0: no limit."""
        self._starting = AtOnce(most, "commands inside jobs", "End one of them first.")
        self._service = service
        self._clock = clock
        self._sweep_every = sweep_every
        self._guard = threading.Lock()
        self._open: dict[str, Open] = {}
        self._sweeper: threading.Thread | None = None

    @contextmanager
    def room(self, person: str) -> Iterator[None]:
        """Keep room for one more command of that person while it starts. Raises OverLimit."""
        with self._guard:
            entries = [entry for entry in self._open.values() if entry.person == person]
            running = sum(entry.session.exit_code() is None for entry in entries)
            held = self._starting.hold(person, running)
            held.__enter__()
        try:
            yield
        finally:
            held.__exit__(None, None, None)

    def add(self, session: Session, attempt: AttemptId, person: str = "") -> str:
        """Keep a command that has started; its id."""
        identity = secrets.token_hex(16)
        with self._guard:
            self._open[identity] = Open(session, attempt, self._clock(), person)
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._run, name="pliant-exec-sweep", daemon=True)
                self._sweeper.start()
        return identity

    def get(self, identity: str) -> Session:
        with self._guard:
            found = self._open.get(identity)
            if found is None:
                raise NotFound(
                    f"There is no running command {identity[:40]!r}.", "It may have ended; start another."
                )
            found.seen = self._clock()
            return found.session

    def attempt(self, identity: str) -> AttemptId:
        """The attempt in which the command runs. Raises NotFound."""
        self.get(identity)
        with self._guard:
            return self._open[identity].attempt

    def check_free(self, identity: str) -> None:
        """Raise NotFound, or Conflict if a client reads its output."""
        self.get(identity)
        with self._guard:
            entry = self._open.get(identity)
            if entry is not None and entry.readers:
                raise Conflict("Another client reads the output of this command already.")

    @contextmanager
    def reading(self, identity: str) -> Iterator[Session]:
        """The session, for the one client that reads its output. Raises NotFound, Conflict."""
        session = self.get(identity)
        with self._guard:
            entry = self._open[identity]
            if entry.readers:
                raise Conflict("Another client reads the output of this command already.")
            entry.readers = 1
        try:
            yield session
        finally:
            with self._guard:
                entry.readers = 0
                entry.seen = self._clock()

    def end(self, identity: str) -> None:
        """Kill it and forget it."""
        session = self.get(identity)
        session.kill()
        with self._guard:
            self._open.pop(identity, None)

    def sweep(self) -> int:
        """End and forget commands that are no longer needed; the number of those left."""
        now = self._clock()
        with self._guard:
            entries = list(self._open.items())
        for identity, entry in entries:
            lonely = not entry.readers and now - entry.seen > AWAY
            running = entry.session.exit_code() is None
            if running and (lonely or not self._lives(entry.attempt)):
                log.info(
                    "ending a command in %s: %s",
                    entry.attempt,
                    "its client is gone" if lonely else "it ended",
                )
                entry.session.kill()
            if lonely:
                with self._guard:
                    self._open.pop(identity, None)
        with self._guard:
            return len(self._open)

    def _lives(self, attempt: AttemptId) -> bool:
        view = self._service.board.workloads.get(attempt.workload)
        tasks = view.tasks if view is not None else ()
        return any(
            task.name == attempt.task and task.attempt == attempt.number and task.phase.live for task in tasks
        )

    def _run(self) -> None:
        while True:
            time.sleep(self._sweep_every)
            left = self.sweep()
            with self._guard:
                if not left and not self._open:
                    self._sweeper = None
                    return
