"""Runs the quickstart as a task: real processes, found in /proc by their PLIANT_ATTEMPT."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pliant
from tests.house.waiting import until

PROGRAM = "pliant.engines.local.images.quickstart"
DEADLINE = 240.0  # seconds; a slow machine is no failure
_LINE = re.compile(r"^step=(\d+) loss=(\d+\.\d{12}) accuracy=(\d\.\d{4}) records/s=(\d+) gpus=(\d+)$", re.M)


class Run:
    """A started run; its stdout and stderr go to files, as they do under a supervisor."""

    def __init__(self, folder: Path, gpus: str | None, variables: dict[str, str]) -> None:
        self.attempt = uuid.uuid4().hex
        self._out, self._err = folder / f"{self.attempt}.out", folder / f"{self.attempt}.err"
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("QUICKSTART_")
        }
        environment |= {"PLIANT_ATTEMPT": self.attempt, "PYTHONPATH": str(Path(pliant.__file__).parents[1])}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment.pop("PLIANT_CHECKPOINT_DIR", None)
        environment |= variables | ({} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus})
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._out.read_text()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def losses(self) -> dict[int, str]:
        """Step -> its loss as printed; fails if a step is printed twice."""
        found = [(int(match[1]), match[2]) for match in _LINE.finditer(self.output)]
        assert len(dict(found)) == len(found), "a step was printed twice"
        return dict(found)

    def first_step(self) -> int:
        return next(iter(self.losses()))

    def wait_for_step(self, step: int) -> None:
        """Waits until `step` or a later one is printed."""

        def printed() -> bool:
            assert self.process.poll() is None or max(self.losses(), default=-1) >= step, self.errors
            return max(self.losses(), default=-1) >= step

        until(printed, f"step {step}")

    def wait(self) -> int:
        """Waits for the exit status; asserts that no process of the run is left."""
        status = self.process.wait(DEADLINE)
        until(lambda: not self.alive(), "the run's last process to go")
        return status

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def alive(self) -> dict[int, list[str]]:
        """Pid -> command line of every live process with this run's PLIANT_ATTEMPT."""
        mark = f"PLIANT_ATTEMPT={self.attempt}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")[:-1]
                except OSError:
                    continue  # it ended while we looked
        return found

    def workers(self) -> dict[str, int]:
        """Worker's name, such as 1/2 -> its pid."""
        found = self.alive().items()
        return {line[line.index("--worker") + 1]: pid for pid, line in found if "--worker" in line}

    def kill(self) -> None:
        """Kills all that is left, even of a frozen run."""
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(DEADLINE)


@contextmanager
def started(folder: Path, gpus: str | None = None, **variables: str) -> Iterator[Run]:
    """Starts a run with these GPUs (CUDA_VISIBLE_DEVICES) and variables; kills it at the end if it lives."""
    run = Run(folder, gpus, variables)
    try:
        yield run
    finally:
        run.kill()
