"""Starts, finds and ends the processes of attempts: as this account, or as the users."""

import os
import pwd
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pliant.engines.local.folder.layout import Folder, Layout, write
from pliant.engines.local.launch import warden
from pliant.engines.local.launch.confinement import inside
from pliant.engines.local.launch.environment import Places
from pliant.engines.local.launch.session import Begun, Child
from pliant.engines.local.launch.standard_input import reading_end
from pliant.engines.local.launch.supervisor import spawn
from pliant.engines.local.launch.warden import Away, Met, Owner, Refused, Verb, Walls, Warden
from pliant.engines.local.observe import processes
from pliant.model.identity import OWNER_GONE
from pliant.model.machine import Node, Placement
from pliant.model.order import Resize, Start
from pliant.model.quantity import GPU
from pliant.model.workload import AttemptId, Request, Workload

TOLD = ("allocation.json", "token", "hostfile", "hostfile.hydra")  # files of its attempt's folder for a job
CARDS = Path("/proc/driver/nvidia/gpus")
GROUP = re.compile(r"/user-\d+/([a-z0-9-]+)\.([a-z0-9-]+)\.(\d+)$", re.MULTILINE)
LOG_MAX, LOG_KEEP = 16 * 2**20, 3  # bytes per log file; number of older ones
PAUSE = 1.0  # seconds between two tries to end tasks while the warden does not answer
WITHOUT_GPUS = 8 * 2**30  # bytes for a task that asks for neither GPUs nor memory
Waiting = Callable[[list[processes.Carrier]], None]


class Launcher(Protocol):
    """One per server. `boxed`: tasks run as users, whose files this process may not be able to see."""

    boxed: bool

    def job(self, workload: Workload) -> Path:
        """The workload's folder, as its tasks see it. Raises ValueError."""

    def places(self, workload: Workload, attempt: AttemptId) -> Places: ...

    def home(self, workload: Workload) -> dict[str, str]:
        """Variables of the account that the task runs as, which replace the server's."""

    def noted(self, order: Start, node: Node | None) -> dict[str, Any]:
        """Entries of order.json: the task's account and limits. Raises ValueError, OSError."""

    def resize(self, order: Resize, what: Mapping[str, Any]) -> None:
        """Set the task's limits and the cards that it may open. Raises OSError."""

    def attempt_of(self, pid: int) -> AttemptId | None:
        """The attempt that a process belongs to."""

    def tell(self, folder: Folder) -> None:
        """Put what the server has written for the task where the task can read it. Raises OSError."""

    def spawn(
        self,
        order: Start,
        folder: Folder,
        what: Mapping[str, Any],
        env: Mapping[str, str],
        lock: int,
        node: Node | None,
    ) -> tuple[int, int]:
        """(supervisor's pidfd, descriptor of its answer). It shares the lock. Raises OSError, ValueError."""

    def living(self, wanted: processes.Wanted) -> set[AttemptId]:
        """The wanted attempts of which a process lives."""

    def end(self, wanted: processes.Wanted, *, spare: int | None = None, waiting: Waiting) -> int:
        """SIGKILL every process of them except `spare`, until none lives; returns how many were found."""

    def send(self, attempt: AttemptId, number: int, spare: int | None) -> None:
        """Signal every process of it except `spare`. Raises OSError."""

    def met(self, attempt: AttemptId) -> Met | None:
        """The limits that an ended attempt ran into; None: not known."""

    def begin(self, attempt: AttemptId, order: Mapping[str, Any], env: Mapping[str, str]) -> Begun | None:
        """Starts commands inside a running task; None: they start as children of this process."""

    def words(self, order: Mapping[str, Any], argv: Sequence[str]) -> list[str]: ...

    def discard(self, workload: Workload) -> None:
        """Remove what its tasks left in folders of their user."""


class OwnLauncher:
    """Everything runs as the account of this server."""

    boxed = False

    def __init__(self, layout: Layout, program: Sequence[str], log_max: int, log_keep: int) -> None:
        self._layout, self._program = layout, program
        self._log_max, self._log_keep = log_max, log_keep

    def job(self, workload: Workload) -> Path:
        return self._layout.checkpoint_folder(workload.id)

    def places(self, workload: Workload, attempt: AttemptId) -> Places:
        return Places(self.job(workload), self._layout.folder(attempt).path)

    def home(self, workload: Workload) -> dict[str, str]:
        return {}

    def noted(self, order: Start, node: Node | None) -> dict[str, Any]:
        return {}

    def resize(self, order: Resize, what: Mapping[str, Any]) -> None: ...

    def attempt_of(self, pid: int) -> AttemptId | None:
        return processes.attempt_of(self._layout, pid)

    def tell(self, folder: Folder) -> None: ...

    def spawn(
        self,
        order: Start,
        folder: Folder,
        what: Mapping[str, Any],
        env: Mapping[str, str],
        lock: int,
        node: Node | None,
    ) -> tuple[int, int]:
        return spawn(self._program, folder, what, env, lock, self._log_max, self._log_keep)

    def living(self, wanted: processes.Wanted) -> set[AttemptId]:
        return {one.attempt for one in processes.carriers(self._layout, wanted)}

    def end(self, wanted: processes.Wanted, *, spare: int | None = None, waiting: Waiting) -> int:
        return processes.end(self._layout, wanted, spare=spare, waiting=waiting)

    def send(self, attempt: AttemptId, number: int, spare: int | None) -> None:
        processes.send(self._layout, attempt.__eq__, number, spare=spare)

    def met(self, attempt: AttemptId) -> Met | None:
        return None

    def begin(self, attempt: AttemptId, order: Mapping[str, Any], env: Mapping[str, str]) -> Begun | None:
        return None

    def words(self, order: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
        return inside(self._program, order.get("read_only"), argv) if argv else list(argv)

    def discard(self, workload: Workload) -> None: ...


class BoxLauncher:
    """Tasks run as the users who submitted them: the warden starts, finds and ends them."""

    boxed = True

    def __init__(
        self,
        layout: Layout,
        gate: Warden,
        users: Path,
        account: Callable[[Workload], Owner | None],
        log_max: int = LOG_MAX,
        log_keep: int = LOG_KEEP,
        cards: Path = CARDS,
        told: Mapping[str, str] | None = None,
    ) -> None:
        """`users`: folder in which the warden keeps the tasks' files; `told`: variables of every task."""
        self._gate, self._users, self._epoch, self._account = gate, users, layout.epoch, account
        self._log_max, self._log_keep, self._cards = log_max, log_keep, cards
        self._told, self._met = dict(told or {}), dict[AttemptId, Met]()

    def job(self, workload: Workload) -> Path:
        return self._users / str(self._owner(workload).uid) / workload.id / "files"

    def places(self, workload: Workload, attempt: AttemptId) -> Places:
        job = self.job(workload)
        return Places(job, job.parent / f"{attempt.task}.{attempt.number}")

    def home(self, workload: Workload) -> dict[str, str]:
        entry = _entry(self._owner(workload))
        return {
            "HOME": entry.pw_dir,
            "USER": entry.pw_name,
            "LOGNAME": entry.pw_name,
            "SHELL": entry.pw_shell,
            **self._told,
        }

    def noted(self, order: Start, node: Node | None) -> dict[str, Any]:
        walls = self._walls(order, node)
        held = {"memory": walls.memory, "cpu": walls.cpu, "processes": walls.processes}
        return {"uid": self._owner(order.workload).uid, "walls": held}

    def resize(self, order: Resize, what: Mapping[str, Any]) -> None:
        place, held, owner = order.placement, what["walls"], Owner(what["uid"], "")
        walls = Walls(place.memory or held["memory"], place.cpu, held["processes"], self._devices(place))
        self._gate.ask(Verb.LIMITS, self._epoch(), attempt=order.attempt, owner=owner, walls=walls)

    def attempt_of(self, pid: int) -> AttemptId | None:
        """By its control group, which a process cannot choose."""
        with suppress(OSError):
            found = GROUP.search(Path(f"/proc/{pid}/cgroup").read_text("ascii"))
            if found is not None:
                return AttemptId(found[1], found[2], int(found[3]))
        return None

    def tell(self, folder: Folder) -> None:
        public = folder / "pub"
        public.mkdir(mode=0o755, exist_ok=True)
        public.chmod(0o755)  # its parents are not: a task gets here only by the warden's mount
        for name in TOLD:
            with suppress(FileNotFoundError):
                write(public / name, (folder / name).read_bytes(), mode=0o444)

    def spawn(
        self,
        order: Start,
        folder: Folder,
        what: Mapping[str, Any],
        env: Mapping[str, str],
        lock: int,
        node: Node | None,
    ) -> tuple[int, int]:
        self.tell(folder)
        answer, said = os.pipe()
        fds = [said]
        try:
            fds.append(warden.launch(what["argv"], env))
            fds.append(reading_end(folder.path, fifo=what["stdin"] and not what["tty"]))
            got = self._gate.ask(
                Verb.START,
                self._epoch(),
                attempt=order.attempt,
                owner=self._owner(order.workload),
                walls=self._walls(order, node),
                fds=(lock, *fds),
                flags=warden.TTY * bool(what["tty"]) | warden.STDIN * bool(what["stdin"]),
                cwd=what["cwd"],
                folder=str(folder.path),
                grace=what["grace_ms"],
                log_max=self._log_max,
                log_keep=self._log_keep,
            )
        except BaseException:
            os.close(answer)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        return got.fds[0], answer

    def living(self, wanted: processes.Wanted) -> set[AttemptId]:
        groups = self._gate.list(self._epoch())
        return {group.attempt for group in groups if group.populated and wanted(group.attempt)}

    def end(self, wanted: processes.Wanted, *, spare: int | None = None, waiting: Waiting) -> int:
        """Ignores `spare`: a supervisor is not in the control group of its task, and ends after it."""
        count = 0
        while True:
            try:
                found = [group for group in self._gate.list(self._epoch()) if wanted(group.attempt)]
                for group in found:
                    self._end(group)
                    count += group.populated
                return count
            except Away:
                waiting([])
                time.sleep(PAUSE)

    def highest(self) -> int:
        """The highest epoch that the warden has seen. Raises Away."""
        return self._gate.epoch()

    def _end(self, group: warden.Group) -> None:
        attempt, owner = group.attempt, Owner(group.uid, "")
        said = self._gate.ask(Verb.SIGNAL, self._epoch(), attempt=attempt, owner=owner, flags=warden.END)
        if said.oom or said.unforked:
            self._met[attempt] = said.met()

    def send(self, attempt: AttemptId, number: int, spare: int | None) -> None:
        """Ignores `spare`: a supervisor is not in the control group of its task."""
        for group in self._gate.list(self._epoch()):
            if group.attempt == attempt:
                owner = Owner(group.uid, "")
                self._gate.ask(Verb.SIGNAL, self._epoch(), attempt=attempt, owner=owner, signal=number)

    def met(self, attempt: AttemptId) -> Met | None:
        return self._met.pop(attempt, Met())

    def begin(self, attempt: AttemptId, order: Mapping[str, Any], env: Mapping[str, str]) -> Begun | None:
        uid = int(order["uid"])

        def start(argv: Sequence[str], source: int, written: int, tty: bool) -> Child:
            words = warden.launch(argv, env)
            try:
                answer = self._gate.ask(
                    Verb.EXEC,
                    self._epoch(),
                    attempt=attempt,
                    owner=Owner(uid, pwd.getpwuid(uid).pw_name),
                    fds=(source, written, words),
                    flags=warden.TTY * tty,
                    cwd=order["cwd"],
                    keep=True,
                )
            finally:
                os.close(words)
            assert answer.connection is not None
            return _Joined(answer.pid, answer.fds[0], answer.connection)

        return start

    def words(self, order: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
        return list(argv)

    def discard(self, workload: Workload) -> None:
        self._gate.discard(self._epoch(), workload.id, self._owner(workload))

    def _owner(self, workload: Workload) -> Owner:
        """Raises ValueError."""
        owner = self._account(workload)
        if owner is None:
            raise ValueError("it has no account on this machine to run as: no-account")
        return owner

    def _walls(self, order: Start, node: Node | None) -> Walls:
        request = _request(order)
        memory = request.memory
        if not memory and node is not None and node.memory:
            part = order.placement.gpu
            memory = node.memory * 9 // 10 * part // (GPU * len(node.gpus)) if part else WITHOUT_GPUS
            memory = min(memory, node.memory)
        devices = self._devices(order.placement)
        return Walls(memory, request.cpu, max(1024, 4096 * len(order.placement.shares)), devices)

    def _devices(self, placement: Placement) -> tuple[tuple[int, int], ...]:
        found = (card(gpu, self._cards) for gpu in placement.uuids)
        return tuple(device for device in found if device is not None)


class _Joined:
    """A command that the warden runs inside a task; its second answer tells how it ended."""

    def __init__(self, pid: int, pidfd: int, connection: socket.socket) -> None:
        self.pid, self.pidfd, self._link = pid, pidfd, connection
        self._code: int | None = None
        self._lock = threading.Lock()
        connection.setblocking(False)

    def poll(self) -> int | None:
        with self._lock:  # called by its reader and by the watcher of its end
            if self._code is None:
                try:
                    self._code = os.waitstatus_to_exitcode(warden.receive(self._link).status)
                except BlockingIOError:
                    return None
                except (Refused, Away):
                    self._code = -signal.SIGKILL  # the process that waited for it was killed
                self._link.close()
            return self._code

    def kill(self) -> None:
        """Close the connection: then the warden ends the command."""
        with self._lock:
            if self._code is None:
                self._code = -signal.SIGKILL
                self._link.close()


def _entry(owner: Owner) -> pwd.struct_passwd:
    """The owner's account. Raises ValueError if it is gone, also if another account has its uid now."""
    try:
        entry = pwd.getpwuid(owner.uid)
    except KeyError:
        raise ValueError(f"uid {owner.uid} of {owner.name} has no name any more: {OWNER_GONE}") from None
    if entry.pw_name != owner.name:
        raise ValueError(f"uid {owner.uid} is {entry.pw_name} now, it was {owner.name}: {OWNER_GONE}")
    return entry


def card(gpu: str, folder: Path = CARDS) -> tuple[int, int] | None:
    """(major, minor) of a GPU's device node, by its driver; None for a simulated one. Raises OSError."""
    for file in folder.glob("*/information"):
        text = file.read_text("utf-8")
        found = dict(re.findall(r"^(GPU UUID|Device Minor):\s*(\S+)", text, re.MULTILINE))
        if found.get("GPU UUID") == gpu:
            seen = os.stat(f"/dev/nvidia{found['Device Minor']}").st_rdev
            return os.major(seen), os.minor(seen)
    return None


def _request(order: Start) -> Request:
    name = order.attempt.task.rpartition("-")[0]
    return next(group.request for group in order.workload.groups if group.name == name)
