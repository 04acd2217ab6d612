"""A local engine on a state folder of its own; reads the truth about its tasks from /proc and files."""

import json
import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from pliant.engines.local.engine import LocalEngine
from pliant.engines.local.launch.supervisor import FALLBACK as PYTHON_SUPERVISOR
from pliant.engines.local.launch.supervisor import NATIVE
from pliant.model.workload import AttemptId, Launch
from tests.engines.contract import GRACE, NODE, Rig
from tests.house.gaps import gap
from tests.house.waiting import until

SECONDS = 120.0  # for what takes milliseconds on an idle machine


FALLBACK = "pliant-supervise: the Python fallback: no compiled supervisor is installed\n"


class Machine:
    """Devices of a machine without GPUs."""

    simulated = True

    def __init__(self, *nodes):
        self.listed = list(nodes)

    def nodes(self):
        return self.listed


def supervisor(name):
    if name == "python":
        return PYTHON_SUPERVISOR
    if not NATIVE.exists():
        gap("no native supervisor", "install a C compiler and run `make native`")
    return (str(NATIVE),)


def processes(state: Path, attempt: AttemptId | None = None) -> list[int]:
    """Pids of live processes that carry an attempt of that state folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            env = dict(
                item.partition(b"=")[::2] for item in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            )
            ours = env.get(b"PLIANT_ATTEMPT_DIR", b"").startswith(os.fsencode(f"{state}/attempts/"))
            if ours and (attempt is None or env.get(b"PLIANT_ATTEMPT") == str(attempt).encode()):
                found.append(int(name))
    return found


def kill(pid, number=signal.SIGKILL):
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class LocalRig(Rig):
    """A rig whose tasks are shells that record their start in a file."""

    execs = True

    def __init__(self, folder: Path, program=None, **options):
        super().__init__()
        self.state = folder / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.notes = folder / "begun"
        self.notes.touch()
        self.machine = Machine(NODE)
        self.options = {"supervisor": program or supervisor("native"), **options}

    def make(self):
        return LocalEngine(self.state, self.machine, **self.options)

    def shell(self, script, **options):
        command = ("sh", "-c", f'echo "$PLIANT_ATTEMPT" >> {self.notes}; {script}')
        return Launch("ubuntu", command, **{"grace": GRACE, **options})

    def forever(self, *, output=""):
        return self.shell(f"printf '{output}'; exec sleep 1000")

    def exits(self, code, *, output=""):
        fifo = '"$PLIANT_ATTEMPT_DIR/finish"'
        return self.shell(f"mkfifo {fifo}; printf '{output}'; read _ < {fifo}; exit {code}")

    def stubborn(self):
        command = ("sh", "-c", f"trap '' TERM; echo $PLIANT_ATTEMPT >> {self.notes}; exec sleep 1000")
        return Launch("ubuntu", command, grace=GRACE)

    def broken(self):
        return Launch("ubuntu", ("no-such-command-anywhere",))

    def folder(self, attempt):
        return self.state / "attempts" / attempt.workload / attempt.task / str(attempt.number)

    def supervisor_of(self, attempt):
        return json.loads((self.folder(attempt) / "lock").read_text())["pid"]

    def finish(self, attempt):
        def opened():
            with suppress(OSError):  # not made yet, or without a reader yet
                return os.open(self.folder(attempt) / "finish", os.O_WRONLY | os.O_NONBLOCK) + 1

        fd = until(opened, f"{attempt} waits for its end") - 1
        os.write(fd, b"\n")
        os.close(fd)
        until(lambda: not self.alive(attempt), f"{attempt} ends")

    def destroy(self, attempt):
        kill(self.supervisor_of(attempt))  # first: it leaves no record

        def gone():
            for pid in processes(self.state, attempt):
                kill(pid)
            return not self.alive(attempt)

        until(gone, f"{attempt} is gone")

    def alive(self, attempt):
        return bool(processes(self.state, attempt))

    def main(self, attempt):
        def found():
            return [pid for pid in processes(self.state, attempt) if pid != self.supervisor_of(attempt)]

        return until(found, f"{attempt} has a process")[0]  # during an exec a process has no environment

    def begun(self, attempt):
        return self.notes.read_text().splitlines().count(str(attempt))

    def log(self, attempt, **options):
        return super().log(attempt, **options).removeprefix(FALLBACK)

    def until(self, condition, what):
        until(condition, what)

    def clean(self):
        """Ends everything, whatever the test did."""
        self.engine.close()
        while pids := processes(self.state):
            for pid in pids:
                with suppress(ProcessLookupError):
                    fd = os.pidfd_open(pid)
                    kill(pid)
                    select.select([fd], [], [], SECONDS)
                    os.close(fd)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
