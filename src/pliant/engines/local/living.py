"""Claimed attempts: watched to their end, found again by the next server, ended where they do not end."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pliant.control.ports import Halt, Sink
from pliant.engines.local.folder.layout import Folder, Layout, read_json
from pliant.engines.local.folder.logs import last_said
from pliant.engines.local.launch.launcher import Launcher
from pliant.engines.local.launch.supervisor import answered, reap
from pliant.engines.local.observe import processes
from pliant.engines.local.observe.memory import COUNT_SECONDS, Kills
from pliant.engines.local.observe.watch import Closed, Strands, Watcher
from pliant.model.fact import AttemptEnded, AttemptStarted
from pliant.model.workload import AttemptId, Exit

log = logging.getLogger(__name__)

GPU_SAYS = "pliant-gpu: "  # how lines of the library begin that holds programs to their shares
LOOK_SECONDS = 0.1  # between two looks for a supervisor that has not said who it is
SWEEP_SECONDS = 1.0  # after an end, in which others join it, until one look for what copied an environment
HUNG_SECONDS = 5.0  # after which the holder of a lock that does not say so is taken for a server that hangs


class Living:
    """All methods but `joining`, `lives` and `close` run on the strand of the task, so one at a time."""

    def __init__(
        self,
        layout: Layout,
        launcher: Launcher,
        watcher: Watcher,
        strands: Strands,
        closed: threading.Event,
        clock: Callable[[], int],
        halt: Halt,
    ) -> None:
        self.sink: Sink = lambda fact: None
        self.release: Callable[[AttemptId], None] = lambda attempt: None  # gives back what it was handed out
        self._layout, self._launcher, self._closed = layout, launcher, closed
        self._watcher, self._strands = watcher, strands
        self._clock, self._halt = clock, halt
        self._lock = threading.Lock()
        self._kills = Kills()
        # What lives, with its supervisor's pidfd, None until that is known. Adding to an attempt (exec)
        # needs the lock: once an attempt is taken out of here nothing joins it any more.
        self._live: dict[AttemptId, int | None] = {}
        self._joined: set[AttemptId] = set()  # live ones that got commands, which no supervisor reaps
        self._unswept: set[AttemptId] = set()  # ended since the last look for strays
        self._errors: dict[AttemptId, str] = {}  # why a claimed attempt could not start
        self._watcher.after(COUNT_SECONDS, self._count_kills)

    def __contains__(self, attempt: AttemptId) -> bool:
        return attempt in self._live

    @contextmanager
    def joining(self, attempt: AttemptId) -> Iterator[bool]:
        """Whether it lives; what is added to it inside the block ends with it."""
        with self._lock:
            if lives := attempt in self._live:
                self._joined.add(attempt)
            yield lives

    def _count_kills(self) -> None:
        self._kills.look()
        self._watcher.after(COUNT_SECONDS, self._count_kills)

    def now(self) -> list[AttemptId]:
        """All that lives."""
        with self._lock:
            return list(self._live)

    def lives(self, workload: str) -> bool:
        with self._lock:
            return any(attempt.workload == workload for attempt in self._live)

    def close(self) -> None:
        """Let go of everything; the watcher and the strands have been closed before."""
        for pidfd in self._live.values():
            if pidfd is not None:
                os.close(pidfd)
        self._live.clear()

    def record(self, attempt: AttemptId, exit: Exit) -> None:
        """For an attempt whose end no supervisor has recorded."""
        try:
            self._layout.folder(attempt).record_exit(attempt, exit)
        except OSError as error:  # the store has the end too; only the folder answers worse from now on
            log.warning("the end of %s is not on disk: %s", attempt, error)

    def add(self, attempt: AttemptId, pidfd: int) -> None:
        """Its supervisor."""
        with self._lock:
            self._live[attempt] = pidfd

    def fail(self, attempt: AttemptId, folder: Folder, error: str) -> None:
        """Why a claimed attempt has no supervisor; then report its end.

        It may have one all the same, if who was to start it died before it could say so.
        """
        self._errors[attempt] = error
        self.resume(attempt, folder)

    def confirm(self, attempt: AttemptId, answer: int) -> None:
        """Wait for the word of an added supervisor, pass it on, and watch."""
        said = answered(answer)
        if said.startswith("started"):
            self.sink(AttemptStarted(attempt, self._clock()))
        elif said.startswith("error"):
            self._errors[attempt] = said.removeprefix("error").strip()
        self._watch(attempt)

    def resume(self, attempt: AttemptId, folder: Folder) -> None:
        """Watch a claimed attempt if it lives, report its end otherwise. A lock is taken before a claim."""
        if attempt in self._live:
            return
        if folder.locked() and not folder.closed_off():
            claim = read_json(folder / "claim") or {}
            at = claim.get("at")
            self.sink(AttemptStarted(attempt, at if type(at) is int else self._clock()))
            self.find(attempt, folder)
        else:
            self.finish(attempt)

    def find(self, attempt: AttemptId, folder: Folder) -> None:
        """Find the supervisor that holds the lock; again later while it has not written who it is."""
        with self._lock:
            self._live.setdefault(attempt, None)
        self._look(attempt, folder, 0)

    def _look(self, attempt: AttemptId, folder: Folder, tries: int) -> None:
        if self._live.get(attempt, -1) is not None:
            return  # found, or ended, meanwhile
        says = folder.holder()
        pidfd = processes.open_pid(*says) if says is not None else None
        if pidfd is None:
            if not folder.locked():
                self.finish(attempt)
                return
            if says is None and tries * LOOK_SECONDS >= HUNG_SECONDS:
                self._pass_over(attempt, folder)
                return
            self.later(LOOK_SECONDS, attempt, partial(self._look, attempt, folder, tries + 1))
            return
        with self._lock:
            self._live[attempt] = pidfd
        self._watch(attempt)
        if folder.stop_ordered:
            self.signal(attempt)

    def _pass_over(self, attempt: AttemptId, folder: Folder) -> None:
        """Another server hangs between claim and fork. No supervisor runs what has an exit record."""
        log.warning(
            "the lock of %s is held, but by no supervisor: it is lost to a server that hangs", attempt
        )
        stopped = folder.stop_ordered
        self.record(attempt, Exit(at=self._clock(), stopped=stopped, lost=True))
        self.finish(attempt)

    def _watch(self, attempt: AttemptId) -> None:
        pidfd = self._live[attempt]
        if pidfd is not None:
            self._watcher.add(
                pidfd, partial(self._strands.submit, attempt[:2], partial(self.finish, attempt))
            )

    def signal(self, attempt: AttemptId) -> None:
        """Ask it to end."""
        pidfd = self._live.get(attempt)
        if pidfd is None:
            return  # anyone who finds its supervisor sees the file `stop`
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        except ProcessLookupError:
            return  # it ended by itself; its end is on the way

    def send(self, attempt: AttemptId, number: int) -> None:
        """A signal to its processes. Raises ValueError, OSError."""
        if attempt not in self._live:
            raise ValueError("it has ended")
        says = self._layout.folder(attempt).holder()
        self._launcher.send(attempt, number, says[0] if says is not None else None)

    def kill(self, attempt: AttemptId) -> None:
        """The grace of a stop is over before that of its supervisor, which is left to write the record."""
        if attempt in self._live:
            says = self._layout.folder(attempt).holder()
            spare = says[0] if says is not None else None
            self._launcher.end(attempt.__eq__, spare=spare, waiting=self.waiting)

    def finish(self, attempt: AttemptId) -> None:
        """Nothing of it is to live any more: see to that, then report its end.

        A supervisor that ends with 0 has seen the last of its descendants end, so nobody looks for them:
        a look at each process of the machine takes milliseconds.
        """
        self._halt("exited")
        with self._lock:
            pidfd, code = self._live.pop(attempt, None), None
            joined = attempt in self._joined
            self._joined.discard(attempt)
        if pidfd is not None:
            code = reap(pidfd)
            os.close(pidfd)
        if code == 0 and not joined:
            self._sweep_later(attempt)
        else:
            self._launcher.end(attempt.__eq__, waiting=self.waiting)
        folder = self._layout.folder(attempt)
        exit = folder.read_exit()
        error = self._errors.pop(attempt, "")
        if exit is None:
            stopped = folder.stop_ordered and not error
            exit = Exit(at=self._clock(), stopped=stopped, lost=not error, error=error)
            self.record(attempt, exit)
        if not (exit.succeeded or exit.stopped):
            met = self._launcher.met(attempt)
            oom = self._kills.fresh(exit.code, exit.signal) if met is None else met.oom
            exit = replace(exit, note=(met.text if met else "") or last_said(folder, GPU_SAYS), oom=oom)
        self.report(attempt, exit)

    def report(self, attempt: AttemptId, exit: Exit) -> None:
        """Say that it ended, of which nothing lives."""
        self.release(attempt)
        self.sink(AttemptEnded(attempt, exit))
        self._halt("reported")

    def _sweep_later(self, attempt: AttemptId) -> None:
        with self._lock:
            first = not self._unswept
            self._unswept.add(attempt)
        if first:
            self._watcher.after(SWEEP_SECONDS, partial(self._strands.submit, "strays", self._sweep))

    def _sweep(self) -> None:
        """End what carries the environment of an attempt that ended and descends from something else."""
        with self._lock:
            ended, self._unswept = self._unswept, set()
        if count := self._launcher.end(ended.__contains__, waiting=self.waiting):
            log.warning("ended %d processes that had copied the environment of a task that ended", count)

    def later(self, seconds: float, attempt: AttemptId, call: Callable[[], None]) -> None:
        """Call on the strand of its task."""
        self._watcher.after(seconds, partial(self._strands.submit, attempt[:2], call))

    def waiting(self, left: list[processes.Carrier]) -> None:
        """Processes hang in the kernel; raises Closed if nobody needs to know any more. None named: nobody
        can tell."""
        names = ", ".join(f"{one.pid} of {one.attempt}" for one in left)
        log.warning("SIGKILL has not ended %s yet", names or "a task: the warden does not answer")
        if self._closed.is_set():
            raise Closed
