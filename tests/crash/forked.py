"""Forks servers from a process that has imported all modules, which saves 2 s of processor time for each.

Otherwise they are like `python -m pliant.app ...`: each is a process of its own.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.api.stage import until

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pliant.app"])


def _nothing() -> None:
    pass


def opens_slowly() -> None:
    """Delays a server that takes the lead until it has renewed its lease three times."""
    from pliant.control.loop import Loop
    from pliant.store import Database

    opened = Loop.open

    def slow(loop: Loop, epoch: int | None = None, asked: int = 0) -> None:
        if epoch is not None and isinstance(store := loop.store, Database):
            last = store.seen().renewed + 3
            until(lambda: store.seen().renewed >= last)
        opened(loop, epoch, asked)

    setattr(Loop, "open", slow)  # noqa: B010 - mypy lets no method be assigned to


class Served:
    """A server with the part of Popen's interface that a Rig needs."""

    prepare: Callable[[], None] = staticmethod(_nothing)
    """What its process calls before the server begins."""

    def __init__(self, words: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        """`words`: the command line after `python -m pliant.app`."""
        self._process: ForkServerProcess = _FORKS.Process(
            target=_serve, args=(tuple(words), str(log), dict(env), os.getcwd(), self.prepare)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _serve(
    words: tuple[str, ...], log: str, env: dict[str, str], folder: str, prepare: Callable[[], None]
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.argv = ["pliant.app", *words]
    from pliant.app import main

    prepare()

    sys.exit(main(words))
