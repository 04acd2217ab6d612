"""The leader: hands out the slices of each step, adds up the results, keeps the checkpoint."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from pliant.engines.local.images.quickstart.checkpoint import Checkpoint, CheckpointError, load, save
from pliant.engines.local.images.quickstart.digits import Digits
from pliant.engines.local.images.quickstart.network import accuracy, initial_parameters, update
from pliant.engines.local.images.quickstart.settings import BATCH, PARAMETERS, SLICES, Settings
from pliant.engines.local.images.quickstart.worker import slices_of

from .rank import ORDER, compute, receive

MODULE = __package__
AGENT, HOSTS = "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"
"""Variables that mpirun reads too."""


def launch(settings: Settings) -> int:
    """Lead as the launcher of an MPI job: start a rank for each slot of the host file, by its agent."""
    agent = os.environ[AGENT]
    hosts = Path(os.environ[HOSTS]).read_text().splitlines()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", str(MODULE), "--rank-of", address]
        started = [
            subprocess.Popen([agent, host.split()[0], *command])
            for host in hosts
            for _ in range(int(host.partition("slots=")[2] or 1))
        ]
        try:
            return _Run(settings, listener, own=False).until_done(len(started))
        finally:
            for process in started:
                process.terminate()
                process.wait()


def lead(settings: Settings, address: tuple[str, int], ranks: int) -> int:
    """Lead as rank 0 of a PyTorch job, which computes too."""
    with socket.create_server(address) as listener:
        return _Run(settings, listener, own=True).until_done(ranks - 1)


class _Stopped(Exception):
    """SIGTERM or SIGINT came."""


class _Run:
    def __init__(self, settings: Settings, listener: socket.socket, *, own: bool) -> None:
        self._settings = settings
        self._listener = listener
        self._own = own  # the leader is a rank itself
        self._digits = Digits(settings.seed)
        self._ranks: list[socket.socket] = []
        self._folder = Path(settings.checkpoint_dir) if settings.checkpoint_dir else None
        parameters = initial_parameters(settings.seed)
        self._state = Checkpoint(0, parameters, np.zeros_like(parameters))

    def until_done(self, expected: int) -> int:
        """Wait for `expected` ranks, train, print how it ended; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            if self._folder is not None:
                self._state = load(self._folder, self._settings.seed) or self._state
            while len(self._ranks) < expected:
                self._welcome(None)
            _say(f"{len(self._ranks) + self._own} ranks; starting at step {self._state.step}")
            self._steps()
            images, labels = self._digits.held_out()
            _say(f"finished: accuracy={accuracy(self._state.parameters, images, labels):.4f}")
        except _Stopped:
            _say(f"stopped before step {self._state.step}")
        except (CheckpointError, OSError) as error:
            print(f"quickstart-distributed: {error}", file=sys.stderr, flush=True)
            return 1
        if self._folder is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            save(self._folder, self._settings.seed, self._state)
        return 0

    def _stop(self, number: int, frame: object) -> None:
        raise _Stopped

    def _welcome(self, timeout: float | None) -> None:
        """Accept a rank within `timeout` seconds; 0: one that waits already; None: wait without a limit."""
        self._listener.settimeout(timeout)
        try:
            rank, _ = self._listener.accept()
        except (TimeoutError, BlockingIOError):
            return
        rank.settimeout(60)
        rank.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ranks.append(rank)

    def _steps(self) -> None:
        settings, due = self._settings, time.monotonic()
        while (step := self._state.step) < settings.steps:
            self._welcome(0)
            rows = self._gather(step)
            parameters, velocity = self._state.parameters.copy(), self._state.velocity.copy()
            update(parameters, velocity, rows[:, :PARAMETERS].sum(axis=0), step)
            self._state = Checkpoint(step + 1, parameters, velocity)  # whole: a stop may come at any time
            if step % settings.print_every == 0 or step == settings.steps - 1:
                loss, right = rows[:, PARAMETERS:].sum(axis=0)
                ranks = len(self._ranks) + self._own
                _print(f"step={step} loss={loss / BATCH:.12f} accuracy={right / BATCH:.4f} ranks={ranks}")
            due = max(due + settings.step_seconds, time.monotonic() - settings.step_seconds)
            time.sleep(max(0.0, due - time.monotonic()))

    def _gather(self, step: int) -> np.ndarray:
        """A row for each slice of the step; the leader computes the slices of ranks that are gone."""
        rows = np.zeros((SLICES, PARAMETERS + 2))
        ranks = len(self._ranks) + self._own or 1
        weights = self._state.parameters
        asked = [rank for at, rank in enumerate(self._ranks, 1) if _ask(rank, step, at, ranks, weights)]
        done: set[int] = set()
        if self._own:
            pieces = slices_of(step, ranks, ranks)
            rows[list(pieces)] = compute(self._digits, step, pieces, weights)
            done.update(pieces)
        for at, rank in enumerate(self._ranks, 1):
            pieces = slices_of(step, at, ranks)
            answer = _answer(rank, len(pieces)) if rank in asked else None
            if answer is None:
                rank.close()
            else:
                rows[list(pieces)] = answer
                done.update(pieces)
        self._ranks = [rank for rank in self._ranks if rank.fileno() >= 0]
        for piece in range(SLICES):
            if piece not in done:
                rows[piece] = compute(self._digits, step, range(piece, piece + 1), weights)[0]
        return rows


def _ask(rank: socket.socket, step: int, at: int, ranks: int, weights: np.ndarray) -> bool:
    try:
        rank.sendall(ORDER.pack(step, at, ranks) + weights.tobytes())
    except OSError:
        return False
    return True


def _answer(rank: socket.socket, pieces: int) -> np.ndarray | None:
    try:
        data = receive(rank, pieces * (PARAMETERS + 2) * 8)
    except OSError:
        return None
    return None if data is None else np.frombuffer(data).reshape(pieces, PARAMETERS + 2)


def _say(text: str) -> None:
    _print(f"quickstart-distributed: {text}")


def _print(line: str) -> None:
    print(line, flush=True)
