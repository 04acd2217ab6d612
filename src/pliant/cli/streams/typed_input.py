"""Sends this terminal's input to a followed job: its standard input and the keys of its terminal."""

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
"""Seconds until the bytes that the job has not taken are sent again."""


class Over(Exception):
    """The job is no longer followed: input has no receiver."""


class Escapes:
    """Detects `~.` at the start of a line; `~~` there stands for one `~`."""

    def __init__(self) -> None:
        self._fresh = True  # at the start of a line
        self._tilde = False  # the line began with a ~ that is held back

    def passed(self, data: bytes) -> tuple[bytes, bool]:
        """(the bytes for the job, whether `~.` was typed)."""
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
    """Reads standard input in a thread and sends it to the running attempt.

    `source` is the descriptor to read; None: the job gets end of file at once. Input that one attempt has
    taken is not sent to a later one.
    """

    def __init__(
        self, session: Session, workload_id: str, name: str, *, tty: bool, source: int | None
    ) -> None:
        from pliant.cli.output.plain import show_bytes

        self._session, self._id = session, workload_id
        self.tty, self._source = tty, source
        self._left = f"{name} keeps running. Follow it with: {session.program} attach -it {name}"
        self.write = show_bytes if tty else None  # unescaped output for a terminal
        self._client = session.client.twin()
        self._targets: list[TaskInput] = []  # the attempts so far; input goes to the last
        self._fitting = threading.Lock()
        self._there = threading.Event()  # set once there is an attempt to send to
        self._over = threading.Event()  # set once nothing is followed
        self._started = False
        self.restore: Callable[[], None] = lambda: None  # restores the terminal

    def begin(self, pod: str, attempt: int) -> None:
        """From now on send the input to this attempt."""
        self._targets.append(self._client.input(self._id, pod, attempt))
        self._there.set()
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, daemon=True).start()
            if self.tty:
                threading.Thread(target=self._fit, daemon=True).start()

    @contextlib.contextmanager
    def keys(self) -> Iterator[None]:
        """In this context every key, even Ctrl-C, goes to the job if it has a terminal and this is one."""
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
        threading.Thread(target=self._fit, daemon=True).start()  # it may wait for an attempt

    def _fit(self) -> None:
        """Send the size of this terminal to the job. It ignores errors: `_run` reports the same ones."""
        with self._fitting, contextlib.suppress(PliantError, Over):  # the newest size is sent last
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
        """Call `send` with the running attempt; waits for one without limit. Raises Over."""
        while True:
            self._there.wait()
            try:
                return patiently(partial(send, self._targets[-1]))
            except (Conflict, NotFound) as error:
                if error.reason == "no-input":
                    raise
            if self._over.wait(POLL):  # the attempt is starting, or another one follows
                raise Over

    def _leave(self) -> None:
        self.restore()
        self._session.note(f"\n{self._left}")
        sys.stdout.flush()
        os._exit(INTERRUPTED)


def _send(target: TaskInput, *, data: bytes, end: bool) -> int:
    return target.send(data, end=end)
