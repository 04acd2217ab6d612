"""Tells coroutines that there is a new board, with one thread for any number of them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pliant.control.service import Service

LONGEST = 1.0
"""Longest wait of the thread, in seconds; it ends within this time after the last listener has left."""


class Pulse:
    """`listen` gives an event that is set whenever the board has changed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._guard = threading.Lock()
        self._listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def listen(self) -> Iterator[asyncio.Event]:
        """Only in a running event loop. The event may be set without news; clear it before looking."""
        event = asyncio.Event()
        with self._guard:
            self._listeners[event] = asyncio.get_running_loop()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pliant-pulse", daemon=True)
                self._thread.start()
        try:
            yield event
        finally:
            with self._guard:
                del self._listeners[event]

    def _run(self) -> None:
        version = -1
        while True:
            board, _ = self._service.watch(version, LONGEST)
            with self._guard:
                if not self._listeners:
                    self._thread = None
                    return
                if board.version > version:
                    version = board.version
                    for event, loop in self._listeners.items():
                        if not loop.is_closed():
                            loop.call_soon_threadsafe(event.set)
