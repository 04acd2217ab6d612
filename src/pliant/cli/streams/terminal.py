"""Connects this terminal with a remote command: copies raw bytes both ways until it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
import tty as terminal_modes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pliant.cli.streams.signals import heard
from pliant.client.errors import PliantError

if TYPE_CHECKING:
    from pliant.client.session import Exec


def size() -> tuple[int, int]:
    """The present (rows, columns) of this terminal; without a terminal those of LINES and COLUMNS."""
    with contextlib.suppress(OSError, ValueError):  # standard input is not a terminal
        now = os.get_terminal_size(sys.stdin.fileno())
        if now.columns and now.lines:
            return now.lines, now.columns
    columns, rows = shutil.get_terminal_size()
    return rows, columns


def shuttle(command: Exec, *, tty: bool, stdin: bool) -> int:
    """Copy the command's output here and, with `stdin`, input to it; returns its exit code."""
    with _raw(tty and sys.stdin.isatty()), _resizing(command, tty):
        if stdin:
            threading.Thread(target=_send_input, args=(command,), daemon=True).start()
        try:
            for piece in command.output():
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
        except BaseException:
            with contextlib.suppress(PliantError):
                command.kill()
            raise
    code = command.exit_code()
    if code is None:
        raise PliantError("The output ended, but the command has no exit code.", "Was its task stopped?")
    return code if code >= 0 else 128 - code


def _send_input(command: Exec) -> None:
    try:
        while data := os.read(sys.stdin.fileno(), 65536):
            command.send(data)
        command.close_input()
    except (PliantError, OSError) as error:
        # The command may have ended: the rest of the input is then not needed.
        if not isinstance(error, PliantError) or error.status not in (404, 409):
            sys.stderr.buffer.write(f"Input is no longer sent: {error}\r\n".encode())


def _raw(wanted: bool) -> contextlib.AbstractContextManager[object]:
    return raw() if wanted else contextlib.nullcontext()


@contextlib.contextmanager
def raw(*, lines: bool = False) -> Iterator[Callable[[], None]]:
    """Raw mode: every key is passed on, even Ctrl-C. The end of the context and the yielded function restore
    the terminal. `lines`: each line of output still begins at the left.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def restore() -> None:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    try:
        terminal_modes.setraw(descriptor)
        if lines:
            modes = termios.tcgetattr(descriptor)
            modes[1] |= termios.OPOST | termios.ONLCR
            termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
        yield restore
    finally:
        restore()


def _resizing(command: Exec, wanted: bool) -> contextlib.AbstractContextManager[object]:
    def changed() -> None:
        with contextlib.suppress(PliantError):  # the command has ended
            command.resize(*size())

    return heard({signal.SIGWINCH: changed}) if wanted else contextlib.nullcontext()
