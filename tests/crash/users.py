"""Submits at a steady rate, whichever server leads, and records when each submission was accepted."""

import threading
import time
from collections.abc import Callable
from typing import Any

from pliant.client import Client
from pliant.client.errors import Conflict, PliantError, Unreachable

TURN = 0.2
"""Seconds between two tries of one submission."""

MOST = 50
"""Submissions in flight: the test's process also passes on the traffic of servers and database."""


class Users:
    """Sends each submission at its time, unless too many wait, and repeats it until it is accepted."""

    def __init__(self, client: Callable[[], Client], body: Callable[[str], Any], rate: int) -> None:
        """`client`: connects to the leader or raises FileNotFoundError; `rate`: submissions a second."""
        self._client, self._body, self._rate = client, body, rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._requests: list[threading.Thread] = []
        self.accepted: dict[str, tuple[float, float]] = {}  # name -> times of the accepted try and its answer
        self.wrong: list[str] = []

    def start(self, mark: str) -> None:
        self._mark = mark
        self._thread.start()

    def first(self, since: float) -> float | None:
        """The earliest acceptance of a submission sent since then (monotonic); None if there is none."""
        found = [answered for sent, answered in [*self.accepted.values()] if sent >= since]
        return min(found, default=None)

    def end(self) -> None:
        """Ends once all submissions are accepted; asserts that within 2 minutes."""
        self._ending.set()
        self._thread.join()
        for request in self._requests:
            request.join(120)
        assert not self.wrong, self.wrong[:3]
        assert len(self.accepted) == len(self._requests), "not all were accepted within 2 minutes"

    def _run(self) -> None:
        began, turn = time.monotonic(), 0
        while not self._ending.is_set():
            number = len(self._requests)
            if number - len(self.accepted) < MOST:
                request = threading.Thread(target=self._submit, args=(f"{self._mark}-{number}",), daemon=True)
                self._requests.append(request)
                request.start()
            turn += 1
            self._ending.wait(max(0.0, began + turn / self._rate - time.monotonic()))

    def _submit(self, name: str) -> None:
        while True:
            sent = time.monotonic()
            try:
                with self._client() as client:
                    client.submit("Training", self._body(name))
            except (Unreachable, FileNotFoundError):
                time.sleep(TURN)
                continue
            except Conflict:  # the answer to an earlier try was lost
                pass
            except PliantError as error:
                self.wrong.append(f"{name}: {error!r}")
                return
            self.accepted[name] = (sent, time.monotonic())
            return
