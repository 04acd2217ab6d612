"""The local engine: every task is a process of this machine under a supervisor of its own."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from pliant.control.errors import BadRequest
from pliant.control.fractions import Fractions, TaskUse, Unheld
from pliant.control.ports import Devices, Folders, GpuLoad, Halt, Kept, Load, Sink
from pliant.control.submit.variables import Sealed, Variables
from pliant.engines.local.attempts import Attempts, Means
from pliant.engines.local.folder import log_times, logs
from pliant.engines.local.folder.layout import Layout, boot_id, read_json, write_json
from pliant.engines.local.images.catalogue import Catalogue, CatalogueError, Entry
from pliant.engines.local.launch import volumes
from pliant.engines.local.launch.commands import Commands
from pliant.engines.local.launch.confinement import writable
from pliant.engines.local.launch.environment import (
    NoFolder,
    Site,
    check_folder,
    environment,
    inherited,
    same_folder,
    working_dir,
)
from pliant.engines.local.launch.launcher import Launcher, OwnLauncher
from pliant.engines.local.launch.session import LocalSession
from pliant.engines.local.launch.standard_input import TaskInput, task_input
from pliant.engines.local.launch.supervisor import command
from pliant.engines.local.living import Living
from pliant.engines.local.observe.usage import Usage
from pliant.engines.local.observe.watch import Strands, Watcher
from pliant.engines.local.resizing import Resizing, Seen
from pliant.model.fact import AttemptResized, NodeSeen
from pliant.model.machine import Node, Placement
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import Attempt, AttemptId, Launch, Workload

log = logging.getLogger(__name__)

WORKERS = 16  # threads that start and end tasks; each may wait for a process to die
OPEN_SECONDS = 10  # `open` returns after that time even if leftover processes still live
REFRESH_SECONDS = 5.0  # between two looks at real devices


def nowhere(point: str) -> None:
    """The Halt of production: does nothing."""


def wall_clock() -> int:
    """Ms since the epoch."""
    return time.time_ns() // 1_000_000


class LocalEngine:
    """See control.ports.Engine. Its state is on disk and in /proc: a new engine continues from there."""

    name = "local"
    tunnels = None

    def __init__(
        self,
        state: Path,
        devices: Devices,
        *,
        project_name: Callable[[str], str] = str,
        url: Callable[[], str] = str,
        authority: str = "",
        token: Callable[[AttemptId], str | None] = lambda attempt: None,
        reporter_url: str = "",
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], int] = wall_clock,
        halt: Halt = nowhere,
        supervisor: Sequence[str] | None = None,
        log_max: int = 16 * 2**20,
        log_keep: int = 3,
        occupants: Seen = dict,
        cards: Callable[[], Mapping[str, GpuLoad]] = dict,
        fractions: Fractions | None = None,
        rows: Callable[[Start], Mapping[str, object]] = lambda order: {},
        launcher: Launcher | None = None,
    ) -> None:
        """`project_name` maps a project's id to its name; `token`: what an attempt authenticates with;
        `environ`: the server's environment, by default os.environ; `log_max`: bytes per log file;
        `log_keep`: number of older log files; `occupants`: pids by device, as drivers count them; `cards`:
        load of each real GPU; `fractions` enforces shares of GPUs; `rows`: the rows kept with an order, from
        which a lost store can recover the attempt; `launcher` starts tasks, by default as this account."""
        program, self.supervisor_notice = command() if supervisor is None else (tuple(supervisor), "")
        self._devices = devices
        self._layout = Layout(state)
        self._catalogue = Catalogue(self._layout.state / "images.yaml")
        self._watcher = Watcher()
        self._strands = Strands(WORKERS)
        self._closed = threading.Event()
        self._sessions: set[LocalSession] = set()
        self._sessions_lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._clock = clock
        self._sink: Sink = lambda fact: None
        self._epoch = 0  # of the leader whose orders it carries out

        def site() -> Site:
            seen = inherited(os.environ if environ is None else environ)
            return Site(self._layout, seen, url(), reporter_url, authority)

        self._site = site
        self._commands = Commands()
        self._program = program
        self._launcher = launcher or OwnLauncher(self._layout, program, log_max, log_keep)
        self._fractions = fractions or Unheld("this server was given nothing to enforce it with")
        means = Means(
            site,
            project_name,
            token,
            clock,
            halt,
            self._launcher,
            self._fractions,
            cache(lambda: writable(program)),
            self._node,
            rows,
        )
        self._living = Living(
            self._layout, self._launcher, self._watcher, self._strands, self._closed, clock, halt
        )
        self._usage, self._cards = Usage(self._layout, self._living.now), cards
        self._living.release = self._fractions.release
        self._attempts = Attempts(self._layout, self._catalogue, self._living, self._closed, means)
        self._resizing = self._attempts.resizing = Resizing(
            self._layout, self._living, self._launcher, occupants
        )

        self._fractions.evict = self._evict

    def open(self, sink: Sink, known: Iterable[Attempt], epoch: int) -> None:
        """Raises StaleEpoch, or LayoutError for a state folder of a newer release."""
        self._sink = self._living.sink = sink
        self._layout.prepare()
        self._layout.raise_epoch(epoch)
        self._epoch = epoch
        rebooted = self._layout.rebooted()
        if self.supervisor_notice:
            log.warning("%s", self.supervisor_notice)
        self._see_nodes()
        rows = {attempt.id: attempt for attempt in known if attempt.exit is None}
        alive = frozenset(rows)
        done = [self._run("orphans", partial(self._end_orphans, alive))]
        for attempt in sorted(alive):
            done.append(self._run(attempt[:2], partial(self._attempts.adopt, rows[attempt], rebooted)))
        if not wait(done, OPEN_SECONDS).not_done:
            self._fractions.sweep()
        if not self._devices.simulated:
            self._watcher.after(REFRESH_SECONDS, self._refresh)

    def start(self, order: Start) -> None:
        self._strands.submit(order.attempt[:2], partial(self._attempts.start, order))

    def stop(self, order: Stop) -> None:
        self._strands.submit(order.attempt[:2], partial(self._attempts.stop, order))

    def resize(self, order: Resize) -> None:
        """The job reads allocation.json; the engine checks that no process uses what the job loses."""

        def report(place: Placement = order.placement) -> None:
            self._sink(AttemptResized(order.attempt, place.shares, self._clock(), place.cpu, place.memory))

        self._strands.submit(order.attempt[:2], partial(self._attempts.resize, order, report))

    def register(self, attempt: AttemptId, pid: int) -> None:
        self._strands.submit(attempt[:2], partial(self._resizing.register, attempt, pid))

    def acknowledge(self, attempt: AttemptId, gpus: Sequence[str]) -> None:
        self._strands.submit(attempt[:2], partial(self._resizing.acknowledge, attempt, tuple(gpus)))

    def recorded(self, attempt: AttemptId) -> None:
        """Does nothing: the record of its end is kept until its workload is forgotten."""

    def answer(self, workload: str, why: str, *, taken: bool) -> None:
        """Does nothing: this engine takes in no work that others start on its machine."""

    def refuse(self, launch: Launch, variables: Variables) -> BadRequest | None:
        if (refusal := volumes.refusal(launch.volumes, here=not self._launcher.boxed)) is not None:
            return refusal
        try:
            entry, argv = self._catalogue.resolve(launch)
            cwd = working_dir(launch, entry, self._layout.state)
            if not Path(cwd).is_absolute():
                return BadRequest(f"working directory {cwd} is not an absolute path.")
            if self._launcher.boxed:
                return None  # only the user may see it: the task's start fails if it cannot be used
            if cwd != str(self._layout.state):  # the state folder is this server's own
                check_folder(launch, cwd)
        except CatalogueError as error:
            return BadRequest(str(error))
        except NoFolder as error:
            return BadRequest(f"{error}.")
        if not launch.command and argv[:1] != launch.args[:1]:
            return None  # the image's own program
        return self._commands.problem(argv[0], environment(entry, variables, self._site()), cwd)

    def seal(self, workload: str, sealed: Sealed) -> None:
        self._attempts.sealed.seal(workload, sealed)

    def sealed(self, workload: str) -> bool:
        return self._attempts.sealed.has(workload)

    def retain(self, workloads: Container[str]) -> None:
        self._attempts.sealed.retain(workloads)

    def unseen(self, launch: Launch) -> bool:
        seen = launch.seen
        if seen is None or (seen.boot == boot_id() and (self._launcher.boxed or same_folder(seen))):
            return False
        try:
            entry, _ = self._catalogue.resolve(launch)
        except CatalogueError:
            return False  # `refuse` reports that
        return working_dir(launch, entry, self._layout.state) == seen.path

    def notice(self, launch: Launch) -> str | None:
        notices = (self._catalogue.notice(launch), volumes.notice(launch.volumes))
        return " ".join(filter(None, notices)) or None

    def allocation(self, attempt: AttemptId, document: Mapping[str, object]) -> None:
        """Raises OSError if it cannot be written; the job then goes on with the document it has."""
        if self._epoch < self._layout.epoch():  # a server that was replaced and does not know it yet
            return
        folder = self._layout.make(attempt)
        write_json(folder / "allocation.json", document)
        self._launcher.tell(folder)

    def timed(self, attempt: AttemptId) -> bool:
        return log_times.timed(self._layout.folder(attempt))

    def logs(
        self,
        attempt: AttemptId,
        *,
        follow: bool,
        tail: int | None,
        since: int | None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        folder = self._layout.folder(attempt)
        began = False

        def ended() -> bool:
            nonlocal began
            if not folder.claimed:
                return self._closed.is_set() or began  # claimed once, and gone: its workload was forgotten
            began = True
            return self._closed.is_set() or not folder.locked()

        return logs.read(folder, follow=follow, tail=tail, since=since, ended=ended, timestamps=timestamps)

    def exec(
        self, attempt: AttemptId, argv: Sequence[str], *, tty: bool, stdin: bool, rows: int, columns: int
    ) -> LocalSession:
        """Raises ValueError if the attempt does not run here."""
        order = read_json(self._layout.folder(attempt) / "order.json")
        with self._living.joining(attempt) as lives:
            if not lives or order is None:
                raise ValueError(f"{attempt} is not running: commands run only inside a running task")
            env = self._attempts.sealed.of_attempt(attempt) or order.get("env", {})  # version 1 had it there
            if tty:
                env = {"TERM": "xterm-256color", **env}
            begin, words = self._launcher.begin(attempt, order, env), self._launcher.words(order, argv)
            session = LocalSession(
                words, env, order["cwd"], tty=tty, stdin=stdin, rows=rows, columns=columns, begin=begin
            )
        if session.pid is not None:
            pidfd = session.watched()  # not reaped yet: no other thread has the session
            with self._sessions_lock:
                self._sessions.add(session)
            self._watcher.add(pidfd, partial(self._session_ended, session, pidfd))
        return session

    def signal(self, attempt: AttemptId, number: int) -> None:
        self._living.send(attempt, number)

    def input(self, attempt: AttemptId) -> TaskInput:
        return task_input(self._layout.folder(attempt))

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        return self._fractions.uses()

    def load(self) -> Load:
        return Load(self._usage.loads(), self._cards())

    def forget(self, workload: Workload) -> None:
        """Raises ValueError if an attempt of it lives, or OSError."""
        if self._epoch < self._layout.epoch():
            raise ValueError(f"epoch {self._epoch} is over")
        if self._living.lives(workload.id):
            raise ValueError(f"something of workload {workload.name} still runs: stop it first")
        self._attempts.rendezvous.forget(workload.id)
        self._attempts.sealed.forget(workload.id)
        project = self._attempts.project_of(workload)
        if self._launcher.boxed:
            self._launcher.discard(workload)
        elif not workload.purge:
            self._attempts.trash.put(workload, project, self._clock())
            return
        else:
            self._attempts.trash.unlink(workload, project)
        for folder in self._layout.discard(workload.id):
            self._strands.submit("forget", partial(shutil.rmtree, folder, ignore_errors=True))

    def folders(self, workload: Workload) -> Folders | None:
        try:
            job = self._launcher.job(workload)
        except ValueError:
            return None  # its owner has no account here
        try:
            entry, _ = self._catalogue.resolve(workload.launch)
        except CatalogueError:  # its image was taken out of the catalogue meanwhile
            entry = Entry()
        cwd = working_dir(workload.launch, entry, job)
        logs = None if self._launcher.boxed else str(self._layout.attempts / workload.id)
        return Folders(cwd, str(job), logs)

    def leaves(self, workload: Workload) -> Kept | None:
        project = self._attempts.project_of(workload)
        return self._attempts.trash.preview(workload, project, self._clock())

    def trash(self) -> Sequence[Kept]:
        return self._attempts.trash.entries()

    def restore(self, kept: Kept) -> str:
        return self._attempts.trash.restore(kept)

    def sweep(self, before: int, room: int) -> Sequence[Kept]:
        return self._attempts.trash.sweep(before, room)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._watcher.close()
        self._strands.close()
        with self._sessions_lock:
            sessions, self._sessions = self._sessions, set()
        for session in sessions:
            session.kill()
        self._living.close()
        self._fractions.close()

    def _run(self, key: object, call: Callable[[], None]) -> "Future[None]":
        """Run `call` on the strand of `key`; the future is done when it has returned or failed."""
        done: Future[None] = Future()

        def both() -> None:
            try:
                call()
            finally:
                done.set_result(None)

        self._strands.submit(key, both)
        return done

    def _end_orphans(self, known: frozenset[AttemptId]) -> None:
        """End attempts of this state folder that are not known, e.g. after an older backup was restored."""
        count = self._launcher.end(lambda attempt: attempt not in known, waiting=self._living.waiting)
        if count:
            log.warning("ended %d processes of unknown attempts", count)

    def _session_ended(self, session: LocalSession, pidfd: int) -> None:
        os.close(pidfd)
        session.exit_code()  # reaps it
        with self._sessions_lock:
            self._sessions.discard(session)

    def _evict(self, attempt: AttemptId) -> None:
        self._strands.submit(attempt[:2], partial(self._attempts.give_way, attempt))

    def _node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def _refresh(self) -> None:
        self._strands.submit("nodes", self._see_nodes)
        self._watcher.after(REFRESH_SECONDS, self._refresh)

    def _see_nodes(self) -> None:
        """Report the nodes that changed since the last look. One that does not answer becomes not ready."""
        nodes = {name: replace(node, ready=False) for name, node in self._nodes.items()}
        nodes.update((node.name, node) for node in self._devices.nodes())
        for name, node in nodes.items():
            if self._nodes.get(name) != node:
                self._sink(NodeSeen(node))
        self._nodes = nodes
