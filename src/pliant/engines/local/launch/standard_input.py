"""Sends input to a running task: frames into the FIFO of its supervisor (docs/reference/attempt.md)."""

import os
import stat
import struct
from contextlib import suppress
from pathlib import Path

from pliant.engines.local.folder.layout import Folder, read_json

FRAME = struct.Struct("<cxHIQ")  # kind, length of the data behind it, stream, bytes sent before it
DATA_BYTES = 4096 - FRAME.size  # a write of PIPE_BUF bytes is whole or not at all


class TaskInput:
    """See control.ports.Input."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the attempt's."""
        self._folder = folder

    def send(self, data: bytes, *, stream: int, at: int, end: bool) -> int:
        fifo, taken = self._open(), 0
        try:
            while taken < len(data):
                piece = data[taken : taken + DATA_BYTES]
                os.write(fifo, FRAME.pack(b"D", len(piece), stream, at + taken) + piece)
                taken += len(piece)
            if end:
                os.write(fifo, FRAME.pack(b"E", 0, stream, at + taken))
                taken += 1
        except BlockingIOError:
            return taken  # the FIFO is full: the task reads more slowly
        finally:
            os.close(fifo)
        return taken

    def resize(self, rows: int, columns: int) -> None:
        fifo = self._open()
        try:
            os.write(fifo, FRAME.pack(b"W", 0, 0, columns << 16 | rows))
        except BlockingIOError:
            raise ValueError("it has not read what was typed before") from None
        finally:
            os.close(fifo)

    def _open(self) -> int:
        try:
            fifo = os.open(self._folder / "input", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            raise ValueError("it has ended") from None
        if not stat.S_ISFIFO(os.fstat(fifo).st_mode):
            os.close(fifo)
            raise ValueError("something else was put in the place of its input")
        return fifo


def task_input(folder: Folder) -> TaskInput:
    """Raises ValueError if the attempt reads nothing."""
    order = read_json(folder / "order.json")
    if order is None or not order["stdin"]:
        raise ValueError("it was submitted without --stdin")
    return TaskInput(folder.path)


def reading_end(folder: Path, *, fifo: bool) -> int:
    """Standard input of another account's task: /dev/null, or a FIFO whose other end its supervisor opens."""
    if not fifo:
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    with suppress(FileExistsError):
        os.mkfifo(folder / "stdin", 0o600)
    reading = os.open(folder / "stdin", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(reading, True)
    return reading
