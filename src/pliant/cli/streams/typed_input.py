"""What is typed here, into a job that is followed: its standard input, and the keys of its terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pliant.cli.exits import INTERRUPTED
from pliant.cli.streams import terminal
from pliant.cli.streams.signals import heard
from pliant.cli.workloads.outcomes import POLL, patiently
from pliant.client.errors import Conflict, NotFound, PliantError

if TYPE_CHECKING:
    from pliant.cli.session import Session
    from pliant.client.session import TaskInput

T = TypeVar("T")

FULL = 0.05
"""Seconds after which what the job has not taken is sent again."""


class Over(Exception):
    """The job is not followed any more: nothing takes what is typed."""


class Escapes:
    """Finds `~.` at the start of a line; `~~` there is one `~`."""

    def __init__(self) -> None:
        self._fresh = True  # a line begins
        self._tilde = False  # it began with this

    def passed(self, data: bytes) -> tuple[bytes, bool]:
        """(what the job gets of it, whether the terminal is to leave)."""
        out = bytearray()
        for byte in data:
            if self._tilde:
                self._tilde = False
                if byte == ord("."):
                    return bytes(out), True
                out += b"" if byte == ord("~") else b"~"
            elif self._fresh and byte == ord("~"):
                self._tilde = True
                continue
            out.append(byte)
            self._fresh = byte in b"\r\n"
        return bytes(out), False


class TypedInput:
    """A thread that reads standard input and sends it to the attempt that runs.

    `source` None: there is no input, the job sees its end at once. What an attempt has taken, a later one
    does not get.
    """

    def __init__(
        self, session: Session, workload_id: str, name: str, *, tty: bool, source: int | None
    ) -> None:
        from pliant.cli.output.plain import show_bytes

        self._session, self._id = session, workload_id
        self.tty, self._source = tty, source
        self._left = f"{name} keeps running. Follow it with: {session.program} attach -it {name}"
        self.write = show_bytes if tty else None  # a terminal's output is for a terminal, as it is
        self._client = session.client.twin()
        self._targets: list[TaskInput] = []  # the attempts so far; it goes to the last
        self._fitting = threading.Lock()
        self._there = threading.Event()  # an attempt to send to
        self._over = threading.Event()  # nothing is followed any more
        self._started = False
        self.restore: Callable[[], None] = lambda: None  # puts the terminal back

    def begin(self, pod: str, attempt: int) -> None:
        """From now on it goes to this attempt."""
        self._targets.append(self._client.input(self._id, pod, attempt))
        self._there.set()
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, daemon=True).start()
            if self.tty:
                threading.Thread(target=self._fit, daemon=True).start()

    @contextlib.contextmanager
    def keys(self) -> Iterator[None]:
        """While it lasts every key goes to the job, Ctrl-C too, if it has a terminal as this one is."""
        try:
            with self._terminal():
                yield
        finally:
            self._over.set()

    @contextlib.contextmanager
    def _terminal(self) -> Iterator[None]:
        if not (self.tty and self._source is not None and os.isatty(self._source)):
            yield
            return
        with terminal.raw(lines=True) as self.restore, heard({signal.SIGWINCH: self._on_resize}):
            yield

    def _on_resize(self) -> None:
        threading.Thread(target=self._fit, daemon=True).start()  # it may wait for an attempt to tell

    def _fit(self) -> None:
        """Tell the job how large this terminal is. What keeps it from being told, `_run` says."""
        with self._fitting, contextlib.suppress(PliantError, Over):  # the newest size is told last
            self._sent(lambda target: target.resize(*terminal.size()))

    def _run(self) -> None:
        escapes = Escapes()
        try:
            while data := self._read():
                leave = False
                if self.tty:
                    data, leave = escapes.passed(data)
                self._deliver(data)
                if leave:
                    self._leave()
            self._deliver(b"", end=True)
        except Over:
            return
        except PliantError as error:
            sys.stderr.buffer.write(f"Input is no longer sent: {error.message}\r\n".encode())
            sys.stderr.flush()
        finally:
            for target in self._targets:
                target.close()

    def _read(self) -> bytes:
        if self._source is None:
            return b""
        try:
            return os.read(self._source, 65536)
        except OSError:  # the terminal is gone
            return b""

    def _deliver(self, data: bytes, *, end: bool = False) -> None:
        left = len(data) + end
        while left:
            taken = self._sent(partial(_send, data=data, end=end))
            data, left = data[taken:], left - taken
            if left:
                time.sleep(FULL)

    def _sent(self, send: Callable[[TaskInput], T]) -> T:
        """Done with the attempt that runs, however long one is waited for. Raises Over."""
        while True:
            self._there.wait()
            try:
                return patiently(partial(send, self._targets[-1]))
            except (Conflict, NotFound) as error:
                if error.reason == "no-input":
                    raise
            if self._over.wait(POLL):  # it starts, or has ended and another one follows
                raise Over

    def _leave(self) -> None:
        self.restore()
        self._session.note(f"\n{self._left}")
        sys.stdout.flush()
        os._exit(INTERRUPTED)


def _send(target: TaskInput, *, data: bytes, end: bool) -> int:
    return target.send(data, end=end)
