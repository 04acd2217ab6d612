"""Carries out orders on this machine's attempts: each is claimed at most once, even if ordered repeatedly."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pliant.control.fractions import Enforcement, Fractions, HandedOut, How
from pliant.control.ports import Halt
from pliant.control.submit.variables import Variables
from pliant.engines.local.folder.layout import VERSION, Folder, Layout, read_json, write, write_json
from pliant.engines.local.folder.sealed import EnvironmentLost, SealedFolder
from pliant.engines.local.folder.trash import Trash
from pliant.engines.local.images.catalogue import Catalogue, CatalogueError
from pliant.engines.local.launch.distributed import files
from pliant.engines.local.launch.environment import NoFolder, Site, document
from pliant.engines.local.launch.launcher import Launcher
from pliant.engines.local.launch.rendezvous import NoPort, Rendezvous
from pliant.engines.local.launch.warden import Away
from pliant.engines.local.living import Living
from pliant.engines.local.resizing import Resizing
from pliant.engines.meeting import allocation, ports_needed, present
from pliant.model.machine import Node
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import Attempt, AttemptId, Exit, Workload

log = logging.getLogger(__name__)

OUTRUN_MS = 2000  # after the supervisor's grace period, in which it ends the processes that it sees
AGAIN_SECONDS = 1.0  # between two tries of an order that the warden did not answer
FITS_SECONDS = 0.2  # between two checks that a task uses no more memory than it may
NOT_STARTABLE = 126  # exit code if another attempt could not start either; shells and supervisors use it too
LOCK_SECONDS = 2.0  # to wait for a server that holds the lock of an attempt and has not claimed it yet


@dataclass(frozen=True, slots=True)
class Means:
    """What attempts are started with."""

    site: Callable[[], Site]
    project_name: Callable[[str], str]  # by project id
    token: Callable[[AttemptId], str | None]
    clock: Callable[[], int]  # ms since the epoch
    halt: Halt
    launcher: Launcher
    fractions: Fractions
    writable: Callable[[], str]  # why tasks could change what the node wrote for them; empty: they cannot
    node: Callable[[str], Node | None]  # by name, as last seen
    rows: Callable[[Start], Mapping[str, object]]  # the rows that an order follows from, kept with it


class Attempts:
    """All methods run on the strand of the task: one at a time per task."""

    def __init__(
        self, layout: Layout, catalogue: Catalogue, living: Living, closed: threading.Event, means: Means
    ) -> None:
        self._layout, self._catalogue, self._living = layout, catalogue, living
        self._closed, self._means = closed, means
        self._halt, self._clock = means.halt, means.clock
        self.rendezvous = Rendezvous(layout)
        self.sealed = SealedFolder(layout.state)
        self.trash = Trash(layout)
        self.resizing = Resizing(layout, living, means.launcher)
        self._unanswered: dict[AttemptId, Resize] = {}  # the newest order that the launcher has not done

    def start(self, order: Start) -> None:
        attempt = order.attempt
        if self._stale(order) or attempt in self._living:
            return
        try:
            folder = self._layout.make(attempt)
            if folder.claimed:
                self._resume(attempt, folder)
                return
            self._end_earlier(attempt)
            what, env = self._prepare(order, folder)
            self._halt("ordered")
            lock = self._take_lock(folder)
        except (CatalogueError, EnvironmentLost, NoFolder) as error:
            self._refuse(attempt, str(error), NOT_STARTABLE)
            return
        except NoPort as error:
            self._refuse(attempt, str(error))
            return
        except (OSError, ValueError) as error:
            self._refuse(attempt, f"the attempt cannot be prepared: {error}")
            return
        if lock is None:  # another server hangs between lock and claim: the claim decides
            if not self._closed.is_set():
                self._close_off(attempt, Exit(at=self._clock(), lost=True))
            return
        claimed, answer, trouble = False, None, ""
        try:
            if self._stale(order):
                return
            claimed = folder.claim(self._claim(attempt))
            if claimed:
                self._halt("claimed")
                answer = self._spawn(order, folder, what, env, lock)
                self._halt("forked")
        except (OSError, ValueError) as error:
            trouble = (
                f"its supervisor cannot be started: {error}" if claimed else f"it cannot be claimed: {error}"
            )
        finally:
            os.close(lock)  # the supervisor shares the lock and keeps it
        if answer is not None:
            self._living.confirm(attempt, answer)
        elif claimed:
            self._living.fail(attempt, folder, trouble)
        elif trouble:
            self._refuse(attempt, trouble)
        else:  # claimed by another server
            self._resume(attempt, folder)

    def stop(self, order: Stop) -> None:
        attempt = order.attempt
        if self._stale(order):
            return
        folder = self._layout.folder(attempt)
        document = {"version": VERSION, "cause": order.cause, "grace_ms": order.grace, "at": self._clock()}
        try:
            self._layout.make(attempt)
            write_json(folder / "stop", document, durable=True)
        except OSError as error:
            log.warning("stop of %s is not on disk: %s", attempt, error)
        self._halt("stop-ordered")
        claimed = folder.claimed
        if not claimed and attempt not in self._living:
            self._close_off(attempt, Exit(at=self._clock(), stopped=True))
            return
        self._living.resume(attempt, folder)
        if attempt not in self._living:
            return
        self._living.signal(attempt)
        self._halt("stop-signalled")
        granted = (read_json(folder / "order.json") or {}).get("grace_ms", order.grace)
        if not claimed:  # its folder was removed: a second SIGTERM ends its supervisor's tries to write there
            again = partial(self._living.signal, attempt)
            self._living.later((granted + OUTRUN_MS) / 1000, attempt, again)
        wait = order.grace  # its supervisor would wait longer
        if order.grace >= granted:  # its supervisor kills what it sees; a job that keeps forking can escape
            if not self._means.launcher.boxed:
                return
            wait = granted + OUTRUN_MS
        self._living.later(wait / 1000, attempt, partial(self._living.kill, attempt))

    def resize(self, order: Resize, report: Callable[[], None]) -> None:
        """Call `report` once what the attempt loses is free: no process of it uses the lost devices, and it
        uses no more memory of the others than it may. If it still uses more at the deadline, it is stopped.
        """
        if self._stale(order) or order.attempt not in self._living:
            self._unanswered.pop(order.attempt, None)
            return
        self._unanswered[order.attempt] = order
        node = self._means.node(order.placement.node)
        try:
            self._means.launcher.resize(
                order, read_json(self._layout.folder(order.attempt) / "order.json") or {}
            )
            if node is not None:
                self._means.fractions.resize(order, node, keep=True)
        except Away as error:
            log.warning("the limits of %s are set again in %g s: %s", order.attempt, AGAIN_SECONDS, error)
            self._living.later(AGAIN_SECONDS, order.attempt, partial(self._resize_again, order, report))
            return
        except (OSError, ValueError) as error:  # it still carries its old shares, so none is given twice
            log.warning("the shares of %s cannot be changed: %s", order.attempt, error)
            del self._unanswered[order.attempt]
            return
        del self._unanswered[order.attempt]
        deadline = 0 if self.resizing.going(order) else self._clock() + order.grace
        self.resizing.resize(order, partial(self._give_back, order, report, deadline))

    def _resize_again(self, order: Resize, report: Callable[[], None]) -> None:
        if self._unanswered.get(order.attempt) is order:
            self.resize(order, report)

    def _give_back(self, order: Resize, report: Callable[[], None], deadline: int) -> None:
        """Report, look again, or stop the attempt, which may free memory by itself until `deadline` (ms)."""
        if order.attempt not in self._living:
            return
        if self._means.fractions.fits(order.attempt):
            if (node := self._means.node(order.placement.node)) is not None:
                self._means.fractions.resize(order, node)
            report()
        elif self._clock() < deadline:
            again = partial(self._give_back, order, report, deadline)
            self._living.later(FITS_SECONDS, order.attempt, again)
        else:
            log.warning("%s still uses more memory than it may have: it is stopped", order.attempt)
            granted = (read_json(self._layout.folder(order.attempt) / "order.json") or {}).get("grace_ms", 0)
            self.stop(Stop(order.attempt, order.placement.node, granted, order.cause, order.epoch))

    def give_way(self, attempt: AttemptId) -> None:
        """Stop an attempt that keeps lent memory which another task now has; the next one gets none of it."""
        order = read_json(self._layout.folder(attempt) / "order.json")
        if order is not None and attempt in self._living:
            self.stop(Stop(attempt, order["node"], order["grace_ms"], "lent", self._layout.epoch()))

    def adopt(self, row: Attempt, rebooted: bool) -> None:
        """Report on an attempt that an earlier server knew. After a reboot its lock means nothing."""
        attempt = row.id
        folder = self._layout.folder(attempt)
        if not folder.claimed:
            if row.started is not None:  # it ran elsewhere: these rows were restored, or its folder was lost
                self._means.launcher.end(attempt.__eq__, waiting=self._living.waiting)
                self._close_off(attempt, Exit(at=self._clock(), lost=True))
            return  # else it was never begun: the loop repeats its order
        if rebooted:
            self._living.finish(attempt)
        else:
            self._resume(attempt, folder)

    def _resume(self, attempt: AttemptId, folder: Folder) -> None:
        """Resume an attempt that was claimed before; if it lives, its shares of GPUs are watched again."""
        order = read_json(folder / "order.json") or {}
        if (said := order.get("enforcement")) and not folder.closed_off() and folder.locked():
            enforcement, node = Enforcement(How(said["how"]), said["why"]), self._means.node(order["node"])
            self._means.fractions.adopt(attempt, folder.path, enforcement, node)
        self._living.resume(attempt, folder)

    # ---- steps of a start ----

    def _prepare(self, order: Start, folder: Folder) -> tuple[dict[str, Any], dict[str, str]]:
        project = self.project_of(order.workload)
        if not self._means.launcher.boxed:  # a boxed one is the user's, made with the task
            self._layout.checkpoint_folder(order.workload.id).mkdir(exist_ok=True, mode=0o700)
            self.trash.link(order.workload, project)
        attempt = order.attempt
        token = self._means.token(attempt)
        if token is not None:
            write(folder / "token", token.encode())
        allocated = read_json(folder / "allocation.json")
        if allocated is None:
            allocated = allocation(order)
            write_json(folder / "allocation.json", allocated)
        there = present(allocated)
        for name, (text, mode) in files(order.workload, attempt.task, there, folder.path).items():
            write(folder / name, text.encode())
            os.chmod(folder / name, mode)
        handed = self._hand_out(order, folder)
        what, env = document(
            order,
            self._means.site(),
            self._catalogue,
            self._variables(order),
            project=project,
            at=self._clock(),
            token=token is not None,
            present=there,
            port=self._port(order),
            handed=handed,
            places=self._means.launcher.places(order.workload, attempt),
            home=self._means.launcher.home(order.workload),
        )
        what |= self._means.launcher.noted(order, self._means.node(order.placement.node))
        if rows := self._means.rows(order):
            what["rows"] = dict(rows)
        self.sealed.keep(attempt, env)
        write_json(folder / "order.json", what, durable=True)
        return what, env

    def project_of(self, workload: Workload) -> str:
        return self._means.project_name(workload.project)

    def _variables(self, order: Start) -> Variables:
        """The variables of the task's launch. Raises EnvironmentLost."""
        if not order.workload.sealed:
            return Variables()
        return self.sealed.variables(order.workload.id, order.attempt.task.rpartition("-")[0])

    def _hand_out(self, order: Start, folder: Folder) -> HandedOut:
        """Raises OSError, ValueError."""
        node = self._means.node(order.placement.node)
        if node is None or not order.placement.shares:
            return HandedOut()
        return self._means.fractions.hand_out(order, node, folder.path, self._means.writable())

    def _port(self, order: Start) -> int:
        """The first of the ports that the workload's tasks share; 0 if they need none. Raises NoPort."""
        count = ports_needed(order.workload)
        if not count:
            return 0
        lives = partial(self._living.lives, order.attempt.workload)
        return self.rendezvous.ports(order.attempt, count, lives)

    def _take_lock(self, folder: Folder) -> int | None:
        """The lock's descriptor; None once its holder has claimed, after LOCK_SECONDS, or at `close`."""
        for _ in range(int(LOCK_SECONDS / 0.02)):
            if (lock := folder.take_lock()) is not None:
                return lock
            if folder.claimed or self._closed.wait(0.02):
                break
        return None

    def _spawn(
        self, order: Start, folder: Folder, what: dict[str, Any], env: dict[str, str], lock: int
    ) -> int:
        """Start the supervisor; the descriptor to read its answer from. Raises OSError, ValueError."""
        node = self._means.node(order.placement.node)
        pidfd, answer = self._means.launcher.spawn(order, folder, what, env, lock, node)
        self._living.add(order.attempt, pidfd)
        return answer

    def _end_earlier(self, attempt: AttemptId) -> None:
        if attempt.number == 1:
            return
        workload, task, number = attempt

        def earlier(other: AttemptId) -> bool:
            return other.workload == workload and other.task == task and other.number < number

        count = self._means.launcher.end(earlier, waiting=self._living.waiting)
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

    def _claim(self, attempt: AttemptId) -> dict[str, Any]:
        return {"version": VERSION, "attempt": str(attempt), "pid": os.getpid(), "at": self._clock()}

    def _refuse(self, attempt: AttemptId, error: str, code: int | None = None) -> None:
        self._close_off(attempt, Exit(at=self._clock(), code=code, error=error))

    def _close_off(self, attempt: AttemptId, exit: Exit) -> None:
        """Claim and end an attempt that has not begun, so that it never does; resume it if it was claimed."""
        try:
            folder = self._layout.make(attempt)
            if not folder.claim(self._claim(attempt)):
                self._living.resume(attempt, folder)
                return
        except (OSError, ValueError) as error:
            log.warning("the claim of %s, which is not to begin, is not on disk: %s", attempt, error)
        else:
            self._living.record(attempt, exit)
        self._living.report(attempt, exit)
