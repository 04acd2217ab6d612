"""When the lines of a log came: the marks of `log-times`, which a supervisor writes beside `log`.

What a mark says is believed as far as it makes sense: a torn one, one past the end of the log, and those of
before the log was cut short change no other line's time.
"""

import io
import os
from array import array
from bisect import bisect_right

from pliant.control.clock import stamp
from pliant.engines.local.folder.layout import Folder
from pliant.engines.local.folder.regular import Odd, open_regular

WORD = b"PLTIMES1"
MARK = 16  # bytes: an offset in the log, and ms since the epoch; the first of a file is WORD and an inode
MOST = 64 * 2**20  # bytes of one file that are read
LATEST = 253_402_300_799_999  # ms: the last moment of the year 9999
UNKNOWN = b"- "


class Times:
    """Of one file of a log, which may still grow."""

    def __init__(self, folder: Folder, log: int) -> None:
        """`log` is the descriptor of that file; it stays the caller's."""
        self._folder = folder
        self._inode = os.fstat(log).st_ino
        self._fds = self._open()  # oldest first; the last one may grow
        self._read = 0  # bytes read of the last one
        self._offsets, self._ms = array("Q"), array("Q")
        for fd in self._fds:
            self._take(fd)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def at(self, offset: int) -> int | None:
        """When the line that begins at that byte came (ms); None: nobody noted it."""
        if not self._offsets or offset >= self._offsets[-1]:
            self._grow()
        found = bisect_right(self._offsets, offset)
        return self._ms[found - 1] if found else None

    def since(self, moment: int) -> int | None:
        """The first byte that came at that time (ms) or later, or one past the end; None: not noted."""
        self._grow()
        if not self._offsets:
            return None
        later = (offset for offset, ms in zip(self._offsets, self._ms, strict=True) if ms >= moment)
        return next(later, 2**63 - 1)

    def _grow(self) -> None:
        if self._fds:
            self._take(self._fds[-1], self._read)
        else:  # a supervisor makes it just after the log
            self._fds = self._open()
            for fd in self._fds:
                self._take(fd)

    def _open(self) -> list[int]:
        fds = [fd for name in names(self._folder) if (fd := opened(self._folder, name)) is not None]
        mine = [fd for fd in fds if os.pread(fd, MARK, 0) == WORD + self._inode.to_bytes(8, "little")]
        for fd in fds:
            if fd not in mine:
                os.close(fd)
        return mine

    def _take(self, fd: int, start: int = MARK) -> None:
        """Read the marks from that byte on."""
        data = os.pread(fd, MOST, start)
        data = data[: len(data) - len(data) % MARK]
        self._read = start + len(data)
        for at in range(0, len(data), MARK):
            offset, ms = (
                int.from_bytes(data[at : at + 8], "little"),
                int.from_bytes(data[at + 8 : at + MARK], "little"),
            )
            while self._offsets and self._offsets[-1] >= offset:  # of bytes that were cut off since
                self._offsets.pop()
                self._ms.pop()
            self._offsets.append(offset)
            self._ms.append(ms)


class Stamps:
    """Puts the time before each line that is read of an attempt's log."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._times: dict[int, Times] = {}  # by inode
        self.midline = False  # the last byte given out was no line end

    def close(self) -> None:
        for times in self._times.values():
            times.close()

    def label(self, fd: int, offset: int) -> bytes:
        """What goes before the line that begins at that byte of the log behind the descriptor."""
        inode = os.fstat(fd).st_ino
        if inode not in self._times:
            self._times[inode] = Times(self._folder, fd)
        ms = self._times[inode].at(offset)
        return UNKNOWN if ms is None or ms > LATEST else stamp(ms).encode() + b" "

    def put(self, fd: int, offset: int, chunk: bytes) -> bytes:
        """A piece of the log that begins at that byte, with the times of the lines that begin in it."""
        parts = []
        for line in io.BytesIO(chunk):
            parts.append(line if self.midline else self.label(fd, offset) + line)
            self.midline = not line.endswith(b"\n")
            offset += len(line)
        return b"".join(parts)


def opened(folder: Folder, name: str) -> int | None:
    """None if nothing is there, or something else than a file of this account."""
    try:
        return open_regular(folder / name)
    except (FileNotFoundError, Odd):
        return None


def numbered(folder: Folder, name: str) -> list[str]:
    """NAME.N to NAME.1, as far as they are there."""
    found = [path.name for path in folder.path.glob(f"{name}.*") if path.suffix[1:].isdigit()]
    return sorted(found, key=lambda it: -int(it.rpartition(".")[2]))


def names(folder: Folder) -> list[str]:
    """The files with marks, oldest first."""
    return [*numbered(folder, "log-times"), "log-times"]


def timed(folder: Folder) -> bool:
    """True unless there is a log that an older release wrote."""
    return any((folder / name).exists() for name in names(folder)) or not (folder / "log").exists()
