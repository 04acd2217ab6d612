"""The server's side of a decider in a process of its own: starts it, asks it, restarts it when it ends."""

import contextlib
import logging
import os
import pickle
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TypeVar

from pliant.control import errors
from pliant.control.decider.pieces import OUT_OF_MEMORY, Receiver, Sender, packed
from pliant.control.decider.port import Ask, Decided, Question
from pliant.control.errors import Refused, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

LATE = 5.0
"""Seconds without an answer after which `trouble` reports it."""

LOST = 60.0
"""Seconds without an answer after which a decider is killed and restarted."""

DOUBLINGS = 5
"""LOST doubles with each decider in a row that was killed without an answer, at most this often. Else a slow
machine would kill every decider before its first plan."""

LOOK = 0.5
"""Seconds between two checks, by a waiting question, that a decider can still answer it."""

NOTICE = 10.0
"""Seconds within which the server notices the end of a decider, even on a busy machine."""

WAITS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait before a start, by the number of deciders that ended since the last plan."""


@dataclass(frozen=True, slots=True)
class Child:
    """One decider process. A broken pipe means that it has ended."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    questions: socket.socket

    @classmethod
    def start(cls, patience: float) -> "Child":
        """Start one. Writing to it raises BlockingIOError if it reads nothing for `patience` seconds."""
        ours, theirs = socket.socketpair()
        seconds, rest = divmod(patience, 1)
        timeval = struct.pack("@ll", int(seconds), int(rest * 1e6))
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        asking, hearing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, hearing:
            handles = (theirs.fileno(), hearing.fileno())
            words = [sys.executable, "-m", "pliant.control.decider.process", str(os.getpid())]
            process = subprocess.Popen(
                [*words, *map(str, handles)], stdin=subprocess.DEVNULL, pass_fds=handles
            )
        return cls(process, Connection(ours.detach()), asking)

    def end(self, grace: float) -> str:
        """Kill it if it does not end by itself within `grace` seconds; how it ended, for people."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(grace)
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.questions.close()
        if code == OUT_OF_MEMORY:
            return "ran out of memory"
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}; the server's log says why" if code is not None else "was ended"


class ChildDecider:
    """A Decider whose own thread talks to the process; the methods for the loop return soon."""

    beside = True

    def __init__(self, *, late: float = LATE, lost: float = LOST) -> None:
        self._late, self._lost = late, lost
        self._asks: queue.SimpleQueue[Ask] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Decided] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # rings when an ask was put
        self._wake: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._child: Child | None = None  # under _changed; None once its end was noticed
        self._taken: Ask | None = None  # what the child works on; belongs to the thread
        self._since: float | None = None  # monotonic seconds of the last ask; None: a plan has answered it
        self._ended = ""  # how the last one ended
        self._failures = 0  # deciders that ended since the last plan
        self._silent = 0  # of these, those that were killed because they did not answer
        self._closing = False
        self._sending = threading.Lock()  # around the sending of questions
        self._turns = threading.BoundedSemaphore(max(1, (os.cpu_count() or 2) - 1))  # 1 CPU for plans
        self._thread = threading.Thread(target=self._run, name="pliant-decider", daemon=True)

    # -- for the loop's thread -----------------------------------------------------------------------
    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        if not self._thread.is_alive():  # else another loop has opened it already
            self._thread.start()

    def ask(self, ask: Ask) -> None:
        self._since = time.monotonic()
        self._asks.put(ask)
        os.eventfd_write(self._bell, 1)

    def answer(self, timeout: float) -> Decided | None:
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=timeout) if timeout > 0 else self._answers.get_nowait()
        return None

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        os.eventfd_write(self._bell, 1)
        if self._child is not None:
            self._child.process.kill()
        self._thread.join(timeout=10)
        os.close(self._bell)

    # -- for any thread ------------------------------------------------------------------------------
    @property
    def pid(self) -> int | None:
        """The pid of the process; None while there is none."""
        child = self._child
        return child.process.pid if child is not None else None

    @property
    def trouble(self) -> str:
        if self._failures:
            times = "" if self._failures == 1 else f", {self._failures} times in a row"
            return f"The scheduler's process {self._ended}{times}. No new job starts until it runs again."
        since = self._since
        silent = time.monotonic() - since if since is not None else 0.0
        if silent <= self._late:
            return ""
        return (
            f"The scheduler has not answered for {silent:.0f} s: running jobs continue, no new job "
            f"starts. After {self._patience:.0f} s its process is restarted."
        )

    @property
    def _patience(self) -> float:
        """Seconds that the present decider, or the next one, has for an answer."""
        return self._lost * (1 << min(self._silent, DOUBLINGS))

    @property
    def _hopeless(self) -> bool:
        """True if no answer can be expected soon: the decider is late, or has ended three times in a row."""
        return bool(self.trouble) and self._failures not in (1, 2)

    def question(self, work: Question[T], after: int, patience: float) -> T:
        until = time.monotonic() + patience
        if not self._turns.acquire(timeout=patience):
            raise Unavailable(
                f"Too many questions are being answered; none could start within {patience:g} s.",
                "Ask again later.",
            )
        try:
            data = self._answer_to(work, after, until)
        finally:
            self._turns.release()
        if not data:
            said = f"The question could not be answered within {patience:g} s."
            raise Unavailable(
                self.trouble or said, "Nothing was changed. Try again later, or with a smaller question."
            )
        try:
            refused, result, hint, field = pickle.loads(data)  # from our child, private socket # nosec B301
        except (pickle.UnpicklingError, EOFError):
            raise Unavailable(
                "The answer to the question is incomplete.", "Try again, or with a smaller question."
            ) from None
        if refused:
            kind: type[Refused] = getattr(errors, refused, Unavailable)
            raise kind(result, hint, field=field)
        answer: T = result
        return answer

    def _answer_to(self, work: Question[T], after: int, until: float) -> bytes:
        """The answer of a decider, or of the next one if it ends before that; b'' if none comes in time.

        Raises Unavailable if the fork ends without an answer and its decider does not.
        """
        while (left := until - time.monotonic()) > 0 and not self._hopeless:
            with self._changed:
                self._changed.wait_for(lambda: self._child is not None, min(LOOK, left))
                child = self._child
            if child is None:
                continue
            data = self._asked(child, packed((work, left)), after, until)
            if data is not None:
                return data
            with self._changed:
                gone = self._changed.wait_for(partial(self._is_not, child), NOTICE)
            if not gone:
                raise Unavailable(
                    "The question ended without an answer.", "Try again, or with a smaller question."
                )
        return b""

    def _is_not(self, child: Child) -> bool:
        return self._child is not child

    def _asked(self, child: Child, question: bytes, after: int, until: float) -> bytes | None:
        """What a fork has written; None if it or its decider has ended; b'' if time is up."""
        mine, theirs = socket.socketpair()
        pieces: list[bytes] = []
        with mine:
            try:
                with theirs, self._sending:
                    child.questions.settimeout(LOOK)
                    socket.send_fds(child.questions, [after.to_bytes(8, "little")], [theirs.fileno()])
                mine.settimeout(max(LOOK, until - time.monotonic()))
                mine.sendall(question)
                mine.settimeout(LOOK)
                while time.monotonic() < until and not self._hopeless:
                    with contextlib.suppress(TimeoutError):
                        if not (piece := mine.recv(1 << 20)):
                            return b"".join(pieces) or None
                        pieces.append(piece)
            except TimeoutError:
                return b""
            except OSError:  # it has ended
                return None
        return b""

    # -- the thread ----------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._pause(WAITS[min(self._failures, len(WAITS) - 1)]):
            try:
                child = Child.start(self._patience)
            except OSError as error:  # no memory or processes left
                self._gone(f"cannot be started: {error}")
                continue
            self._live(child)
            how = ""
            try:
                self._serve(child)
            except (TimeoutError, BlockingIOError):
                how = f"did not answer for {self._patience:.0f} s"
                self._silent += 1
            except (EOFError, OSError, pickle.UnpicklingError) as error:
                log.debug("the pipe to the decider: %r", error)
            self._live(None)
            ended = child.end(0.0 if how or self._closing else 10.0)
            if not self._closing:
                self._gone(how or ended)

    def _pause(self, seconds: float) -> bool:
        """Wait; True if `close` was called."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)

    def _live(self, child: Child | None) -> None:
        with self._changed:
            self._child = child
            self._changed.notify_all()

    def _serve(self, child: Child) -> None:
        """Pass asks and answers on until `close`. Raises EOFError or OSError if the process has ended,
        TimeoutError or BlockingIOError if it hangs."""
        sender, receiver = Sender(child.pipe), Receiver(child.pipe, self._patience)
        fed = False  # True once it has a world
        while not self._closing:
            if child.pipe in wait([child.pipe, self._bell]):
                raise EOFError  # it sends nothing unasked, so it has ended
            os.eventfd_read(self._bell)
            while not self._asks.empty():
                ask = self._taken = self._asks.get()
                if ask.base is None and not fed:
                    self._answered(Decided(ask.number, None))
                    continue
                sender.ask(ask)
                decided = receiver.decided()
                fed, self._failures, self._silent = True, 0, 0
                self._answered(decided)

    def _gone(self, how: str) -> None:
        self._failures += 1
        self._ended = how
        log.error("the decider %s; another one is started", how)
        self._answered(Decided(self._taken.number if self._taken is not None else 0, None))

    def _answered(self, decided: Decided) -> None:
        self._taken = None
        if decided.plan is not None:
            self._since = None
        self._answers.put(decided)
        self._wake()
