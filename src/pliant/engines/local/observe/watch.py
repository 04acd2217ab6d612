"""One thread waits for all descriptors and deadlines; worker threads run calls in order."""

import heapq
import itertools
import logging
import os
import select
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Call = Callable[[], None]


class Closed(Exception):
    """The engine was closed during a wait; the next one continues from the state on disk."""


class Watcher:
    """Calls back once per descriptor that became readable, once per deadline. Calls must return at once."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake_out, self._wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._wake_out, select.EPOLLIN)
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._deadlines: list[tuple[float, int, Call]] = []
        self._serial = itertools.count()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pliant-local-watch", daemon=True)
        self._thread.start()

    def add(self, fd: int, call: Call) -> None:
        """Call once when `fd` becomes readable; the caller keeps owning it."""
        with self._lock:
            self._calls[fd] = call
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def after(self, seconds: float, call: Call) -> None:
        """Call once, `seconds` from now on the monotonic clock."""
        with self._lock:
            heapq.heappush(self._deadlines, (time.monotonic() + seconds, next(self._serial), call))
        self._wake()

    def close(self) -> None:
        """Stop; watched descriptors stay open, and pending calls are dropped."""
        self._closed.set()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._epoll.close()
        os.close(self._wake_out)
        os.close(self._wake_in)

    def _wake(self) -> None:
        try:
            os.write(self._wake_in, b"!")
        except BlockingIOError:
            return  # full of wake-ups already

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                timeout = self._deadlines[0][0] - time.monotonic() if self._deadlines else None
            ready = self._epoll.poll(None if timeout is None else max(timeout, 0))
            calls: list[Call] = []
            with self._lock:
                for fd, _ in ready:
                    if fd == self._wake_out:
                        os.read(fd, 4096)
                    elif (call := self._calls.pop(fd, None)) is not None:
                        self._epoll.unregister(fd)
                        calls.append(call)
                while self._deadlines and self._deadlines[0][0] <= time.monotonic():
                    calls.append(heapq.heappop(self._deadlines)[2])
            for call in () if self._closed.is_set() else calls:
                try:
                    call()
                except Exception:
                    log.exception("a callback of the watcher failed")


class Strands:
    """Runs calls on worker threads; those of one key run one at a time, in the order of `submit`."""

    def __init__(self, workers: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="pliant-local")
        self._lock = threading.Lock()
        self._queues: dict[object, list[Call]] = {}  # a key is present exactly while a worker has it
        self._closed = False

    def submit(self, key: object, call: Call) -> None:
        with self._lock:
            if self._closed:
                return
            if (queue := self._queues.get(key)) is not None:
                queue.append(call)
                return
            self._queues[key] = [call]
            self._pool.submit(self._drain, key)

    def close(self) -> None:
        """Wait for running calls; waiting ones are dropped."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _drain(self, key: object) -> None:
        while True:
            with self._lock:
                queue = self._queues[key]
                if not queue or self._closed:
                    del self._queues[key]
                    return
                call = queue.pop(0)
            try:
                call()
            except Closed:
                log.info("an operation on %s was given up", key)
            except Exception:
                log.exception("an operation on %s failed", key)
