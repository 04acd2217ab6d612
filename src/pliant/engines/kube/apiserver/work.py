"""A queue of keys to work on: each key by one worker at a time, once for any number of requests."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

FIRST, LAST = 0.2, 5.0
"""Seconds until a key whose work failed is tried again: doubled each time, up to LAST."""

RATE = 100
"""Most retries per second of all failing keys together. Once one of them succeeds, all are due, because they
mostly fail for the same reason."""


class WorkQueue:
    """Calls `work(key)` on its threads; it returns seconds until the next call for that key, or None."""

    def __init__(self, work: Callable[[Hashable], float | None], workers: int) -> None:
        self._work = work
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, Hashable]] = []
        self._serial = itertools.count()
        self._waiting: dict[Hashable, float] = {}  # when each is due
        self._busy: set[Hashable] = set()
        self._parked: set[Hashable] = set()  # due, while a worker has them
        self._failures: dict[Hashable, int] = {}
        self._errors: dict[Hashable, tuple[float, Exception]] = {}  # of failed keys: since when, and the last
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"pliant-kube-{index}", daemon=True)
            for index in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, key: Hashable, after: float = 0.0) -> None:
        """Makes the key due in `after` seconds, or sooner if it is already due sooner."""
        due = time.monotonic() + after
        with self._condition:
            if self._waiting.get(key, due + 1) > due:
                self._waiting[key] = due
                self._push(key, due)

    def hurry(self) -> None:
        """Makes all failed keys due now, because the cause may be gone."""
        with self._condition:
            failed = list(self._failures)
            self._failures.update(dict.fromkeys(failed, 0))
        for key in failed:
            self.add(key)

    def errors(self, seconds: float) -> list[Exception]:
        """The last error of each key that has failed for at least `seconds`, oldest failure first."""
        since = time.monotonic() - seconds
        with self._condition:
            found = sorted((began, number) for number, (began, _) in enumerate(self._errors.values()))
            errors = [error for _, error in self._errors.values()]
        return [errors[number] for began, number in found if began <= since]

    def close(self) -> None:
        """Waits for running work; drops the rest."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (key := self._next()) is not None:
            again: float | None = None
            try:
                again = self._work(key)
                with self._condition:
                    self._errors.pop(key, None)
                    failed = self._failures.pop(key, 0) and list(self._failures)
                for other in failed or ():
                    self.add(other)
            except Exception as error:  # noqa: BLE001 - what is wrong with one key must not stop the others
                with self._condition:
                    failures = self._failures[key] = self._failures.get(key, 0) + 1
                    since, _ = self._errors.get(key, (time.monotonic(), error))
                    self._errors[key] = since, error
                    most = max(LAST, len(self._failures) / RATE)
                again = min(FIRST * 2 ** min(failures - 1, 20), most)
                log.warning("%s: %s; again in %.1f s", key, error, again)
            with self._condition:
                self._busy.discard(key)
                if key in self._parked:
                    self._parked.discard(key)
                    self._push(key, self._waiting[key])
            if again is not None:
                self.add(key, again)

    def _push(self, key: Hashable, due: float) -> None:
        heapq.heappush(self._due, (due, next(self._serial), key))
        self._condition.notify()

    def _next(self) -> Hashable | None:
        """The next key that is due and that no worker has; None once the queue is closed."""
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                while self._due and self._due[0][0] <= now:
                    due, _, key = heapq.heappop(self._due)
                    if self._waiting.get(key) != due:  # done meanwhile, or asked for sooner
                        continue
                    if key in self._busy:
                        self._parked.add(key)
                        continue
                    del self._waiting[key]
                    self._busy.add(key)
                    return key
                self._condition.wait(max(self._due[0][0] - now, 0.01) if self._due else None)
            return None
