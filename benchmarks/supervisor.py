"""What a task's supervisor costs: resident memory, and time until it reports that the task runs.

Goals: under 2 MB and 5 ms for the native one; the Python fallback is shown beside it. Input: `sleep
infinity`, started as the local engine does. The time is from before the fork in Python to the supervisor's
report on its pipe; the fastest is the supervisor's cost, the rest is other load on the machine.
Reference in the same run: `true`, started by subprocess and waited for.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import environment, head, in_turns, resident, row, tiny

from pliant.engines.local.folder.layout import Folder
from pliant.engines.local.launch.supervisor import FALLBACK, NATIVE, answered, spawn


class Supervised:
    """Starts tasks under one supervisor program, ends them, and records the most memory that it had."""

    def __init__(self, program: tuple[str, ...], folder: Path) -> None:
        self.program, self.folder = program, folder
        self.memory = 0.0
        self._count = 0

    def start(self) -> None:
        """Starts a task and waits until the supervisor reports that it runs."""
        self._count += 1
        folder = Folder(self.folder / str(self._count))
        folder.path.mkdir(parents=True)
        lock = folder.take_lock()
        assert lock is not None
        order = {
            "argv": ["sleep", "infinity"],
            "cwd": str(folder.path),
            "grace_ms": 1000,
            "tty": False,
            "stdin": False,
        }
        env = {"PATH": os.environ["PATH"], "PLIANT_ATTEMPT": f"bench/main-0/{self._count}"}
        self.pidfd, answer = spawn(self.program, folder, order, env, lock, 2**20, 1)
        os.close(lock)
        said = answered(answer)
        assert said is not None and said.startswith("started"), said

    def end(self) -> None:
        about = Path(f"/proc/self/fdinfo/{self.pidfd}").read_text()
        self.memory = max(self.memory, resident(int(about.partition("Pid:")[2].split()[0])))
        signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)
        os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        os.close(self.pidfd)


def true() -> None:
    subprocess.run(["true"], check=True, env=environment())


def main() -> int:
    rounds = 3 if tiny(__doc__) else 30
    place = Path(tempfile.mkdtemp(prefix="pliant-bench-")).resolve()
    kinds = {
        "native": Supervised((str(NATIVE),), place / "native"),
        "Python": Supervised(FALLBACK, place / "python"),
    }
    if not NATIVE.exists():
        print("the native supervisor is not built (`make native`): only the fallback is measured")
        del kinds["native"]
    try:
        runs = [run for kind in kinds.values() for run in (kind.start, kind.end)]
        reference, *times = in_turns(rounds, true, *runs)
    finally:
        shutil.rmtree(place)
    fastest, usual = (min(reference), "the fastest `true`"), (statistics.median(reference), "`true`")
    head(f"{rounds} of each; `true` forked and waited for: {fastest[0]:.2f} ms, median {usual[0]:.2f} ms")
    for (name, kind), mine in zip(kinds.items(), times[::2], strict=True):
        goals = (5.0, 2.0) if name == "native" else (None, None)
        row(f"{name}: until the task runs, fastest", min(mine), "ms", target=goals[0], to=fastest)
        row(f"{name}: until the task runs, median", statistics.median(mine), "ms", to=usual)
        row(f"{name}: resident, the most", kind.memory, "MB", target=goals[1], to=(2.0, "2 MB"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
