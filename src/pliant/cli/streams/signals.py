"""Signals of this terminal, taken by a thread of their own.

A signal handler of Python runs in the main thread, before its next instruction. If the signal comes just
before the main thread begins to wait for the server, it is heard only once the server speaks: a Ctrl-C would
be lost until the job prints its next line.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def heard(actions: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """While it lasts, each of these signals runs its action, one at a time, in a thread that waits for them.

    What this process ignores, as with nohup, stays ignored. Threads that began before must not take them:
    enter this before they start.
    """
    taken = {number for number in actions if signal.getsignal(number) is not signal.SIG_IGN}
    over = threading.Event()

    def hear() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            number = signal.Signals(signal.sigwait(taken))
            if over.is_set():
                return
            actions[number]()

    if not taken:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    thread = threading.Thread(target=hear, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        signal.pthread_kill(thread.ident or 0, next(iter(taken)))  # it waits: this one is only for it
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
