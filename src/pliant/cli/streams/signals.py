"""Handles signals in a separate thread.

A signal handler of Python runs in the main thread, before its next instruction. If the signal arrives just
before the main thread waits for the server, it is handled only after the server answers: a Ctrl-C would have
no effect until the job prints its next line.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def heard(actions: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Within this context, each of these signals runs its action in one waiting thread, one at a time.

    Signals that this process ignores, as with nohup, stay ignored. Threads that started before could take
    the signals: enter the context before starting threads.
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
        signal.pthread_kill(thread.ident or 0, next(iter(taken)))  # wakes the thread out of sigwait
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
