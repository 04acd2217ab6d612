"""Tracks claimed attempts: watches each until it ends, finds it again after a restart, kills what is left."""

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

GPU_SAYS = "pliant-gpu: "  # prefix of the log lines of the library that enforces shares of GPUs
LOOK_SECONDS = 0.1  # between two looks for a supervisor that has not written its pid yet
SWEEP_SECONDS = 1.0  # from an end to one search for copies of its environment; later ends join the search
AGAIN_SECONDS = 1.0  # between two tries to see how an attempt is, e.g. while no descriptor is free
HUNG_SECONDS = 5.0  # after this, the holder of a lock that has not written its pid counts as a hung server


class Living:
    """Any thread may call `joining`, `now`, `lives`, `send`, `close`; all else runs on the task's strand."""

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
        self.release: Callable[[AttemptId], None] = lambda attempt: None  # gives back its shares of GPUs
        self._layout, self._launcher, self._closed = layout, launcher, closed
        self._watcher, self._strands = watcher, strands
        self._clock, self._halt = clock, halt
        self._lock = threading.Lock()
        self._kills = Kills()
        # Live attempts with the pidfd of their supervisor, None until that is known. To add a command (exec)
        # needs the lock: after an attempt is removed here, nothing can join it.
        self._live: dict[AttemptId, int | None] = {}
        self._joined: set[AttemptId] = set()  # live ones with commands (exec), which no supervisor reaps
        self._unswept: set[AttemptId] = set()  # ended since the last look for strays
        self._errors: dict[AttemptId, str] = {}  # why a claimed attempt could not start
        self._watcher.after(COUNT_SECONDS, self._count_kills)

    def __contains__(self, attempt: AttemptId) -> bool:
        return attempt in self._live

    @contextmanager
    def joining(self, attempt: AttemptId) -> Iterator[bool]:
        """True if it lives; a process that is added to it inside the block ends with it."""
        with self._lock:
            if lives := attempt in self._live:
                self._joined.add(attempt)
            yield lives

    def _count_kills(self) -> None:
        self._kills.look()
        self._watcher.after(COUNT_SECONDS, self._count_kills)

    def now(self) -> list[AttemptId]:
        """All live attempts."""
        with self._lock:
            return list(self._live)

    def lives(self, workload: str) -> bool:
        with self._lock:
            return any(attempt.workload == workload for attempt in self._live)

    def close(self) -> None:
        """Close all pidfds, after the watcher and the strands were closed."""
        for pidfd in self._live.values():
            if pidfd is not None:
                os.close(pidfd)
        self._live.clear()

    def record(self, attempt: AttemptId, exit: Exit) -> None:
        """Write exit.json for an attempt whose supervisor has written none."""
        try:
            self._layout.folder(attempt).record_exit(attempt, exit)
        except OSError as error:  # the store has the end too; only the folder lacks it
            log.warning("the end of %s is not on disk: %s", attempt, error)

    def add(self, attempt: AttemptId, pidfd: int) -> None:
        """Add a live attempt with the pidfd of its supervisor."""
        with self._lock:
            self._live[attempt] = pidfd

    def fail(self, attempt: AttemptId, folder: Folder, error: str) -> None:
        """Note why a claimed attempt has no supervisor, and report its end.

        If the starter died before it could answer, there may be a supervisor: then watch the attempt.
        """
        self._errors[attempt] = error
        self.resume(attempt, folder)

    def confirm(self, attempt: AttemptId, answer: int) -> None:
        """Wait for the answer of an added supervisor, report it, and watch the supervisor."""
        said = answered(answer)
        if said is None or said.startswith("started"):  # a slow one counts as an adopted one does
            self.sink(AttemptStarted(attempt, self._clock()))
        elif said.startswith("error"):
            self._errors[attempt] = said.removeprefix("error").strip()
        self._watch(attempt)

    def resume(self, attempt: AttemptId, folder: Folder) -> None:
        """Watch a claimed attempt if it lives, else report its end. The lock is taken before the claim."""
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
        """Find the supervisor that holds the lock; look again until it has written its pid."""
        with self._lock:
            self._live.setdefault(attempt, None)
        self._look(attempt, folder, 0)

    def _look(self, attempt: AttemptId, folder: Folder, tries: int) -> None:
        if self._live.get(attempt, -1) is not None:
            return  # found, or ended, meanwhile
        try:
            says = folder.holder()
            pidfd = processes.open_pid(*says) if says is not None else None
            held = pidfd is not None or folder.locked()
        except OSError as error:
            self._again(attempt, partial(self._look, attempt, folder, tries), error)
            return
        if pidfd is None:
            if not held:
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
        """End an attempt whose server hangs between claim and fork: after exit.json no supervisor starts."""
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
        """Ask its supervisor to end it (SIGTERM)."""
        pidfd = self._live.get(attempt)
        if pidfd is None:
            return  # once its supervisor is found, the file `stop` is seen
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        except ProcessLookupError:
            return  # it has ended; the watcher reports that

    def send(self, attempt: AttemptId, number: int) -> None:
        """Send a signal to its processes, not to its supervisor. Raises ValueError, OSError."""
        if attempt not in self._live:
            raise ValueError("it has ended")
        says = self._layout.folder(attempt).holder()
        self._launcher.send(attempt, number, says[0] if says is not None else None)

    def kill(self, attempt: AttemptId) -> None:
        """SIGKILL its processes: its grace period is over. The supervisor is spared and writes the record."""
        if attempt in self._live:
            says = self._layout.folder(attempt).holder()
            spare = says[0] if says is not None else None
            self._launcher.end(attempt.__eq__, spare=spare, waiting=self.waiting)

    def finish(self, attempt: AttemptId) -> None:
        """Kill what is left of the attempt, then report its end.

        A supervisor that exits with 0 has seen its last descendant end, so they are not searched for at once:
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
        alone = code == 0 and not joined
        if alone:
            self._sweep_later(attempt)
        self._conclude(attempt, alone)

    def _conclude(self, attempt: AttemptId, alone: bool) -> None:
        """Report the end of an attempt; kill what is left of it first unless it is known to be `alone`."""
        folder = self._layout.folder(attempt)
        try:
            if not alone:
                self._launcher.end(attempt.__eq__, waiting=self.waiting)
            exit = folder.read_exit()
        except OSError as trouble:
            self._again(attempt, partial(self._conclude, attempt, alone), trouble)
            return
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

    def _again(self, attempt: AttemptId, step: Callable[[], None], error: OSError) -> None:
        """Take a step again later that fails now: without it the end would never be reported."""
        log.warning("%s cannot be looked at; the next try is in %g s: %s", attempt, AGAIN_SECONDS, error)
        self.later(AGAIN_SECONDS, attempt, step)

    def report(self, attempt: AttemptId, exit: Exit) -> None:
        """Report the end of an attempt of which no process lives."""
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
        """Kill processes that carry an ended attempt's environment but do not descend from its supervisor."""
        with self._lock:
            ended, self._unswept = self._unswept, set()
        if count := self._launcher.end(ended.__contains__, waiting=self.waiting):
            log.warning("ended %d processes that had copied the environment of a task that ended", count)

    def later(self, seconds: float, attempt: AttemptId, call: Callable[[], None]) -> None:
        """Call after that time, on the strand of its task."""
        self._watcher.after(seconds, partial(self._strands.submit, attempt[:2], call))

    def waiting(self, left: list[processes.Carrier]) -> None:
        """Log the processes that SIGKILL has not ended yet; none are given if the warden does not answer.
        Raises Closed if the engine was closed."""
        names = ", ".join(f"{one.pid} of {one.attempt}" for one in left)
        log.warning("SIGKILL has not ended %s yet", names or "a task: the warden does not answer")
        if self._closed.is_set():
            raise Closed
