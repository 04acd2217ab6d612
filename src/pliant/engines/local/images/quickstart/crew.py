"""The worker processes of a run, one per GPU: start, a step's round trip, death, end. No NumPy here.

Orders and answers are eight bytes (the step) through pipes; parameters and gradients are in shared memory.
A worker whose pipe ends has lost its parent and exits, so nothing outlives the task.
"""

import mmap
import os
import select
import signal
import subprocess
import sys
import time
from typing import IO, Self

from .settings import PARAMETERS, SLICES

_WORD = 8
_END_SECONDS = 0.3  # how long a worker may take to notice that its pipe ended


class WorkerDied(Exception):
    """A worker ended by itself or was killed; the message names it."""


class Crew:
    """Running workers; a context manager that ends them. Needs SIGTERM, SIGINT and SIGCHLD blocked."""

    def __init__(self, gpus: tuple[str, ...]) -> None:
        self.gpus = gpus
        self.size = max(1, len(gpus))
        self._processes: list[subprocess.Popen[bytes]] = []
        bytes_shared = exchange_bytes(self.size)
        shared = os.memfd_create("quickstart")
        try:
            os.ftruncate(shared, bytes_shared)
            self.memory = mmap.mmap(shared, bytes_shared)
            for rank in range(self.size):
                self._processes.append(self._start(rank, shared))
        except BaseException:
            self._end()
            raise
        finally:
            os.close(shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._end()

    def begin(self, step: int) -> None:
        """Tell every worker to compute its part of `step`. Raises WorkerDied."""
        for rank, process in enumerate(self._processes):
            try:
                os.write(_fd(process.stdin), step.to_bytes(_WORD, "little"))
            except BrokenPipeError:
                raise self._died(rank) from None

    def finish(self, step: int) -> bool:
        """Wait for all workers to do `step`; False: a stop is pending and one is late. Raises WorkerDied."""
        poll = select.poll()
        waiting = {_fd(process.stdout): rank for rank, process in enumerate(self._processes)}
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        while waiting:
            answers = poll.poll(100)
            if not answers and signal.sigpending() & {signal.SIGTERM, signal.SIGINT}:
                return False
            for fd, _ in answers:
                if os.read(fd, _WORD) != step.to_bytes(_WORD, "little"):
                    raise self._died(waiting[fd])
                poll.unregister(fd)
                del waiting[fd]
        return True

    def check(self) -> None:
        """Raises WorkerDied when a worker is gone."""
        for rank, process in enumerate(self._processes):
            if process.poll() is not None:
                raise self._died(rank)

    def _start(self, rank: int, shared: int) -> subprocess.Popen[bytes]:
        given = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-P": sys.flags.safe_path}
        command = [sys.executable, *(option for option in given if given[option]), "-m", str(__package__)]
        command += ["--worker", f"{rank + 1}/{self.size}", "--shared-fd", str(shared)]
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": self.gpus[rank]} if self.gpus else {})
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, pass_fds=(shared,), env=environment
        )

    def _died(self, rank: int) -> WorkerDied:
        process = self._processes[rank]
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            how = "closed its pipe"
        else:
            how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        return WorkerDied(f"worker {rank + 1}/{self.size} (pid {process.pid}) {how}")

    def _end(self) -> None:
        for process in self._processes:
            if process.stdin:
                process.stdin.close()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def exchange_bytes(workers: int) -> int:
    """Size of the shared memory: see `exchange.Exchange`."""
    return _WORD * (PARAMETERS + SLICES * PARAMETERS + SLICES * 2 + workers)


def _fd(pipe: IO[bytes] | None) -> int:
    assert pipe, "both pipes exist from start to end"
    return pipe.fileno()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
