"""The agent of a task: keeps one worker process on each GPU allocated to the task, also when that changes.

It imports no torch. `python -m pliant.train.agent -- COMMAND...` runs it. A script that calls
`pliant.train.init()` inside a task becomes the agent (`take_over`), and its workers run the script again.
"""

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pliant.client.errors import PliantError
from pliant.train.agent.fleet import Exit, Fleet, MasterProcess
from pliant.train.agent.link import AllocationSource, Holding, Link, shown_devices
from pliant.train.agent.place import Place, begin
from pliant.train.errors import EX_TEMPFAIL, MasterAway, Refused, TrainError
from pliant.train.master.calls import MasterClient

POLL_S = 0.05
STATUS_S = 1.0  # between two status calls to the master
NEWS_S = 0.2  # the same while new workers are joining
KILL_MS = 5000  # from SIGTERM to SIGKILL for a worker that does not leave in time
KILLED = 128 + signal.SIGKILL
LINGER_S = 10.0  # for the workers of other tasks to hear that the job is over
AWAY_S = 60.0  # without an answer from another task's master and without workers, the agent gives up


def take_over() -> None:
    """Inside a task but not in a worker: become the agent, whose workers run this command line."""
    env = os.environ
    if "PLIANT_TRAIN_MASTER" in env or not env.get("PLIANT_ATTEMPT_DIR") or not sys.orig_argv[1:]:
        return
    main = sys.modules.get("__main__")
    if not hasattr(main, "__file__") or "ipykernel" in sys.modules or _led(Path(env["PLIANT_ATTEMPT_DIR"])):
        return  # an interactive session in the task, or a command beside its job
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "pliant.train.agent", "--", sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, _without_devices(env))


def _without_devices(env: Any) -> dict[str, str]:
    """`env` without devices: from a process's first environment the node sees whether it uses a device."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    return {**env, **hidden, "PLIANT_DEVICES": ",".join(shown_devices(env))}


def _led(folder: Path) -> bool:
    """True if the task has an agent already."""
    fd = _take_lead(folder)
    if fd is not None:
        os.close(fd)
    return fd is None


def _take_lead(folder: Path) -> int | None:
    fd = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


class Agent:
    """Follows the allocation with worker processes until the job is over or the agent is told to stop."""

    def __init__(
        self,
        source: AllocationSource,
        fleet: Fleet,
        client: MasterClient,
        *,
        master: MasterProcess | None = None,
        stop: threading.Event | None = None,
        grace_ms: int = 30_000,
        reports: bool = True,
        mortal: bool = False,
    ) -> None:
        """`master`: this agent's own, if it leads; `grace_ms`: the time that a stop of the task leaves;
        `reports`: report the whole job to the scheduler; `mortal`: exit with KILLED if a worker is killed."""
        self._source, self._fleet, self._client, self._master = source, fleet, client, master
        self._stop = stop or threading.Event()
        self._grace_ms, self._reports, self._mortal = grace_ms, reports, mortal
        self._held = Holding(-1, (), ())
        self._read = -1  # version of the newest document
        self._joined: set[str] = set()  # devices in the last "joined" acknowledgement
        self._owes: dict[str, int] = {}  # "drained", "joined" -> version to acknowledge
        self._ended: dict[str, Exit] = {}  # by device: workers that ended for good
        self._status: dict[str, Any] = {}
        self._closing = False  # the job is over
        self._looked = 0.0
        self._heard = time.monotonic()

    def run(self) -> int:
        """Returns the exit code: 0 if the job has finished, or if this task was told to stop."""
        stopping, code_then = False, 0
        while True:
            if self._stop.is_set() and not stopping:
                stopping = True
                self._fleet.hold([], left_ms=self._grace_ms * 6 // 10)
            held = self._source.wait(self._read, POLL_S)
            if held is not None:
                self._read = held.version
                if not (stopping or self._closing):
                    self._follow(held)
            if self._master is not None:
                self._master.poll()
            for exit in self._fleet.poll():
                if exit.left and exit.device in self._held.devices:
                    self._ended[exit.device] = exit
                if self._mortal and exit.signal == signal.SIGKILL and not exit.left:
                    code_then = KILLED  # the scheduler knows why, e.g. out of memory
                    self._stop.set()
                self._look(force=True)  # it may have been the end of the job
            if stopping and not self._fleet.devices():
                self._look(force=True)
                return code_then
            self._acknowledge()
            self._look()
            code = self._over()
            if code is not None:
                return code

    def _follow(self, held: Holding) -> None:
        self._held = held
        self._ended = {device: exit for device, exit in self._ended.items() if device in held.devices}
        left = min((ms for _, ms in held.draining), default=None)
        self._fleet.hold(held.devices, left_ms=None if left is None else max(0, left - KILL_MS) * 8 // 10)
        self._owes = {"drained": held.version} if held.draining else {}
        if set(held.devices) != self._joined:
            self._owes["joined"] = held.version

    def _acknowledge(self) -> None:
        lives = self._fleet.devices()
        if "drained" in self._owes and not any(device in lives for device, _ in self._held.draining):
            gone = [device for device, _ in self._held.draining]
            self._source.ack(self._owes.pop("drained"), "drained", gone)
        if "joined" in self._owes and set(lives) == set(self._held.devices):
            members = {w["worker"] for w in self._status.get("workers", ()) if w["state"] == "member"}
            if set(self._fleet.pids()) <= members:
                self._source.ack(self._owes.pop("joined"), "joined", self._held.devices)
                self._joined = set(self._held.devices)

    def _look(self, *, force: bool = False) -> None:
        """Ask the master for the job's status and report it to the scheduler."""
        pause = NEWS_S if "joined" in self._owes else STATUS_S
        if not force and time.monotonic() - self._looked < pause:
            return
        self._looked = time.monotonic()
        try:
            self._status = self._client.call("status", {}, patience_s=0.0)
        except (MasterAway, Refused):
            return
        self._heard = time.monotonic()
        if self._reports:
            self._source.progress(self._status)

    def _over(self) -> int | None:
        """The exit code once nothing is left to do here, else None."""
        state = self._status.get("state")
        if state in ("finished", "failed") and not self._closing:
            self._closing = True  # the remaining workers are told; none is restarted
            self._fleet.hold([], left_ms=self._grace_ms * 6 // 10)
        if self._fleet.devices() or not self._held.devices:
            return None
        if not self._closing and not set(self._held.devices) <= set(self._ended):
            if self._master is None and time.monotonic() - self._heard > AWAY_S:
                print(
                    f"pliant.train: Lost connection to the master at {self._client.address}", file=sys.stderr
                )
                return 1
            return None
        self._look(force=True)
        state = self._status.get("state")
        if state == "failed":
            print(f"pliant.train: the job has failed. {self._status['error']}", file=sys.stderr, flush=True)
            return 1
        if state == "finished":
            self._linger()
            return 0
        if any(exit.code == EX_TEMPFAIL for exit in self._ended.values()):
            print("pliant.train: the job has refused the workers of this task; see above", file=sys.stderr)
            return 1
        if self._master is None:
            return 0  # the rest of the job goes on without this task
        print("pliant.train: the script ended before its training was over", file=sys.stderr, flush=True)
        return 1

    def _linger(self) -> None:
        """The leading task waits, up to LINGER_S, until all workers know that the job is over."""
        until = time.monotonic() + LINGER_S
        while self._master is not None and time.monotonic() < until:
            if all(w["state"] in ("left", "lost") for w in self._status.get("workers", ())):
                return
            time.sleep(POLL_S)
            self._look(force=True)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    mortal = words[:1] == ["--mortal"]
    words = words[mortal:]
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        print("usage: python -m pliant.train.agent [--mortal] -- COMMAND...", file=sys.stderr)
        return 2
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        option = ["--mortal"] if mortal else []
        again = [sys.executable, "-m", "pliant.train.agent", *option, "--", *command]
        os.execve(sys.executable, again, _without_devices(os.environ))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        return _serve(command, stop, mortal)
    except (TrainError, PliantError, OSError) as error:
        print(f"pliant.train: {' '.join(str(part) for part in error.args)}", file=sys.stderr, flush=True)
        return 1


def _serve(command: Sequence[str], stop: threading.Event, mortal: bool) -> int:
    link = Link.from_environment()
    place = Place.from_environment(os.environ)
    lead = _take_lead(place.attempt_dir)
    if lead is None:
        raise TrainError("This task already has an agent; a second one would start its workers twice.")
    link.start()
    master, client = begin(place, stop)
    fleet = Fleet(
        command,
        client,
        place.folder,
        env=place.worker_environment(client.address),
        grace_ms=KILL_MS,
        prefix=place.prefix,
        renew=not mortal,
    )
    try:
        return Agent(
            link,
            fleet,
            client,
            master=master,
            stop=stop,
            grace_ms=_grace(place.attempt_dir),
            reports=master is not None,
            mortal=mortal,
        ).run()
    finally:
        fleet.close()
        link.close()
        if master is not None:
            master.close()
        os.close(lead)


def _grace(folder: Path) -> int:
    """Ms between SIGTERM and SIGKILL by the attempt's order.json, 30,000 by default."""
    try:
        return int(json.loads((folder / "order.json").read_text("utf-8"))["grace_ms"])
    except (OSError, ValueError, KeyError):
        return 30_000
