"""The decider's own process: `python -m pliant.control.decider.process PARENT PIPE QUESTIONS`.

It has one thread. It takes an ask, decides, answers, and takes the next. It answers a question in a fork of
itself, made between two asks: the fork sees the world of the last plan without copying it.
"""

import gc

gc.disable()  # imports make many objects and no garbage
# isort: split
import contextlib
import ctypes
import os
import pickle
import select
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pliant.compiled  # noqa: F401 - before all that imports the core

# isort: split
from pliant.control.decider.core import Core
from pliant.control.decider.pieces import OUT_OF_MEMORY, Receiver, Sender, packed
from pliant.control.errors import Refused
from pliant.control.explain import questions, rehearsal
from pliant.sched.cycle import unswept

gc.freeze()
gc.enable()

WORKS = (questions, rehearsal)
"""The modules of the questions, imported here so that no fork has to import them."""

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

FIRST_VICTIM = "500"
"""oom_score_adj: when memory is short the kernel ends the decider, which is restarted, before the server."""


class Process:
    """The loop of the decider's process."""

    def __init__(self, pipe: Connection, questions: socket.socket) -> None:
        self._pipe = pipe
        self._questions = questions
        self._core = Core()
        self._waiting: list[tuple[int, socket.socket]] = []  # (ask to wait for, socket of the caller)

    def run(self) -> None:
        """Serve until the server closes its end of the pipe, which raises EOFError."""
        receiver, sender = Receiver(self._pipe), Sender(self._pipe)
        ready = select.poll()
        ready.register(self._pipe, select.POLLIN)
        ready.register(self._questions, select.POLLIN)
        while True:
            found = {fd for fd, _ in ready.poll()}
            if self._questions.fileno() in found:
                self._hear()
            if self._pipe.fileno() in found:
                with unswept():  # garbage is collected once the answer is sent
                    ask = receiver.ask()
                    self._core.follow(ask)
                    sender.decided(self._core.decide(ask.now))
            for one in [it for it in self._waiting if it[0] <= self._core.number]:
                self._waiting.remove(one)
                self._fork(one[1])

    def _hear(self) -> None:
        head, descriptors, _, _ = socket.recv_fds(self._questions, 8, 1)
        if not descriptors:
            raise EOFError
        self._waiting.append((int.from_bytes(head, "little"), socket.socket(fileno=descriptors[0])))

    def _fork(self, asker: socket.socket) -> None:
        with asker:
            try:
                if os.fork():
                    return
            except OSError as error:  # no memory or processes left: the caller sees its socket closed
                sys.stderr.write(f"pliant: a question cannot be worked on: {error}\n")
                return
            try:
                self._answer(asker)
                os._exit(0)
            finally:
                os._exit(1)

    def _answer(self, asker: socket.socket) -> None:
        """In the fork: answer the question that the caller sends."""
        gc.disable()  # a collection would touch, and so copy, every page
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._pipe.close()  # else a decider that has ended would seem to live
        for other in (self._questions, *(it for _, it in self._waiting)):
            other.close()
        os.nice(5)
        with asker.makefile("rwb") as stream:
            said: tuple[str, object, str, str]  # error's class or '', answer or error's message, hint, field
            try:
                work, patience = pickle.load(stream)  # by the server over a private socket  # nosec B301
                signal.setitimer(signal.ITIMER_REAL, patience + 1)  # by then the caller has stopped waiting
                said = ("", work(self._core), "", "")
            except Refused as error:
                said = (type(error).__name__, error.message, error.hint, error.field)
            except MemoryError:
                said = (
                    "Unavailable",
                    "There is not enough memory to answer the question.",
                    "Try a smaller question.",
                    "",
                )
            except Exception as error:  # noqa: BLE001 - the caller gets any error
                text = f"The question cannot be answered: {error!r}."
                said = ("Unavailable", text, "Nothing was changed.", "")
            stream.write(packed(said))


def main(argv: list[str]) -> int:
    parent, pipe, questions = map(int, argv)
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        return 0  # the server ended before prctl() took effect
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the server's terminal; EOF on the pipe ends it
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks leave nothing behind
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_VICTIM)
    try:
        Process(Connection(pipe), socket.socket(fileno=questions)).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 0
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
