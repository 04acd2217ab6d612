"""Forks worker processes from one that has imported torch, which saves seconds of CPU for each."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any


class Forked:
    """A process of the zygote, with the part of Popen's interface that a Fleet needs."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote, self.pid = zygote, pid

    def poll(self) -> int | None:
        return self._zygote.exits.get(self.pid)

    def wait(self, timeout: float = 240) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Zygote:
    """The process from which all workers of a test session are forked."""

    def __init__(self) -> None:
        self.exits: dict[int, int] = {}
        self._born: list[int] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, command: list[str], env: dict[str, str], stdout: Any = None, **_ignored: Any) -> Forked:
        """Starts a worker like Popen([python, script, ...])."""
        out = os.readlink(f"/proc/self/fd/{stdout.fileno()}") if stdout is not None else os.devnull
        order = {"argv": command[1:], "env": dict(env), "out": out}
        assert self._process.stdin is not None
        with self._news:
            self._process.stdin.write(json.dumps(order) + "\n")
            assert self._news.wait_for(lambda: bool(self._born), 180), "the zygote does not answer"
            return Forked(self, self._born.pop(0))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("end\n")  # EOF comes only when our forked processes end
        self._process.stdin.close()
        self._process.wait(100)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                news = json.loads(line)
                with self._news:
                    if "exit" in news:
                        self.exits[news["pid"]] = news["exit"]
                    else:
                        self.exits.pop(news["pid"], None)  # of an earlier process with the same number
                        self._born.append(news["pid"])
                    self._news.notify_all()


def _child(order: dict[str, Any]) -> None:
    code = 1
    try:
        fd = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
        os.environ.clear()
        os.environ.update(order["env"])
        sys.argv = order["argv"]
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException as error:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, error.__traceback__)  # as the interpreter would
        else:
            traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _serve() -> None:
    import safetensors.torch
    import torch
    import torch.utils.data

    import pliant.train.worker.start

    assert pliant.train.worker.start.torch is torch and safetensors.torch
    torch.set_num_threads(1)
    torch.optim.SGD(torch.nn.Linear(1, 1).parameters())  # imports 900 more modules
    out_lock = threading.Lock()

    def say(news: dict[str, int]) -> None:
        with out_lock:
            sys.stdout.write(json.dumps(news) + "\n")
            sys.stdout.flush()

    alive: set[int] = set()

    def reap(*_: Any) -> None:
        for pid in list(alive):
            with contextlib.suppress(ChildProcessError):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    alive.discard(pid)
                    say({"pid": pid, "exit": os.waitstatus_to_exitcode(status)})

    def reaper() -> None:  # runs only in the parent: threads do not survive a fork
        while True:
            with fork_lock:
                reap()
            time.sleep(0.005)

    fork_lock = threading.Lock()
    threading.Thread(target=reaper, daemon=True).start()
    for line in iter(sys.stdin.readline, ""):
        if line == "end\n":
            break
        order = json.loads(line)
        with fork_lock:  # so that its exit is reported after its start
            with out_lock:
                pid = os.fork()
            if pid == 0:
                devnull = os.open(os.devnull, os.O_RDONLY)
                os.dup2(devnull, 0)
                _child(order)
            alive.add(pid)
            say({"pid": pid})
    for pid in list(alive):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
