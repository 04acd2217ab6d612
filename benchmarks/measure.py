"""Tools of the benchmarks: a private server that is always removed, references, medians, one table.

Run by itself, it prints the references of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pliant.client import Client
from pliant.client.locate import server_record

PROGRAM = Path(sys.executable).parent / "pliant"


def arguments(description: str | None, *numbers: tuple[str, str, int]) -> argparse.Namespace:
    """The command line of a benchmark: `--tiny` and its own numbers (option, help, default)."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a few rounds, whose numbers mean nothing")
    for option, text, default in numbers:
        parser.add_argument(option, help=f"{text} (default: {default})", type=int, default=default)
    return parser.parse_args()


def tiny(description: str | None) -> bool:
    """Read the command line of a benchmark: True for `--tiny`, which only shows that it works."""
    return bool(arguments(description).tiny)


# -- times, all in ms --------------------------------------------------------------------------------


def took(run: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - began) / 1e6


def in_turns(rounds: int, *runs: Callable[[], object]) -> list[list[float]]:
    """The times of each. The runs alternate, so that other load on the machine affects all of them."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, mine in zip(runs, times, strict=True):
            mine.append(took(run))
    return times


def alternately(rounds: int, *runs: Callable[[], object]) -> list[float]:
    """The median of each, alternating."""
    return [statistics.median(mine) for mine in in_turns(rounds, *runs)]


def percentile(times: Sequence[float], share: float) -> float:
    """The time that this share (0 to 1) of them does not exceed."""
    return sorted(times)[min(int(share * len(times)), len(times) - 1)]


# -- references --------------------------------------------------------------------------------------


def calibrate() -> int:
    """A fixed amount of dictionary and integer work."""
    table: dict[int, int] = {}
    for i in range(100_000):
        table[i % 997] = table.get(i % 997, 0) + i
    return sum(table.values())


def environment(folder: Path | None = None) -> dict[str, str]:
    """Our environment without what would change a measurement; with `folder`, for a private Pliant."""
    # The last one: an installed package has its byte code, so a measured program may write its own.
    unwanted = ("PLIANT_", "RUNAI_", "XDG_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    if folder is not None:
        kept |= {
            "HOME": str(folder),
            "PLIANT_STATE": str(folder / "state"),
            "PLIANT_CONFIG": str(folder / "config.json"),
        }
    return kept


def python_pass() -> None:
    """`python -c pass`: the interpreter's start and end."""
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment())


def synced_write(folder: Path) -> None:
    """4 KiB appended to a file and synced to the disk."""
    fd = os.open(folder / "synced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, bytes(4096))
        os.fsync(fd)
    finally:
        os.close(fd)


# -- what is printed ---------------------------------------------------------------------------------


def head(title: str) -> None:
    print(f"{title}\n{'':46}{'measured':>12}{'target':>12}{'ratio':>9}  of")


def row(label: str, value: float, unit: str, *, target: float | None = None, to: tuple[float, str]) -> None:
    """One result; `to` is the reference's value and name. A missed target is marked, not an error: the
    machine may be busy, and the ratio says how fast it was."""
    goal = f"{target:g} {unit}" if target is not None else ""
    missed = "  MISSED" if target is not None and value > target else ""
    print(f"{label:46}{f'{value:.2f} {unit}':>12}{goal:>12}{value / to[0]:9.2f}  {to[1]}{missed}", flush=True)


# -- processes ---------------------------------------------------------------------------------------


def resident(pid: int) -> float:
    """MB of memory that a process has resident."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, in user and system mode, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """The server and its decider, without its tasks."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if b"pliant.control.decider" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
    return found


def switches(pid: int) -> int:
    """Voluntary context switches of all threads: the wake-ups of an idle process."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        found += int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


class Server:
    """A server with its own folder; close() ends it and its tasks and removes the folder."""

    def __init__(self, simulate: str) -> None:
        self._simulate = simulate
        self.folder = Path(tempfile.mkdtemp(prefix="pliant-bench-")).resolve()
        self.env = environment(self.folder)
        self.pid = 0

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self) -> None:
        self.run("up", "--simulate", self._simulate)
        record = server_record(str(self.folder / "state"))
        assert record is not None, "the server answers, so it has left its record"
        self.pid = record["pid"]

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("down", "--yes")
        while left := self._left():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: str) -> str:
        """Runs `pliant WORDS` and returns what it printed. Raises CalledProcessError."""
        done = subprocess.run(
            [PROGRAM, *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            sys.stderr.write(done.stderr)
        done.check_returncode()
        return done.stdout

    def client(self) -> Client:
        """A new connection, for one thread."""
        return Client.connect(state=str(self.folder / "state"))

    def token(self) -> str:
        """The token of the API."""
        return (self.folder / "state" / "token").read_text().strip()

    def _left(self) -> list[int]:
        """Live processes that were started with this folder."""
        mark, found = f"{self.folder}/".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


def training(name: str, *argv: str, gpus: int = 1) -> dict[str, object]:
    """The body that submits a command of this machine to project default."""
    spec = {"image": "ubuntu", "commandArgv": argv, "compute": {"gpuDevicesRequest": gpus}}
    return {"name": name, "projectName": "default", "spec": spec}


def main() -> int:
    rounds = 3 if tiny(__doc__) else 15
    folder = Path(tempfile.mkdtemp(prefix="pliant-bench-"))
    try:
        loop, start, disk = alternately(rounds, calibrate, python_pass, lambda: synced_write(folder))
    finally:
        shutil.rmtree(folder)
    print("references of this machine, medians:")
    print(f"calibrate() {loop:.2f} ms, python -c pass {start:.2f} ms, 4 KiB synced to disk {disk:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
