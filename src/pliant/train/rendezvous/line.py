"""A worker's messages with the master beside its training: one thread watches, one reports."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from pliant.train.errors import PROTOCOL, MasterAway, Refused
from pliant.train.master.calls import MasterClient

WATCH_MS = 1_000  # of one watch call; each is a sign of life


class Line:
    """Keeps the flags that the training loop reads; calls `sever` at once when the generation dies."""

    def __init__(self, client: MasterClient, worker: str, job: str, host: str) -> None:
        self._client = client
        self.worker, self.job, self.host = worker, job, host
        self.settings: dict[str, Any] | None = None
        self.generation = 0  # of this worker
        self.step = -1
        self.history: list[dict[str, Any]] = []
        self.boundary = threading.Event()  # meet after this step
        self.over = threading.Event()  # this generation is dead
        self.dropped = threading.Event()  # the master has dropped this worker
        self.leaving = threading.Event()
        self.stop: dict[str, Any] | None = None
        self.sever: Callable[[], None] = lambda: None
        self.told: Callable[[], dict[str, str]] = dict  # values for this generation's peers, by the master
        self._boot = ""  # of the master that knows us and all values of `told`
        self._heard: dict[str, Any] = {}  # the last watch's answer, perhaps of a later generation
        self._report: dict[str, Any] | None = None
        self._warnings: list[str] = []  # not sent yet
        self._news = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def register(self) -> dict[str, Any]:
        """Register this worker with the master. Raises Refused if it does not belong to the job."""
        with self._lock:
            told = self.told()
            body = {
                "protocol": PROTOCOL,
                "job": self.job,
                "worker": self.worker,
                "pid": os.getpid(),
                "host": self.host,
                "now_ms": int(time.time() * 1000),
                "settings": self.settings,
                "generation": self.generation,
                "step": self.step,
                "history": self.history,
                "told": told,
            }
        answer = self._client.call("register", body)
        # A new master does not know what was told to the previous one while this call was under way.
        self._boot = answer.get("boot", "") if self.told() == told else ""
        return answer

    def start(self) -> None:
        """Start both threads."""
        for target, name in ((self._watch, "watch"), (self._talk, "talk")):
            threading.Thread(target=target, name=f"pliant-{name}", daemon=True).start()

    def close(self) -> None:
        """End both threads."""
        self._closed.set()
        self._news.set()

    def entered(self, generation: int, step: int, told: Callable[[], dict[str, str]] = dict) -> None:
        """This worker is now in that generation; the master passes what `told` returns to its peers."""
        with self._lock:
            self.generation, self.step, self.told = generation, step, told
            self.over.clear()
            self.boundary.clear()
            self.dropped.clear()
            # The master does not repeat what it said about this generation before this worker entered it.
            if self._heard.get("dead", 0) >= generation:
                self.over.set()
            elif self._heard.get("generation") == generation and self._heard["boundary"]:
                self.boundary.set()

    def entered_step(self, step: int) -> None:
        """Note that this worker's state is that of this step."""
        with self._lock:
            self.step = step

    def report(self, body: dict[str, Any]) -> None:
        """Queue a report; a newer one replaces one not sent yet."""
        self._report = body
        self._news.set()

    def warn(self, text: str) -> None:
        """Queue a warning for the job's status."""
        self._warnings.append(text)
        self._news.set()

    def leave(self) -> None:
        """Tell the master that this worker wants to leave."""
        self.leaving.set()
        self._news.set()

    def on_sigterm(self) -> None:
        """Make SIGTERM an announced leave. Does nothing outside of the main thread."""
        with contextlib.suppress(ValueError):  # not the main thread: the script keeps its own handler
            signal.signal(signal.SIGTERM, lambda _signal, _frame: self.leave())

    def _watch(self) -> None:
        after = -1
        while not self._closed.is_set():
            try:
                answer = self._client.call(
                    "watch",
                    {"worker": self.worker, "after": after if self._boot else -1},
                    wait_ms=WATCH_MS,
                    patience_s=0,
                )
            except Refused:
                self.dropped.set()
                self._dead(self.generation)
                self._closed.wait(0.2)
                continue
            except MasterAway:
                after = -1
                self._closed.wait(0.05)
                with contextlib.suppress(MasterAway, Refused):
                    self._client.call("status", patience_s=0)
                    self.register()  # a new master may know less than we do
                continue
            if "seq" not in answer:
                continue
            if answer.get("boot", "") != self._boot:
                after = -1
                self._closed.wait(0.05)
                with contextlib.suppress(MasterAway, Refused):
                    self.register()  # it took our call from the previous master's queue
                continue
            after = answer["seq"]
            with self._lock:
                mine, self._heard = self.generation, answer
            self.stop = answer["stop"]
            if answer["dead"] >= mine > 0 or (self.stop is not None and not self.stop["ok"]):
                self._dead(mine)
            elif answer["boundary"]:
                with self._lock:
                    if self.generation == answer["generation"]:
                        self.boundary.set()
        self._client.close()

    def _dead(self, number: int) -> None:
        with self._lock:  # so that the next generation is not entered meanwhile
            if number == 0 or self.generation != number or self.over.is_set():
                return
            self.over.set()
            self.sever()

    def _talk(self) -> None:
        said = False
        while True:
            self._news.wait()
            self._news.clear()
            if self._closed.is_set():
                self._client.close()
                return
            try:
                if self.leaving.is_set() and not said:
                    self._client.call("leave", {"workers": [self.worker]}, patience_s=60)
                    said = True
                while self._warnings:
                    self._client.call("warn", {"worker": self.worker, "text": self._warnings[0]})
                    self._warnings.pop(0)
                report, self._report = self._report, None
                if report is not None:
                    self._client.call("progress", {"worker": self.worker, **report}, patience_s=0)
            except (MasterAway, Refused):
                self._closed.wait(0.1)  # the next report will be newer
