"""When the lines of a log arrived: reads the marks of `log-times`, which a supervisor writes beside `log`.

A bad mark does not change the time of other lines: one that is torn, one past the end of the log, or one from
before the log was truncated.
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
    """The times of one file of a log, which may still grow."""

    def __init__(self, folder: Folder, log: int) -> None:
        """`log` is the descriptor of that file; the caller keeps it."""
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
        """When the line that begins at that byte arrived (ms); None: not recorded."""
        if not self._offsets or offset >= self._offsets[-1]:
            self._grow()
        found = bisect_right(self._offsets, offset)
        return self._ms[found - 1] if found else None

    def since(self, moment: int) -> int | None:
        """The first byte that arrived at that time (ms) or later, or one past the end; None: not recorded."""
        self._grow()
        if not self._offsets:
            return None
        later = (offset for offset, ms in zip(self._offsets, self._ms, strict=True) if ms >= moment)
        return next(later, 2**63 - 1)

    def _grow(self) -> None:
        if self._fds:
            self._take(self._fds[-1], self._read)
        else:  # a supervisor creates it just after the log
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
            while self._offsets and self._offsets[-1] >= offset:  # of bytes that were truncated since
                self._offsets.pop()
                self._ms.pop()
            self._offsets.append(offset)
            self._ms.append(ms)


class Stamps:
    """Puts the time before each line that is read from an attempt's log."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._times: dict[int, Times] = {}  # by inode
        self.midline = False  # the last byte given out was not a line end

    def close(self) -> None:
        for times in self._times.values():
            times.close()

    def label(self, fd: int, offset: int) -> bytes:
        """The time to put before the line that begins at that byte of the log `fd`."""
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
    """A descriptor; None if there is nothing, or not a regular file of this account."""
    try:
        return open_regular(folder / name)
    except (FileNotFoundError, Odd):
        return None


def numbered(folder: Folder, name: str) -> list[str]:
    """The existing files NAME.N to NAME.1, in this order."""
    found = [path.name for path in folder.path.glob(f"{name}.*") if path.suffix[1:].isdigit()]
    return sorted(found, key=lambda it: -int(it.rpartition(".")[2]))


def names(folder: Folder) -> list[str]:
    """The files with marks, oldest first."""
    return [*numbered(folder, "log-times"), "log-times"]


def timed(folder: Folder) -> bool:
    """True unless there is a log without marks, as an older release wrote it."""
    return any((folder / name).exists() for name in names(folder)) or not (folder / "log").exists()
