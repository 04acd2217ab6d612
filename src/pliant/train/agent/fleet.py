"""Runs the worker processes of one machine, one per device, and the master's process. No torch."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pliant.train.errors import EX_TEMPFAIL, MasterAway, Refused, TrainError
from pliant.train.master.calls import MasterClient
from pliant.train.master.httpd import listen

START_MS = 60_000  # a worker that has not registered by then counts as lost


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker process that has ended. Exactly one of code and signal is not None."""

    worker: str
    device: str
    code: int | None
    signal: int | None
    left: bool  # it was asked to leave, or ended with code 0 or EX_TEMPFAIL


@dataclass(slots=True)
class _Process:
    worker: str
    device: str
    process: Any  # a Popen, or what `start` gave
    deadline: float | None = None  # monotonic s: when it gets the next signal, SIGTERM and then SIGKILL
    asked: bool = False  # to leave
    told: bool = False  # the master knows that it is to leave
    termed: bool = False


class MasterProcess:
    """`python -m pliant.train master` as a child process. This process owns the listening socket, so it
    survives the master's death; calls meanwhile wait in the socket's queue. Workers reach the master as
    `known_as`, by default the host on which it listens."""

    def __init__(
        self,
        folder: Path,
        job: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        known_as: str = "",
        min_workers: int = 1,
        options: Sequence[str] = (),
        log: IO[bytes] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.job = folder, job
        self.token = _token(folder)
        self._listener = listen(host, port)
        own, chosen = self._listener.getsockname()[:2]
        self.address = f"{known_as or own}:{chosen}"
        self._options = ["--min-workers", str(min_workers), *options]
        self._log = log
        self._started = 0.0
        self.restarts = -1
        self.process = self._start()
        self.client = MasterClient(self.address, self.token)

    def _start(self) -> subprocess.Popen[bytes]:
        fd = self._listener.fileno()
        argv = [sys.executable, "-m", "pliant.train", "master", "--dir", str(self.folder), "--job", self.job]
        self.restarts += 1
        self._started = time.monotonic()
        return subprocess.Popen(
            [*argv, "--listen-fd", str(fd), *self._options], pass_fds=[fd], stdout=self._log, stderr=self._log
        )

    def poll(self) -> None:
        """Restart it if it has ended. Raises TrainError if it exits with an error within 5 s of its start."""
        code = self.process.poll()
        if code is None:
            return
        if code > 0 and time.monotonic() - self._started < 5:
            raise TrainError(f"The master exited at once with code {code}; its output says why")
        self.process = self._start()

    def environment(self) -> dict[str, str]:
        """The variables by which its workers find it."""
        return {
            "PLIANT_TRAIN_MASTER": self.address,
            "PLIANT_TRAIN_TOKEN_FILE": str(self.folder / "token"),
            "PLIANT_TRAIN_JOB": self.job,
            "PLIANT_TRAIN_DIR": str(self.folder),
        }

    def close(self) -> None:
        """Kill it and free the port."""
        self.process.kill()  # the ledger survives a kill
        self.process.wait()
        self._listener.close()
        self.client.close()


def _token(folder: Path) -> str:
    path = folder / "token"
    if not path.exists():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as out:
            out.write(secrets.token_urlsafe(32))
    return path.read_text("utf-8").strip()


class Fleet:
    """Keeps exactly one worker process on each device that it is told to hold. Not thread-safe."""

    def __init__(
        self,
        command: Sequence[str],
        client: MasterClient,
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        grace_ms: int = 30_000,
        prefix: str = "w",
        logs: bool = False,
        start: Callable[..., Any] = subprocess.Popen,
        renew: bool = True,
    ) -> None:
        """`renew`: replace a worker that was killed by SIGKILL."""
        self._renew = renew
        self._command = list(command)
        self._client = client
        self._folder = folder
        self._env = {**os.environ, **(env or {})}
        self._grace_ms = grace_ms
        self._prefix = f"{prefix}{secrets.token_hex(2)}-" if prefix == "w" else prefix
        self._logs = logs
        self._start = start
        self._processes: list[_Process] = []
        self._wanted: list[str] = []
        self._given_up: set[str] = set()  # devices on which no further worker is started
        self._number = 0
        self._owed: list[Exit] = []  # exits not yet reported to the master

    def hold(self, devices: Sequence[str], *, left_ms: int | None = None) -> None:
        """From now on keep a worker on each of these devices and no other; returns at once. Workers that
        leave get SIGTERM after left_ms (default: the grace period) and SIGKILL one grace period later."""
        self._wanted = list(dict.fromkeys(devices))
        self._given_up &= set(self._wanted)
        left = self._grace_ms if left_ms is None else left_ms
        for process in self._processes:
            if process.device not in self._wanted and not process.asked:
                process.asked, process.deadline = True, time.monotonic() + left / 1000
        self._tell_who_leaves()
        self._fill()

    def poll(self) -> list[Exit]:
        """Reap ended workers, report them to the master, enforce deadlines, replace lost workers. Call it
        often. Returns the exits."""
        exits = []
        for process in list(self._processes):
            code = process.process.poll()
            if code is None:
                self._press(process)
                continue
            self._processes.remove(process)
            exit_code, killed_by = (code, None) if code >= 0 else (None, -code)
            left = process.asked or code in (0, EX_TEMPFAIL)
            exits.append(Exit(process.worker, process.device, exit_code, killed_by, left))
            ends = code in (0, EX_TEMPFAIL) or (code == -signal.SIGKILL and not self._renew)
            if ends and not process.asked:
                self._given_up.add(process.device)
        self._owed += exits
        while self._owed:
            one = self._owed[0]
            if not self._tell("exited", {"worker": one.worker, "code": one.code, "signal": one.signal}):
                break
            self._owed.pop(0)
        self._tell_who_leaves()
        self._fill()
        return exits

    def devices(self) -> list[str]:
        """The devices with a live worker process."""
        return [process.device for process in self._processes]

    def pids(self) -> dict[str, int]:
        """Worker -> process id, of the live workers."""
        return {process.worker: process.process.pid for process in self._processes}

    def close(self) -> None:
        """Kill all workers and wait for them."""
        for process in self._processes:
            process.process.kill()
        for process in self._processes:
            process.process.wait()
        self._processes.clear()

    def _tell_who_leaves(self) -> None:
        """Tell the master which workers leave, again until it has answered."""
        untold = [p for p in self._processes if p.asked and not p.told]
        if untold and self._tell("leave", {"workers": [p.worker for p in untold]}):
            for process in untold:
                process.told = True

    def _fill(self) -> None:
        held = {process.device for process in self._processes}
        missing = [d for d in self._wanted if d not in held and d not in self._given_up]
        names = [f"{self._prefix}{self._number + i}" for i in range(len(missing))]
        if not missing:
            return
        try:
            answer = self._client.call("expect", {"workers": names, "left_ms": START_MS}, patience_s=0.5)
        except (MasterAway, Refused):
            return  # the next poll tries again
        if answer.get("stop") is not None:  # the job is over: a new worker would find nothing to do
            self._given_up |= set(missing)
            return
        self._number += len(missing)
        for name, device in zip(names, missing, strict=True):
            env = {**self._env, "PLIANT_TRAIN_WORKER": name, "PLIANT_TRAIN_DEVICE": device}
            gpu = device.partition("#")[0]  # "0#1" is another worker on GPU 0
            if gpu.startswith(("GPU-", "MIG-")) or gpu.isdigit():
                env["CUDA_VISIBLE_DEVICES"] = gpu
            out: int | IO[bytes] | None = None
            if self._logs:
                (self._folder / "logs").mkdir(exist_ok=True)
                out = (self._folder / "logs" / f"{name}.log").open("ab")
            started = self._start(self._command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            if out is not None and not isinstance(out, int):
                out.close()
            self._processes.append(_Process(name, device, started))

    def _press(self, process: _Process) -> None:
        if process.deadline is None or time.monotonic() < process.deadline:
            return
        if process.termed:
            process.process.kill()
            return
        process.process.send_signal(signal.SIGTERM)
        process.termed, process.deadline = True, time.monotonic() + self._grace_ms / 1000

    def _tell(self, name: str, body: dict[str, Any]) -> bool:
        try:
            self._client.call(name, body, patience_s=0.5)
        except (MasterAway, Refused):
            return False
        return True


def master_record(folder: Path, address: str, job: str) -> None:
    """Write master.json, the address of this folder's master."""
    aside = folder / f".master.json.{os.getpid()}"
    body = {"version": 1, "address": address, "pid": os.getpid(), "job": job}
    aside.write_text(json.dumps(body), "utf-8")
    aside.rename(folder / "master.json")


def inherited(fd: int) -> socket.socket:
    """The listening socket that the agent passed to this process."""
    return socket.socket(fileno=fd)
