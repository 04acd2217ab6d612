"""Starts attempts as the local engine does, under either supervisor, and reads what they leave."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "native" / "supervise.c"
TWIN = ROOT / "src" / "pliant" / "engines" / "local" / "fallback" / "supervise.py"
FALLBACK = "pliant-supervise: the Python fallback: no compiled supervisor is installed\n"
SECONDS = 120.0  # for what takes milliseconds on an idle machine


def compiler() -> str | None:
    """The C compiler; $CC takes precedence."""
    wanted = os.environ.get("CC")
    return next((cc for cc in ([wanted] if wanted else ["cc", "gcc", "clang"]) if shutil.which(cc)), None)


def compile_c(source: Path, target: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*shlex.split(compiler() or "cc"), "-std=gnu11", *flags, "-o", str(target), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def until(condition: Callable[[], Any], what: str) -> Any:
    """Polls a condition; returns its value once it is true. Fails after SECONDS."""
    end = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {SECONDS} s for: {what}"
        time.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    """True if the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def carriers(attempt: str) -> list[int]:
    """Live processes with PLIANT_ATTEMPT=attempt in their environment."""
    wanted = f"PLIANT_ATTEMPT={attempt}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


class Attempt:
    """One attempt folder and the supervisor that works in it."""

    def __init__(self, folder: Path, supervisor: Sequence[str], environment: dict[str, str]) -> None:
        self.folder = folder
        self.folder.mkdir()
        # Unique in all test processes: whatever carries it is killed in the end.
        self.id = f"{uuid4().hex}/{folder.name}/1"
        self.supervisor = list(supervisor)
        self.environment = {"PATH": os.environ["PATH"], **environment, "PLIANT_ATTEMPT": self.id}
        self.lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.process: subprocess.Popen[str] | None = None
        self.ready = ""  # the line on --ready-fd

    @property
    def is_fallback(self) -> bool:
        return str(TWIN) in self.supervisor

    def launch(
        self,
        *argv: str | bytes,
        options: Sequence[str | bytes] = (),
        wrap: Sequence[str] = (),
        leak: Sequence[int] = (),
        stderr: int = subprocess.DEVNULL,
        at_once: bool = False,
    ) -> None:
        """Returns once the supervisor has reported whether the task runs; at once with `at_once`.

        leak: descriptors that the supervisor must not keep.
        """
        read, write = os.pipe()
        own = ["--dir", str(self.folder), "--lock-fd", str(self.lock_fd), "--ready-fd", str(write)]
        self.process = subprocess.Popen(
            [*wrap, *self.supervisor, *own, *options, *argv],
            env=self.environment,
            pass_fds=(self.lock_fd, write, *leak),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )
        os.close(write)
        os.close(self.lock_fd)
        with open(read, errors="surrogateescape") as pipe:
            self.ready = "" if at_once else pipe.read()

    def shell(self, script: str, *options: str, **more: Any) -> None:
        """Runs script in the attempt's parent folder, where it may leave files."""
        cwd = ("--cwd", str(self.folder.parent))
        self.launch("sh", "-c", script, options=(*cwd, *options, "--"), **more)

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    @property
    def task_pid(self) -> int:
        word, pid = self.ready.split()
        assert word == "started"
        return int(pid)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait(SECONDS)

    def wait(self) -> dict[str, Any]:
        """Waits until the supervisor exits with 0; returns exit.json."""
        assert self.process
        assert self.process.wait(SECONDS) == 0
        record: dict[str, Any] = json.loads(self.path("exit.json").read_text())
        return record

    def path(self, name: str) -> Path:
        return self.folder / name

    def output(self) -> str:
        """The log, without the fallback's first line."""
        text = self.path("log").read_text()
        if not self.is_fallback:
            return text
        assert not text or text.startswith(FALLBACK)
        return text.removeprefix(FALLBACK)

    def says(self, text: str) -> None:
        until(lambda: text in self.output(), f"{text!r} in the log")

    def lock_is_free(self) -> bool:
        with open(self.path("lock")) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def clear(self) -> None:
        """Ends all that a test started."""
        if self.process:
            self.process.kill()
            self.process.wait(SECONDS)
            if self.process.stderr:
                self.process.stderr.close()
        else:
            os.close(self.lock_fd)
        while pids := carriers(self.id):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def python_twin() -> list[str]:
    return [sys.executable, "-S", "-E", str(TWIN)]
