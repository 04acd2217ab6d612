"""Heavy questions beside the loop: they are worked on in a child process, on a copy of the loop's memory.

The child is forked between two cycles, so that the world it sees is one that a cycle has left. It keeps no
descriptor but the one for its answer (a lock or a socket of the server must not outlive the server), it may
use so much time and no more, and what it does to its copy nobody sees.
"""

import contextlib
import gc
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pliant.control import errors
from pliant.control.errors import Refused, Unavailable
from pliant.control.state.state import State

if TYPE_CHECKING:
    from pliant.control.loop import Loop

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for which a child may work, and for which a question may wait for its turn."""

_turns = threading.BoundedSemaphore(max(1, (os.cpu_count() or 2) - 1))
"""So many children at once: one core stays for the loop, whoever asks."""


def aside(loop: "Loop", work: Callable[[State], T], patience: float = PATIENCE) -> T:
    """What `work` says about the loop's state, of which it has a copy. Raises what `work` refuses."""
    if not _turns.acquire(timeout=patience):
        raise Unavailable(
            f"Others have asked so much that no turn came within {patience:g} s.", "Ask again later."
        )
    try:
        data = _asked(loop, work, patience)
    finally:
        _turns.release()
    if not data:
        raise Unavailable(
            f"The question could not be answered within {patience:g} s.", "Nothing was changed; ask for less."
        )
    refused, result, hint = pickle.loads(data)  # by our own child, through a pipe that nobody else has
    if refused:
        kind: type[Refused] = getattr(errors, refused, Unavailable)
        raise kind(result, hint)
    answer: T = result
    return answer


def _asked(loop: "Loop", work: Callable[[State], Any], patience: float) -> bytes:
    """What the child has written; nothing if it was not done in time."""
    pid, reader = loop.look(lambda state: _fork(state, work, patience))
    try:
        return _read(reader, time.monotonic() + patience)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has answered, or it is too late
        os.waitpid(pid, 0)


def _fork(state: State, work: Callable[[State], Any], patience: float) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        _child(state, work, writer, patience)
    finally:
        os._exit(1)


def _child(state: State, work: Callable[[State], Any], writer: int, patience: float) -> None:
    gc.disable()  # a collection would touch, and so copy, every page
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, patience)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.nice(5)
    message: tuple[str, Any, str]  # the name of what it raises, the answer or what is wrong, a hint
    try:
        message = ("", work(state), "")
    except Refused as error:
        message = (type(error).__name__, error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - whatever it was, the asker is told
        message = ("Unavailable", f"The question could not be answered: {error!r}.", "Nothing was changed.")
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
    os._exit(0)


def _read(reader: int, deadline: float) -> bytes:
    """All that comes; nothing if it is not complete in time."""
    pieces: list[bytes] = []
    ready = select.poll()
    ready.register(reader, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            return b""
        piece = os.read(reader, 1 << 20)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
