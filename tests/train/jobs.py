"""Real jobs for tests: a master, worker processes forked from the zygote, and their records."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pliant.train.agent.fleet import Fleet, MasterProcess
from pliant.train.master.calls import MasterClient
from pliant.train.master.httpd import listen
from pliant.train.master.ledger import Ledger, applied
from pliant.train.master.membership import Times
from pliant.train.master.service import Master
from tests.train.zygote import Zygote

SCRIPT = Path(__file__).with_name("script.py")
PATIENT = Times(silence=30_000, reconnect=5_000, broken=300, adopt=10_000, join_window=150, start=20_000)


class Running:
    """A job of n workers. Leaving the block ends all its processes."""

    def __init__(
        self,
        zygote: Zygote,
        folder: Path,
        spec: dict[str, Any],
        *,
        times: Times = PATIENT,
        process: bool = False,
        script: Path = SCRIPT,
        argv: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.out.mkdir(exist_ok=True, parents=True)
        self.spec = {"out": str(self.out), **spec}
        self.slow(True)
        self.master: Master | None = None
        self.process: MasterProcess | None = None
        self._listener: socket.socket | None = None  # outlives the master, as a process's listener does
        if process:
            self.process = MasterProcess(folder / "job", "j")
            self.client, env = self.process.client, self.process.environment()
        else:
            (folder / "job").mkdir(exist_ok=True)
            token = folder / "job" / "token"
            token.write_text("secret")
            self._times, self._listener = times, listen("127.0.0.1", 0)
            self.new_master()
            address = "{}:{}".format(*self._listener.getsockname()[:2])
            self.client = MasterClient(address, "secret")
            env = {
                "PLIANT_TRAIN_MASTER": address,
                "PLIANT_TRAIN_TOKEN_FILE": str(token),
                "PLIANT_TRAIN_JOB": "j",
            }
        self.fleet = Fleet(
            [sys.executable, str(script), *argv],
            self.client,
            folder / "job",
            env={**env, "SPEC": json.dumps(self.spec)},
            logs=True,
            start=zygote.start,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.fleet.close()
        if self.master is not None:
            self.master.close()
        if self._listener is not None:
            self._listener.close()
        if self.process is not None:
            self.process.close()
        self.client.close()

    def new_master(self) -> None:
        """Starts a master that knows only the ledger; the previous one must be ended by `master.close()`."""
        assert self._listener is not None
        mine = socket.socket(fileno=os.dup(self._listener.fileno()))
        self.master = Master(self.folder / "job", "j", "secret", times=self._times, listener=mine)

    def hold(self, count: int) -> None:
        """Sets the number of workers."""
        self.fleet.hold([f"cpu-{i}" for i in range(count)])

    def slow(self, on: bool) -> None:
        """Slows the job down while the test acts on it, or lets it run at full speed."""
        if on:
            (self.folder / "slow").touch()
        else:
            (self.folder / "slow").unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        return self.client.call("status")

    def until(self, what: Callable[[dict[str, Any]], Any], seconds: float = 240) -> dict[str, Any]:
        """Polls the fleet until `what(status)` is true; returns that status."""
        end = time.monotonic() + seconds
        while True:
            if self.process is not None:
                self.process.poll()
            self.fleet.poll()
            status = self.status()
            if what(status):
                return status
            if status["state"] == "failed":
                raise AssertionError(f"the job has failed: {status['error']}\n{self.logs()}")
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {json.dumps(status)}\n{self.logs()}")
            time.sleep(0.01)

    def finish(self, seconds: float = 100) -> dict[str, Any]:
        """Waits for success and for the end of all workers."""
        self.slow(False)
        status = self.until(lambda s: s["state"] == "finished" and not self.fleet.devices(), seconds)
        return status

    def pids(self) -> list[int]:
        return list(self.fleet.pids().values())

    def member_pids(self) -> list[int]:
        """Process ids of the members, by rank."""
        workers = [w for w in self.status()["workers"] if w["rank"] is not None]
        return [w["pid"] for w in sorted(workers, key=lambda w: w["rank"])]

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted((self.folder / "job" / "logs").glob("*"))
        )

    # -- what was written down -------------------------------------------------------------------------

    def lines(self) -> dict[str, list[dict[str, Any]]]:
        """The lines that each worker wrote."""
        found = {}
        for path in sorted(self.out.iterdir()):
            texts = path.read_text().splitlines()
            found[path.name] = []
            for text in texts:
                with contextlib.suppress(ValueError):  # a line that a killed worker did not finish
                    found[path.name].append(json.loads(text))
        return found

    def losses(self) -> dict[int, float]:
        """Loss of each step, from the last worker listed that applied it."""
        return {
            line["step"]: line["loss"] for lines in self.lines().values() for line in lines if "step" in line
        }

    def ends(self) -> set[str]:
        """Digests of the weights at the end of the workers."""
        return {line["end"] for lines in self.lines().values() for line in lines if "end" in line}

    def spans(self) -> list[Any]:
        """The ledger's spans: which members applied which steps."""
        ledger = Ledger(self.folder / "job")
        try:
            return applied(ledger.events())
        finally:
            ledger.close()
