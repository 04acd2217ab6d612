"""Between this terminal and a command that runs elsewhere: raw bytes both ways until it ends."""

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
    """(rows, columns) of this terminal as it is now, whatever COLUMNS and LINES said once."""
    with contextlib.suppress(OSError, ValueError):  # standard input is none
        now = os.get_terminal_size(sys.stdin.fileno())
        if now.columns and now.lines:
            return now.lines, now.columns
    columns, rows = shutil.get_terminal_size()
    return rows, columns


def shuttle(command: Exec, *, tty: bool, stdin: bool) -> int:
    """Copy output here and, if asked, input there; returns the command's exit code."""
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
        # The command may have ended first; the rest of the input is then not needed.
        if not isinstance(error, PliantError) or error.status not in (404, 409):
            sys.stderr.buffer.write(f"Input is no longer sent: {error}\r\n".encode())


def _raw(wanted: bool) -> contextlib.AbstractContextManager[object]:
    return raw() if wanted else contextlib.nullcontext()


@contextlib.contextmanager
def raw(*, lines: bool = False) -> Iterator[Callable[[], None]]:
    """Every key goes through as it is, Ctrl-C too; the terminal is put back at the end, or when what this
    gives is called. `lines`: output still begins each line at the left.
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
        with contextlib.suppress(PliantError):  # it has ended
            command.resize(*size())

    return heard({signal.SIGWINCH: changed}) if wanted else contextlib.nullcontext()
