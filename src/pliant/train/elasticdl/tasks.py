"""The tasks of a job: one leads and does not train, the others train; or a whole job on one machine."""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pliant.client.errors import PliantError
from pliant.train.agent import service as agent
from pliant.train.agent.fleet import Fleet, MasterProcess
from pliant.train.agent.link import Link
from pliant.train.agent.place import Place, begin
from pliant.train.commands import devices_for
from pliant.train.elasticdl import contract
from pliant.train.elasticdl.flags import MODES, Flags
from pliant.train.elasticdl.results import finish
from pliant.train.elasticdl.source import open_records
from pliant.train.errors import MasterAway, Refused, TrainError
from pliant.train.master.calls import MasterClient

POLL_S = 0.2
STATUS_S = 1.0
LINGER_S = 10.0  # time for workers to learn that the job is over
TELL_S = 3.0  # time for their agents to ask once more how it ended


def worker_command(words: Sequence[str]) -> list[str]:
    """The command that an agent runs on each device."""
    return [sys.executable, "-m", "pliant.train.elasticdl", "run", *words]


def lead(flags: Flags, _words: Sequence[str]) -> int:
    """Run the leading task: it starts alone, stays while workers come and go, and ends with the job."""
    stop = _stop_event()
    records = _checked(flags)
    try:
        link = Link.from_environment()
        place = Place.from_environment(os.environ)
    except PliantError as error:
        raise TrainError(f"{error} A whole job here: `python -m pliant.train.elasticdl local`.") from error
    if not place.leads or place.address is None:
        raise TrainError("The task of the master has MASTER_ADDR and MASTER_PORT, and RANK=0.")
    contract.keep(flags.model_file, place.folder)
    link.start()
    master, client = begin(place, stop)
    assert master is not None, "this task leads"
    print(f"{flags.job_name}: the master is at {client.address} and waits for workers", flush=True)
    try:
        leader = Leader(flags, client, place.folder, records, _checkpoints(flags))
        while True:
            master.poll()
            code = leader.look(link.progress)
            if code is not None:
                return code
            if stop.wait(POLL_S):
                return leader.park(agent._grace(place.attempt_dir) / 1000 * 0.8)
    finally:
        link.close()
        master.close()


def work(_flags: Flags, words: Sequence[str]) -> int:
    """Run a training task until the job is over or the task is told to leave. It does not restart a worker
    that was killed by SIGKILL: the scheduler knows whether memory ran out."""
    return agent.main(["--mortal", "--", *worker_command(words)])


def local(flags: Flags, words: Sequence[str]) -> int:
    """Run a whole job on this machine."""
    records = _checked(flags)
    folder = Path(flags.folder or tempfile.mkdtemp(prefix="pliant-elasticdl-"))
    contract.keep(flags.model_file, folder)
    stop = _stop_event()
    checkpoints = Path(flags.checkpoint_dir) if flags.checkpoint_dir else folder / "checkpoints"
    master = MasterProcess(folder, flags.job_name)
    env = {**master.environment(), "PLIANT_CHECKPOINT_DIR": str(checkpoints), "PYTHONUNBUFFERED": "1"}
    fleet = Fleet(worker_command(words), master.client, folder, env=env)
    leader = Leader(flags, master.client, folder, records, checkpoints)
    try:
        fleet.hold(devices_for(flags.workers))
        while True:
            master.poll()
            fleet.poll()
            if stop.is_set():
                fleet.hold([])
            code = leader.look(lambda _status: None)
            if code is not None:
                return code
            if not fleet.devices():
                return leader.ended()
            time.sleep(POLL_S)
    finally:
        fleet.close()
        master.close()


class Leader:
    """Watches a job through its master's status, and makes its result."""

    def __init__(
        self, flags: Flags, client: MasterClient, folder: Path, records: int, checkpoints: Path | None
    ) -> None:
        """`records`: their number in the data; `folder`: the job's."""
        self._flags, self._client, self._folder = flags, client, folder
        self._records, self._checkpoints = records, checkpoints
        self._said = ""
        self._status: dict[str, Any] = {"state": "waiting"}
        self._looked = 0.0

    def look(self, tell: Callable[[dict[str, Any]], None]) -> int | None:
        """Pass the status to `tell` every STATUS_S. Returns the exit code once the job is over, else None."""
        if time.monotonic() - self._looked < STATUS_S:
            return None
        self._looked = time.monotonic()
        if not self._ask():
            return None
        tell(self._status)
        if self._over():
            return self.ended()
        self._say()
        return None

    def ended(self) -> int:
        """The exit code of a job whose workers are gone or about to be. Raises TrainError if it failed."""
        self._ask()
        (self._folder / "status.json").write_text(json.dumps(self._status, indent=1), "utf-8")
        if self._status["state"] == "failed":
            self._linger()
            time.sleep(TELL_S)
            raise TrainError(f"the job has failed. {self._status['error']}")
        if not self._over():
            raise TrainError("the workers have ended and the job is not done: see what they said")
        self._linger()
        result = finish(self._flags, self._folder, self._records, self._checkpoints)
        loss = self._status.get("loss")
        how = f", {self._status['step']} steps, loss {loss:.6f}" if loss is not None else ""
        print(f"{self._flags.job_name}: done{how}{'; ' + result if result else ''}", flush=True)
        return 0

    def park(self, patience_s: float) -> int:
        """Stop the whole job: its workers leave after a checkpoint, from which it can continue. Returns 0."""
        until = time.monotonic() + patience_s
        self._call("stop", {"reason": "told to stop"})
        while time.monotonic() < until and self._present():
            time.sleep(POLL_S)
            self._ask()
        return 0

    def _over(self) -> bool:
        if self._flags.mode == "train":
            return self._status["state"] in ("finished", "failed")
        queue = (self._status.get("queues") or {}).get(self._flags.mode)
        done = queue is not None and queue["finished"] and not queue["skipped"]
        return done or self._status["state"] == "failed"

    def _present(self) -> bool:
        return any(w["state"] not in ("left", "lost", "expected") for w in self._status.get("workers", ()))

    def _linger(self) -> None:
        until = time.monotonic() + LINGER_S
        while self._present() and time.monotonic() < until:
            time.sleep(POLL_S)
            self._ask()

    def _ask(self) -> bool:
        found = self._call("status", {})
        self._status = found or self._status
        return bool(found)

    def _call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._client.call(name, body, patience_s=0.5)
        except (MasterAway, Refused):
            return {}  # the master is being restarted: the next call finds it

    def _say(self) -> None:
        state, world = self._status["state"], self._status.get("world", 0)
        there = sum(w["state"] in ("member", "leaving", "joining") for w in self._status.get("workers", ()))
        count = world if self._flags.mode == "train" else there
        text = f"{self._flags.job_name}: {count} worker{'' if count == 1 else 's'}"
        if state == "parked" or not count:
            text = f"{self._flags.job_name}: waits for workers"
        if text != self._said:
            self._said = text
            step = self._status.get("step")
            print(f"{text}{f', step {step}' if step else ''}", flush=True)


def _checked(flags: Flags) -> int:
    """Check what can be checked before a worker starts. Returns the number of records. Raises TrainError."""
    contract.check(flags.model_file, flags.mode, flags.names)
    if flags.mode == "train" and flags.workers > flags.global_batch:
        raise TrainError(
            f"An update of {flags.global_batch} records (--grads_to_wait={flags.grads_to_wait} times "
            f"--minibatch_size={flags.minibatch}) cannot be shared by {flags.workers} workers: make one of "
            "them larger, or --num_workers smaller."
        )
    return len(open_records(*flags.records(MODES[flags.mode])))


def _checkpoints(flags: Flags) -> Path | None:
    folder = flags.checkpoint_dir or os.environ.get("PLIANT_CHECKPOINT_DIR", "")
    return Path(folder) if folder else None


def _stop_event() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: stop.set())
    return stop
