"""The parent's part of a run: restore, step by step, checkpoint, report."""

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np

from .checkpoint import Checkpoint, CheckpointError, load, move_aside, save
from .crew import Crew, WorkerDied
from .digits import TRAINING, Digits
from .exchange import open_exchange
from .network import accuracy, initial_parameters, update
from .pace import Pace
from .settings import BATCH, Settings

_WAKING: Final = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


def train(settings: Settings, crew: Crew) -> int:
    """Train until all steps are done or a stop is requested; returns the exit status."""
    folder = Path(settings.checkpoint_dir) if settings.checkpoint_dir else None
    try:
        start, how = _where_to_start(settings.seed, folder)
    except OSError as error:
        _complain(f"cannot use the checkpoint folder: {error}")
        return 1
    run = _Run(settings, crew, folder, start)
    try:
        run.announce(how)
        stop = run.steps()
        if stop:
            return run.leave(f"stop requested ({stop})", 0)
        return run.leave(f"finished: {run.held_out_report()}", 0)
    except WorkerDied as death:
        _complain(f"{death}; the run cannot continue without it")
        return run.leave("failed", 1)
    except BrokenPipeError:
        _complain("the reader of the output is gone")
        return run.leave(None, 1)


def _where_to_start(seed: int, folder: Path | None) -> tuple[Checkpoint, str]:
    """The state to begin with, and what to tell about it. Raises OSError."""
    parameters = initial_parameters(seed)
    fresh = Checkpoint(0, parameters, np.zeros_like(parameters))
    if not folder:
        return fresh, "starting at step 0; no checkpoints, because PLIANT_CHECKPOINT_DIR is not set"
    try:
        found = load(folder, seed)
    except CheckpointError as error:
        aside = move_aside(folder)
        return fresh, f"the checkpoint cannot be used: {error}; moved to {aside}, starting again at step 0"
    if found:
        return found, f"resuming at step {found.step} from the checkpoint in {folder}"
    return fresh, f"starting at step 0; checkpoints go to {folder}"


class _Run:
    def __init__(self, settings: Settings, crew: Crew, folder: Path | None, start: Checkpoint) -> None:
        self._settings = settings
        self._crew = crew
        self._folder = folder
        self._exchange = open_exchange(crew.memory, crew.size)
        self._exchange.parameters[:] = start.parameters
        self._velocity = start.velocity
        self._step = start.step  # the next one to run; parameters and velocity hold all before it
        self._digits = Digits(settings.seed)
        self._saved = time.monotonic()

    def announce(self, how: str) -> None:
        """Print what is trained on what, and `how` it starts."""
        settings, crew = self._settings, self._crew
        gpus = f"{_count(len(crew.gpus), 'GPU')} ({','.join(crew.gpus) or 'training on the CPU'})"
        _say(f"{gpus}; {_count(crew.size, 'worker')}; one step per {settings.step_seconds:g} s")
        records = f"{TRAINING} records to train on and {self._digits.records - TRAINING} held out"
        _say(f"UCI digits, {records}; batch {BATCH}, seed {settings.seed}, {settings.steps} steps")
        _say(how)

    def steps(self) -> str | None:
        """Run the steps that are left; returns the name of the signal that asked for a stop, if one did."""
        settings, exchange = self._settings, self._exchange
        pace = Pace(settings.step_seconds, time.monotonic(), time.process_time(), self._crew.size)
        first, window_step, window_start = self._step, self._step, pace.due
        while not (stop := self._pause(pace.due)):
            step, started = self._step, time.monotonic()
            if step >= settings.steps:
                return None
            self._crew.begin(step)
            if not self._crew.finish(step):
                return self._pause(started)  # the step is given up; the checkpoint has all before it
            loss, right = exchange.results.sum(axis=0)
            update(exchange.parameters, self._velocity, exchange.gradients.sum(axis=0), step)
            self._step = step + 1
            pace.after(time.monotonic(), started, time.process_time(), exchange.cpu_seconds.tolist())
            if step in (first, settings.steps - 1) or step % settings.print_every == 0:
                rate = BATCH * (self._step - window_step) / (pace.due - window_start)
                window_step, window_start = self._step, pace.due
                of_step = f"step={step} loss={loss / BATCH:.12f} accuracy={right / BATCH:.4f}"
                _print(f"{of_step} records/s={rate:.0f} gpus={len(self._crew.gpus)}")
            self._save_now_and_then()
        return stop

    def held_out_report(self) -> str:
        held_out = self._digits.held_out()
        part = accuracy(self._exchange.parameters, *held_out)
        return f"accuracy={part:.4f} on {held_out[1].size} held-out records after {self._step} steps"

    def leave(self, why: str | None, status: int) -> int:
        """Write the checkpoint and print `why`; returns `status`, or 1 if it cannot be written."""
        saved = "no checkpoint: PLIANT_CHECKPOINT_DIR is not set"
        if self._folder:
            try:
                self._save(self._folder)
            except OSError as error:
                _complain(f"cannot write the checkpoint of step {self._step}: {error}")
                return 1
            saved = f"checkpoint of step {self._step} in {self._folder}"
        if why:
            _say(f"{why}; {saved}")
        return status

    def _pause(self, due: float) -> str | None:
        """Sleep until `due`; returns the name of a stop signal as soon as one comes. Raises WorkerDied."""
        while got := signal.sigtimedwait(_WAKING, max(0.0, due - time.monotonic())):
            if got.si_signo == signal.SIGCHLD:
                self._crew.check()
            elif got.si_signo in _WAKING:  # else the wait ended while this process was stopped
                return signal.Signals(got.si_signo).name
        return None

    def _save(self, folder: Path) -> None:
        save(folder, self._settings.seed, Checkpoint(self._step, self._exchange.parameters, self._velocity))

    def _save_now_and_then(self) -> None:
        if self._folder and time.monotonic() - self._saved >= self._settings.checkpoint_seconds:
            self._saved = time.monotonic()
            try:
                self._save(self._folder)
            except OSError as error:
                _complain(f"cannot write the checkpoint: {error}; training continues and will try again")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _say(text: str) -> None:
    _print(f"quickstart: {text}")


def _print(line: str) -> None:
    try:
        os.write(1, line.encode() + b"\n")  # one write per line: never a torn line, nothing to flush
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # The disk of the log is full: training goes on without it, and stderr may well be the same file.


def _complain(text: str) -> None:
    sys.stderr.write(f"quickstart: {text}\n")
