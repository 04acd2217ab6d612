"""One worker in its job: meets the others, builds the communicator, sends or receives the state."""

import contextlib
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from pliant.train.errors import (
    EX_TEMPFAIL,
    BadData,
    GenerationOver,
    JobFailed,
    Left,
    MasterAway,
    Refused,
    TrainError,
)
from pliant.train.master.calls import MasterClient
from pliant.train.rendezvous.group import ElasticGroup, MasterStore, build, solo
from pliant.train.rendezvous.line import Line
from pliant.train.rendezvous.state import exchange

READY_MS = 5_000


@dataclass(slots=True)
class Hooks:
    """The functions of the job that a meeting calls."""

    collect: Callable[[], Any]  # the state, to be sent
    accept: Callable[[Any], None]  # a state that was received
    values: Callable[[], dict[str, Any]]  # the script's own values, which must be equal on all workers
    compare: Callable[[dict[str, Any], str], None]  # warn of differences from the named worker's values
    restore: Callable[[int], tuple[int, str | None]]  # own step -> (step, checkpoint) to begin with
    save: Callable[[str], None]  # why: "done" or "leave"
    release: Callable[[], None]  # drop what uses the old communicator
    renew: Callable[[], None]  # the new communicator is ready


class Runtime:
    """A worker's connection to its job. Without a master: a world of one that never changes."""

    def __init__(self, client: MasterClient | None, device: torch.device, hooks: Hooks) -> None:
        self.client = client
        self.device = device
        self.hooks = hooks
        self.group = ElasticGroup()
        self.worker = os.environ.get("PLIANT_TRAIN_WORKER", "w0")
        self.number = 0  # generation
        self.rank, self.size = 0, 1
        self.step = -1  # applied; -1: no state yet
        self.history: list[dict[str, Any]] = []  # generations, as the ledger has them
        self.finished = False
        self._skipped: set[tuple[int, int]] = set()  # in a world of one
        self.line: Line | None = None
        if client is not None:
            host = os.environ.get("PLIANT_TRAIN_HOST") or _own_address(client.address)
            self.line = Line(client, self.worker, os.environ.get("PLIANT_TRAIN_JOB", ""), host)
            self.line.sever = self.group.sever
            self.line.register()
            self.line.start()

    def agree(self, settings: dict[str, Any]) -> None:
        """Send the settings to the master. Raises Refused if they differ from the job's."""
        if self.line is not None:
            self.line.settings = settings
            self.line.register()

    @property
    def leaving(self) -> bool:
        """True if this worker was asked to leave."""
        return self.line is not None and self.line.leaving.is_set()

    def change_due(self) -> bool:
        """True if all workers are to meet after this step."""
        return self.line is not None and self.line.boundary.is_set()

    def meet(self, why: str) -> None:
        """Wait for the next generation and enter it; set `finished` if the job is over instead.

        Raises Left, JobFailed, or Refused if this worker does not belong to the job."""
        self.hooks.release()
        if self.client is None or self.line is None:
            self._alone(why)
            return
        self.group.drop()
        self.line.step = self.step
        while True:
            answer = self._ask(self.client, self.line, why)
            what = answer["what"]
            if what == "train":
                try:
                    self._enter(self.client, self.line, answer)
                except GenerationOver:
                    self.group.drop()
                    why = "failed-build"
                    continue
                return
            if what == "dropped":
                why = "join"
            elif what == "save":
                self.hooks.save(answer["why"])
                self.client.call("finished", {"worker": self.worker, "step": self.step, "saved": True})
                if answer["why"] == "leave":
                    raise Left(0)
                self.finished = True
                return
            elif what == "leave":
                raise Left(0)
            elif what == "stop":
                if not answer["ok"]:
                    raise JobFailed(f"The job has failed: {answer['error']}")
                if why == "join":
                    raise Left(0)
                self.finished = True
                return

    def _alone(self, why: str) -> None:
        if why == "done":
            self.hooks.save("done")
            self.finished = True
            return
        self.step, _ = self.hooks.restore(self.step)
        self.group.replace(solo(), 0, 1)
        self.hooks.renew()

    def _ask(self, client: MasterClient, line: Line, why: str) -> dict[str, Any]:
        body = {
            "worker": self.worker,
            "generation": self.number,
            "step": self.step,
            "why": why,
            "leaving": line.leaving.is_set(),
        }
        try:
            return client.call("ready", body, wait_ms=READY_MS)
        except Refused as error:
            if error.code != "dropped":
                raise
            line.register()
            return {"what": "dropped"}

    def _enter(self, client: MasterClient, line: Line, answer: dict[str, Any]) -> None:
        self.number, self.rank, self.size = answer["generation"], answer["rank"], answer["size"]
        store = MasterStore(client, self.worker, self.number, self.size)
        line.entered(self.number, self.step, store.told)
        if self.size == 1:
            inside = solo()
        else:
            inside = build(store, self.rank, self.size, line.host, self.device, line.over)
        self.group.replace(inside, self.rank, self.size)
        if line.over.is_set():
            self.group.sever()
        body = {key: answer[key] for key in ("generation", "members", "step", "source", "sync", "restore")}
        if answer["restore"] and self.rank == 0:
            self.step, checkpoint = self.hooks.restore(self.step)
            body["restored"] = self.step
            told = {
                "worker": self.worker,
                "generation": self.number,
                "step": self.step,
                "checkpoint": checkpoint,
            }
            client.call("restored", told)
        source = 0 if answer["restore"] else answer["source"]
        history = [*self.history, body]
        if answer["sync"] and self.size > 1:
            mine = None
            if self.rank == source:
                mine = {"step": self.step, "history": history, "state": self.hooks.collect()}
                mine |= {"values": self.hooks.values()}
            found = exchange(self.group, source, mine, self.device)
            if self.rank != source:
                if self.step == found["step"] and not answer["restore"]:
                    self.hooks.compare(found["values"], answer["members"][source])
                self.hooks.accept(found["state"])
                self.step, history = found["step"], found["history"]
        elif self.size > 1 and self.hooks.values():  # usually there are none, and nothing is sent
            found = exchange(self.group, 0, self.hooks.values() if self.rank == 0 else None, self.device)
            if self.rank != 0:
                self.hooks.compare(found, answer["members"][0])
        self.history = line.history = history
        line.entered_step(self.step)
        self.hooks.renew()

    def report(self, body: dict[str, Any]) -> None:
        """Queue a progress report for the master; does not wait."""
        if self.line is not None:
            self.line.report({"generation": self.number, "step": self.step, **body})

    @property
    def placed(self) -> bool:
        """True if this worker has a rank."""
        return self.client is None or self.number > 0

    def warn(self, text: str) -> None:
        """Warn in this worker's output and in the job's status."""
        if self.line is not None:
            self.line.warn(text)
        warnings.warn(text, stacklevel=2)

    def quarantine(self, epoch: int, index: int, error: str, allowed: int) -> None:
        """Ask to train without a record. Raises BadData if no more may be skipped."""
        try:
            if self.client is not None:
                told = {"worker": self.worker, "epoch": epoch, "index": index, "error": error}
                self.client.call("quarantine", told)
                return
        except Refused as refusal:
            if refusal.code != "skipped":
                raise
            raise BadData(str(refusal)) from refusal
        self._skipped.add((epoch, index))
        if len(self._skipped) > allowed:
            raise BadData(
                f"Record {index} cannot be read: {error}. max_skipped_records is {allowed}: repair the "
                f"data, or allow "
                "more to be skipped."
            )

    def failed(self, error: BaseException) -> None:
        """Report an error of the script to the master before this process ends."""
        if self.client is None or isinstance(error, JobFailed):
            return
        text = "".join(traceback.format_exception(error)) if not isinstance(error, TrainError) else str(error)
        body = {
            "worker": self.worker,
            "traceback": text,
            "step": self.step,
            "fatal": isinstance(error, TrainError),
        }
        with contextlib.suppress(MasterAway, Refused):
            self.client.call("failed", body, patience_s=2)

    def tell_of_errors(self) -> None:
        """From now on report an exception that ends the script to the master before the process ends."""
        before = sys.excepthook

        def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            before(kind, error, trace)
            if isinstance(error, Refused):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(EX_TEMPFAIL)  # the job goes on without this worker
            self.failed(error)

        sys.excepthook = told

    def close(self) -> None:
        """Leave without notice; the master sees the end of the connection."""
        self.group.drop()
        if self.line is not None:
            self.line.close()


def _own_address(master: str) -> str:
    """This machine's own address on the route to the master."""
    host, _, port = master.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])
