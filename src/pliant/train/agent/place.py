"""Finds the agent's job and its master: in this task, or in the leading task of several."""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pliant.train.agent.fleet import MasterProcess
from pliant.train.errors import MasterAway, Refused, TrainError
from pliant.train.master.calls import MasterClient

HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # nosec B104
"""Where a master listens. Tasks on other machines use a name that may not resolve on this one yet."""

LEADER_S = 120.0  # how long to wait for the leading task's master


def _keep(folder: Path, word: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / "token", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as out:
        out.write(word)


@dataclass(frozen=True, slots=True)
class Place:
    """One task's place in its job."""

    job: str  # id of the workload
    task: str
    number: int  # of the attempt
    attempt_dir: Path
    folder: Path  # of the job: ledger, token
    address: tuple[str, int] | None  # (host, port) of a distributed job's master; None: the job has one task
    leads: bool  # the master runs here

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Place":
        """By PLIANT_*; a task of several also has MASTER_ADDR, MASTER_PORT and RANK, and rank 0 leads."""
        job, task, number = env["PLIANT_ATTEMPT"].split("/")
        own = Path(env["PLIANT_ATTEMPT_DIR"])
        if not {"MASTER_ADDR", "MASTER_PORT", "RANK"} <= env.keys():
            # For this attempt only: the next one starts from the newest checkpoint, which has the ledger.
            return cls(job, task, int(number), own, own / "train", None, True)
        word = env.get("PLIANT_TRAIN_TOKEN", "")
        kept = env.get("PLIANT_CHECKPOINT_DIR") or (own if word else own.parents[1])
        shared = Path(kept) / ".train"
        if word:  # the tasks have no folder in common
            _keep(shared, word)
        address = (env["MASTER_ADDR"], int(env["MASTER_PORT"]))
        return cls(job, task, int(number), own, shared, address, env["RANK"] == "0")

    @property
    def prefix(self) -> str:
        """The prefix of this task's worker names, unique among tasks and attempts."""
        return f"{self.task}-{self.number}-"

    def worker_environment(self, master: str) -> dict[str, str]:
        return {
            "PLIANT_TRAIN_MASTER": master,
            "PLIANT_TRAIN_TOKEN_FILE": str(self.folder / "token"),
            "PLIANT_TRAIN_JOB": self.job,
            "PLIANT_TRAIN_DIR": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            # Simulated cards compute nothing: torch would warn about that in every worker.
            **({"PYTHONWARNINGS": "ignore:CUDA initialization"} if "PLIANT_SIM_CARDS" in os.environ else {}),
        }


def begin(place: Place, stop: threading.Event) -> tuple[MasterProcess | None, MasterClient]:
    """(the master if this task leads, else None; a client of the job's master). Raises TrainError."""
    if not place.leads:
        return None, _join(place, stop)
    host, port = place.address or (HERE, 0)
    try:
        where = HERE if host == HERE else EVERYWHERE
        master = MasterProcess(place.folder, place.job, host=where, port=port, known_as=host)
    except TrainError as error:
        raise TrainError(
            f"The master of this job cannot listen on {host}:{port}: another program has taken the port. "
            "End it (`ss -ltnp` names it), or submit the job again to get another port."
        ) from error
    _bury(place, master.client)
    return master, master.client


def _join(place: Place, stop: threading.Event) -> MasterClient:
    """Wait for the leading task's master. Raises TrainError."""
    assert place.address is not None
    address = "{}:{}".format(*place.address)
    until = time.monotonic() + LEADER_S
    while not stop.is_set():
        with suppress(OSError, MasterAway):
            client = MasterClient(address, (place.folder / "token").read_text("utf-8").strip())
            found = client.call("status", {}, patience_s=0.0)
            if found.get("job") not in (None, place.job):
                client.close()
                raise TrainError(f"The master at {address} belongs to another job, {found['job']}.")
            _bury(place, client)
            return client
        if time.monotonic() > until:
            raise TrainError(
                f"No master answers at {address} after {LEADER_S:.0f} s: see the log of the leading task."
            )
        stop.wait(0.1)
    raise TrainError("Stopped while waiting for the leading task.")


def _bury(place: Place, client: MasterClient) -> None:
    """Report the workers of this task's earlier attempts as gone: the master does not wait for them."""
    with suppress(MasterAway, Refused):
        known = client.call("status", {}, patience_s=20.0)
        for worker in known.get("workers", ()):
            name = str(worker["worker"])
            task, _, number = name.rpartition("-")[0].rpartition("-")
            if task == place.task and number.isdigit() and int(number) < place.number:
                client.call("exited", {"worker": name, "code": None, "signal": 9}, patience_s=5.0)
