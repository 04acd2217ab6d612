"""People who submit at a steady rate, whoever leads, and take note of what was accepted when."""

import threading
import time
from collections.abc import Callable
from typing import Any

from pliant.client import Client
from pliant.client.errors import Conflict, PliantError, Unreachable

TURN = 0.2
"""Seconds between two tries of one submission."""

MOST = 50
"""Submissions that wait at once: the test's own process passes on what servers and database say meanwhile."""


class Users:
    """Each submission leaves at its time, unless too many still wait, and is sent until it is accepted."""

    def __init__(self, client: Callable[[], Client], body: Callable[[str], Any], rate: int) -> None:
        """`client`: of the server that leads now, or FileNotFoundError; `rate`: submissions a second."""
        self._client, self._body, self._rate = client, body, rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._requests: list[threading.Thread] = []
        self.accepted: dict[str, tuple[float, float]] = {}  # name -> when the try left, and was answered
        self.wrong: list[str] = []

    def start(self, mark: str) -> None:
        self._mark = mark
        self._thread.start()

    def first(self, since: float) -> float | None:
        """When the first one was accepted that left since then (monotonic)."""
        found = [answered for sent, answered in [*self.accepted.values()] if sent >= since]
        return min(found, default=None)

    def end(self) -> None:
        """Once all that was sent is accepted."""
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
