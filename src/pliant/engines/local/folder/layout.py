"""The state folder as engine, supervisors and jobs share it; the contract is docs/reference/attempt.md."""

import fcntl
import json
import logging
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pliant.control.ports import StaleEpoch
from pliant.engines.local.folder.regular import Odd, open_regular, read_regular
from pliant.model.workload import AttemptId, Exit

log = logging.getLogger(__name__)

VERSION = 1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LayoutError(Exception):
    """The state folder cannot be used by this release; the message says why and what to do."""


class Folder:
    """One attempt's folder. Files appear in it by rename or O_EXCL: a reader never sees half of one."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def claimed(self) -> bool:
        return os.path.exists(self.path / "claim")  # unlike Path.exists, False if its folder is closed

    @property
    def stop_ordered(self) -> bool:
        return os.path.exists(self.path / "stop")

    def locked(self) -> bool:
        """True while a supervisor, or a starter between claim and fork, holds the lock."""
        try:
            fd = open_regular(self.path / "lock")
        except FileNotFoundError:
            return False
        except Odd as error:
            log.warning("not read: %s", error)
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two readers do not block each other
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def closed_off(self) -> bool:
        """True if an engine has recorded the end: then nothing of it lives, even if the lock is held."""
        return (read_json(self.path / "exit.json") or {}).get("by") == "engine"

    def take_lock(self) -> int | None:
        """A descriptor that holds the lock, or None if another process holds it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def claim(self, document: Mapping[str, Any]) -> bool:
        """Claim the attempt for good, durably; False if it was claimed before. Take the lock first."""
        try:
            fd = os.open(self.path / "claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        try:
            with suppress(
                OSError
            ):  # the file's existence is the claim: without its content only a timestamp is lost
                os.write(fd, json.dumps(document).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        sync(self.path)
        return True

    def record_exit(self, attempt: AttemptId, exit: Exit) -> None:
        """Write exit.json for an attempt that has no supervisor to do so."""
        document = {
            "version": VERSION,
            "attempt": str(attempt),
            "code": exit.code,
            "signal": exit.signal,
            "stopped": exit.stopped,
            "stop_requested_ms": None,
            "started_ms": exit.at,
            "ended_ms": exit.at,
            "killed": False,
            "error": exit.error or None,
            "log_dropped": 0,
            "lost": exit.lost,
            "by": "engine",
        }
        write_json(self.path / "exit.json", document, durable=True)

    def read_exit(self) -> Exit | None:
        """The content of exit.json; None if it is missing or malformed (a job may have written it)."""
        document = read_json(self.path / "exit.json")
        if document is None:
            return None
        at, code, signal, rss = (document.get(it) for it in ("ended_ms", "code", "signal", "max_rss_kb"))
        number = (int, type(None))
        numbers = isinstance(code, number) and isinstance(signal, number)
        if type(at) is not int or at < 0 or not numbers:
            log.warning("%s is no record of an end", self.path / "exit.json")
            return None
        return Exit(
            at=at,
            code=code,
            signal=signal,
            stopped=bool(document.get("stopped")),
            lost=bool(document.get("lost", False)),
            error=str(document.get("error") or "").encode(errors="replace").decode(),
            max_rss=rss * 1024 if type(rss) is int else 0,
        )

    def holder(self) -> tuple[int, int] | None:
        """(pid, start) of the supervisor, as it wrote them into the lock; None if it has not."""
        says = read_json(self.path / "lock") or {}
        pid, start = says.get("pid"), says.get("start")
        return (pid, start) if type(pid) is int and type(start) is int and pid > 1 else None


class Layout:
    """Paths under the state folder, its version, and the highest epoch that was seen."""

    def __init__(self, state: Path) -> None:
        self.state = state.resolve()  # jobs carry these paths in their environment
        self.attempts = self.state / "attempts"
        self.checkpoints = self.state / "checkpoints"  # job folders, by workload
        self.jobs = self.state / "jobs"  # the same by project and name, as links

    def prepare(self) -> None:
        """Make the folders, or raise LayoutError if a newer release made them."""
        for folder in (self.attempts, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.attempts / "VERSION"
        text = path.read_text().strip() if path.exists() else ""
        if not text:
            write(path, f"{VERSION}\n".encode(), durable=True)
        elif not text.isdigit() or int(text) > VERSION:
            raise LayoutError(
                f"{path} says {text!r}, this release knows layouts up to {VERSION}: "
                "the folder was used by a newer release; run that one, or choose another state folder"
            )
        for trash in self.attempts.glob(".trash-*"):
            shutil.rmtree(trash, ignore_errors=True)

    def folder(self, attempt: AttemptId) -> Folder:
        for part in (attempt.workload, attempt.task):
            if not part or part.startswith(".") or "/" in part or "\0" in part:
                raise ValueError(f"{part!r} in attempt {attempt} cannot be the name of a folder")
        return Folder(self.attempts / attempt.workload / attempt.task / str(attempt.number))

    def make(self, attempt: AttemptId) -> Folder:
        """The attempt's folder, created if missing; its name survives a loss of power."""
        folder = self.folder(attempt)
        missing = [path for path in (folder.path, *folder.path.parents[:2]) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True, mode=0o700)
        for path in missing:  # once all are made: the first sync writes the names of all
            sync(path.parent)
        return folder

    def attempt_of(self, folder: str) -> AttemptId | None:
        """The attempt whose folder that is; None if it is not one of this state folder."""
        parts = folder.removeprefix(f"{self.attempts}/").split("/")
        if not folder.startswith(f"{self.attempts}/") or len(parts) != 3 or not parts[2].isdigit():
            return None
        return AttemptId(parts[0], parts[1], int(parts[2]))

    def raise_epoch(self, epoch: int) -> None:
        """Refuse lower epochs from now on. Raises StaleEpoch if a higher one was seen."""
        fd = os.open(self.attempts / "EPOCH", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            seen = int(os.pread(fd, 32, 0).strip() or b"0")
            if epoch < seen:
                raise StaleEpoch(f"epoch {epoch} is over: {seen} leads")
            if epoch > seen:
                os.pwrite(fd, b"%-20d\n" % epoch, 0)
                os.fsync(fd)
        finally:
            os.close(fd)

    def epoch(self) -> int:
        try:
            return int((self.attempts / "EPOCH").read_text().strip() or "0")
        except FileNotFoundError:
            return 0

    def rebooted(self) -> bool:
        """True if the machine was restarted since the last call: its processes are gone, pids are reused."""
        boot = boot_id()
        path = self.state / "boot_id"
        before = path.read_text().strip() if path.exists() else ""
        if boot != before:
            write(path, f"{boot}\n".encode(), durable=True)
        return before not in ("", boot)

    def checkpoint_folder(self, workload: str) -> Path:
        return self.checkpoints / workload

    def discard(self, workload: str) -> list[Path]:
        """Move a workload's folders out of the way at once; the caller deletes what is returned."""
        moved = []
        for kind in (self.attempts, self.checkpoints):
            target = self.attempts / f".trash-{kind.name}-{workload}"
            with suppress(FileNotFoundError):
                (kind / workload).rename(target)
                moved.append(target)
        return moved


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def write(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o600) -> None:
    """Replace a file as a whole; `durable`: it survives a loss of power."""
    # A name of its own for each writer: a server that was replaced may still be writing the same file.
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if mode != 0o600:
                os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        os.replace(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def write_json(path: Path, document: Mapping[str, Any], *, durable: bool = False) -> None:
    write(path, json.dumps(document, indent=1).encode() + b"\n", durable=durable)


def read_json(path: Path) -> dict[str, Any] | None:
    """None if the file is missing, was torn by a loss of power, or was replaced by a job."""
    try:
        document = json.loads(read_regular(path))
    except (FileNotFoundError, ValueError):
        return None
    except (Odd, RecursionError) as error:
        log.warning("not read: %s", error)
        return None
    return document if isinstance(document, dict) else None


def sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
