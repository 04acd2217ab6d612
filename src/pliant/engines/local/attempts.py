"""The life of attempts on this machine: claimed once, watched, ended, and found again by the next server."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pliant.control.ports import Halt, Sink
from pliant.engines.local import processes
from pliant.engines.local.environment import Site, allocation, document
from pliant.engines.local.images.catalogue import Catalogue, CatalogueError
from pliant.engines.local.layout import Folder, Layout, read_json, write, write_json
from pliant.engines.local.supervisor import answered, reap, spawn
from pliant.engines.local.watch import Strands, Watcher
from pliant.model.fact import AttemptEnded, AttemptStarted
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import AttemptId, Exit

log = logging.getLogger(__name__)

LOCK_SECONDS = 2.0  # for another server that holds the lock of an attempt it has not claimed yet
LOOK_SECONDS = 0.1  # between two looks for a supervisor that has not said who it is


class Closed(Exception):
    """The engine was closed while something was waited for; the next one starts over from what is on disk."""


@dataclass(frozen=True, slots=True)
class Means:
    """What attempts are started with."""

    site: Callable[[], Site]
    project_name: Callable[[str], str]  # by project id
    token: Callable[[AttemptId], str | None]
    clock: Callable[[], int]  # ms since the epoch
    halt: Halt
    program: Sequence[str]  # the supervisor
    log_max: int  # bytes per log file
    log_keep: int


class Attempts:
    """All methods but `living`, `lives` and `close` run on the strand of the task: one at a time per task."""

    def __init__(
        self,
        layout: Layout,
        catalogue: Catalogue,
        watcher: Watcher,
        strands: Strands,
        closed: threading.Event,
        means: Means,
    ) -> None:
        self.sink: Sink = lambda fact: None
        self._layout, self._catalogue, self._watcher, self._strands = layout, catalogue, watcher, strands
        self._closed, self._means = closed, means
        self._halt, self._clock = means.halt, means.clock
        self._lock = threading.Lock()
        # What lives, with its supervisor's pidfd, None until that is known. Whoever adds to an attempt (exec)
        # holds the lock: once an attempt is taken out of here nothing joins it any more.
        self._live: dict[AttemptId, int | None] = {}
        self._errors: dict[AttemptId, str] = {}  # said by supervisors that left no exit.json

    # ---- orders ----

    def start(self, order: Start) -> None:
        attempt = order.attempt
        if self._stale(order) or attempt in self._live:
            return
        try:
            folder = self._layout.make(attempt)
            if folder.claimed:
                self._settle(attempt, folder)
                return
            self._end_earlier(attempt)
            what = self._prepare(order, folder)
            self._halt("ordered")
            lock = self._take_lock(folder)
        except CatalogueError as error:
            self._refuse(attempt, str(error))
            return
        except (OSError, ValueError) as error:
            self._refuse(attempt, f"the attempt cannot be prepared: {error}")
            return
        if lock is None:
            self._displace(attempt, folder)
            return
        answer = None
        try:
            if self._stale(order):
                return
            claimed = self._claim(attempt, folder)
            if claimed:
                self._halt("claimed")
                answer = self._spawn(attempt, folder, what, lock)
        except OSError as error:
            claimed = False
            self._errors[attempt] = f"the attempt cannot be claimed: {error}"
        finally:
            os.close(lock)  # the supervisor shares our hold and keeps it
        if answer is not None:
            self._confirm(attempt, answer)
        elif claimed:
            self._finish(attempt)
        elif attempt in self._errors:
            self._refuse(attempt, self._errors.pop(attempt))
        else:  # by another server
            self._settle(attempt, folder)

    def stop(self, order: Stop) -> None:
        attempt = order.attempt
        if self._stale(order):
            return
        folder = self._layout.folder(attempt)
        document = {"version": 1, "cause": order.cause, "grace_ms": order.grace, "at": self._clock()}
        try:
            self._layout.make(attempt)
            write_json(folder / "stop", document, durable=True)
        except OSError as error:
            log.warning("stop of %s is not on disk: %s", attempt, error)
        self._halt("stop-ordered")
        if not folder.claimed and self._cancel(attempt, folder):
            return
        if attempt not in self._live:
            if not folder.locked():
                self._finish(attempt)
                return
            self._find(attempt, folder)  # which passes the stop on
        else:
            self._signal(attempt)
        self._halt("stop-signalled")
        granted = (read_json(folder / "order.json") or {}).get("grace_ms", order.grace)
        if order.grace < granted:  # its supervisor would wait longer
            self._later(order.grace / 1000, attempt, partial(self._kill, attempt))

    def resize(self, order: Resize, report: Callable[[], None]) -> None:
        """Call `report` when what the attempt loses is free: at the deadline, or now if it loses nothing."""
        if self._stale(order) or order.attempt not in self._live:
            return
        shown = (read_json(self._layout.folder(order.attempt) / "allocation.json") or {}).get("tasks", [])
        had = {uuid for task in shown if task["id"] == order.attempt.task for uuid in task["gpus"]}
        if had <= set(order.placement.uuids):
            report()
        else:
            self._later(order.grace / 1000, order.attempt, report)

    def adopt(self, attempt: AttemptId, rebooted: bool) -> None:
        """Report on an attempt that an earlier server knew. After a reboot its lock means nothing."""
        folder = self._layout.folder(attempt)
        if not folder.claimed:
            return  # never begun: the loop says again what it wants
        if rebooted:
            self._finish(attempt)
        else:
            self._settle(attempt, folder)

    # ---- for exec, and the end ----

    @contextmanager
    def living(self, attempt: AttemptId) -> Iterator[bool]:
        """Whether it lives; that does not change inside the block."""
        with self._lock:
            yield attempt in self._live

    def lives(self, workload: str) -> bool:
        with self._lock:
            return any(attempt.workload == workload for attempt in self._live)

    def close(self) -> None:
        """Let go of everything; the watcher and the strands have been closed before."""
        for pidfd in self._live.values():
            if pidfd is not None:
                os.close(pidfd)
        self._live.clear()

    # ---- steps of a start ----

    def _prepare(self, order: Start, folder: Folder) -> dict[str, Any]:
        self._layout.checkpoint_folder(order.workload.id).mkdir(exist_ok=True, mode=0o700)
        token = self._means.token(order.attempt)
        if token is not None:
            write(folder / "token", token.encode())
        what = document(
            order,
            self._means.site(),
            self._catalogue,
            project=self._means.project_name(order.workload.project),
            at=self._clock(),
            token=token is not None,
        )
        if not (folder / "allocation.json").exists():
            write_json(folder / "allocation.json", allocation(order))
        write_json(folder / "order.json", what, durable=True)
        return what

    def _take_lock(self, folder: Folder) -> int | None:
        """None if somebody holds it who has not claimed in all this time."""
        for _ in range(int(LOCK_SECONDS / 0.02)):
            if (lock := folder.take_lock()) is not None:
                return lock
            if folder.claimed or self._closed.wait(0.02):
                break
        return None

    def _displace(self, attempt: AttemptId, folder: Folder) -> None:
        """Another server took the lock and hangs. Who claims decides: then it can never start the attempt."""
        exit = Exit(at=self._clock(), lost=True)
        if self._closed.is_set():
            return
        if self._claim(attempt, folder):
            self._record(attempt, folder, exit)
            self._report(attempt, exit)
        else:
            self._settle(attempt, folder)

    def _spawn(self, attempt: AttemptId, folder: Folder, what: dict[str, Any], lock: int) -> int | None:
        """The descriptor to read the supervisor's answer from; None, and the reason noted, without one."""
        means = self._means
        try:
            pid, answer = spawn(means.program, folder, what, lock, means.log_max, means.log_keep)
        except (OSError, ValueError) as error:
            self._errors[attempt] = f"its supervisor cannot be started: {error}"
            return None
        with self._lock:
            self._live[attempt] = os.pidfd_open(pid)  # not reaped yet, so it is the right one
        self._halt("forked")
        return answer

    def _confirm(self, attempt: AttemptId, answer: int) -> None:
        said = answered(answer)
        if said.startswith("started"):
            self.sink(AttemptStarted(attempt, self._clock()))
        elif said.startswith("error"):
            self._errors[attempt] = said.removeprefix("error").strip()
        self._watch(attempt)

    def _end_earlier(self, attempt: AttemptId) -> None:
        if attempt.number == 1:
            return
        workload, task, number = attempt

        def earlier(other: AttemptId) -> bool:
            return other.workload == workload and other.task == task and other.number < number

        count = processes.end(self._layout, earlier, waiting=self._waiting)
        if count:
            log.warning("ended %d processes that earlier attempts of %s left behind", count, attempt)

    # ---- claims and records ----

    def _stale(self, order: Start | Stop | Resize) -> bool:
        leads = self._layout.epoch()
        if order.epoch < leads:
            log.warning(
                "order for %s refused: its epoch %d is over, %d leads", order.attempt, order.epoch, leads
            )
        return order.epoch < leads

    def _claim(self, attempt: AttemptId, folder: Folder) -> bool:
        return folder.claim({"version": 1, "attempt": str(attempt), "pid": os.getpid(), "at": self._clock()})

    def _cancel(self, attempt: AttemptId, folder: Folder) -> bool:
        """Stop an attempt that was never begun: claimed by us it never will be. False if it was meanwhile."""
        exit = Exit(at=self._clock(), stopped=True)
        try:
            if not self._claim(attempt, folder):
                return False
        except OSError as error:
            log.warning("the claim of %s is not on disk: %s", attempt, error)
        self._record(attempt, folder, exit)
        self._report(attempt, exit)
        return True

    def _refuse(self, attempt: AttemptId, error: str) -> None:
        """The attempt ends before it began."""
        exit = Exit(at=self._clock(), error=error)
        try:
            folder = self._layout.make(attempt)
            if not self._claim(attempt, folder):
                self._settle(attempt, folder)
                return
            self._record(attempt, folder, exit)
        except (OSError, ValueError) as trouble:
            log.warning("that %s could not start is not on disk: %s", attempt, trouble)
        self._report(attempt, exit)

    def _record(self, attempt: AttemptId, folder: Folder, exit: Exit) -> None:
        try:
            folder.record_exit(attempt, exit)
        except (
            OSError
        ) as error:  # the store has the end too: only later questions to the folder are answered worse
            log.warning("the end of %s is not on disk: %s", attempt, error)

    # ---- watching ----

    def _settle(self, attempt: AttemptId, folder: Folder) -> None:
        """A claimed attempt (so its lock was taken): watch it if it lives, report its end otherwise."""
        if attempt in self._live:
            return
        if folder.locked():
            claim = read_json(folder / "claim") or {}
            self.sink(AttemptStarted(attempt, claim.get("at", self._clock())))
            self._find(attempt, folder)
        else:
            self._finish(attempt)

    def _find(self, attempt: AttemptId, folder: Folder, tries: int = 0) -> None:
        """Find the supervisor that holds the lock; again later while it has not written who it is."""
        with self._lock:
            if self._live.setdefault(attempt, None) is not None:
                return
        says = read_json(folder / "lock") or {}
        pidfd = processes.open_pid(says["pid"], says["start"]) if "start" in says else None
        if pidfd is None:
            if not folder.locked():
                self._finish(attempt)
                return
            if tries == 100:
                log.warning("the lock of %s is held, but by no supervisor: another server hangs?", attempt)
            self._later(LOOK_SECONDS, attempt, partial(self._find, attempt, folder, tries + 1))
            return
        with self._lock:
            self._live[attempt] = pidfd
        self._watch(attempt)
        if folder.stop_ordered:
            self._signal(attempt)

    def _watch(self, attempt: AttemptId) -> None:
        pidfd = self._live[attempt]
        if pidfd is not None:
            self._watcher.add(
                pidfd, partial(self._strands.submit, attempt[:2], partial(self._finish, attempt))
            )

    def _signal(self, attempt: AttemptId) -> None:
        pidfd = self._live[attempt]
        if pidfd is None:
            return  # whoever finds its supervisor sees the file `stop`
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        except ProcessLookupError:
            return  # it ended by itself; its end is on the way

    def _kill(self, attempt: AttemptId) -> None:
        """The grace of a stop is over before that of its supervisor, which is left to write the record."""
        if attempt in self._live:
            says = read_json(self._layout.folder(attempt) / "lock") or {}
            processes.end(self._layout, attempt.__eq__, spare=says.get("pid"), waiting=self._waiting)

    def _finish(self, attempt: AttemptId) -> None:
        """Nothing of it is to live any more: see to that, then report its end."""
        self._halt("exited")
        with self._lock:
            pidfd = self._live.pop(attempt, None)
        if pidfd is not None:
            reap(pidfd)
            os.close(pidfd)
        folder = self._layout.folder(attempt)
        processes.end(self._layout, attempt.__eq__, waiting=self._waiting)
        exit = folder.read_exit()
        error = self._errors.pop(attempt, "")
        if exit is None:
            stopped = folder.stop_ordered and not error
            exit = Exit(at=self._clock(), stopped=stopped, lost=not error, error=error)
            self._record(attempt, folder, exit)
        self._report(attempt, exit)

    def _report(self, attempt: AttemptId, exit: Exit) -> None:
        self.sink(AttemptEnded(attempt, exit))
        self._halt("reported")

    def _later(self, seconds: float, attempt: AttemptId, call: Callable[[], None]) -> None:
        self._watcher.after(seconds, partial(self._strands.submit, attempt[:2], call))

    def _waiting(self, left: list[processes.Carrier]) -> None:
        log.warning("SIGKILL has not ended %s yet", ", ".join(f"{one.pid} of {one.attempt}" for one in left))
        if self._closed.is_set():
            raise Closed
