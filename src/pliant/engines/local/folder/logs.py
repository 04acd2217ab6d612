"""Reads what a supervisor logs: `log`, and the rotated files `log.1` (youngest) to `log.N`."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

from pliant.engines.local.folder.layout import Folder
from pliant.engines.local.folder.log_times import Stamps, Times, numbered, opened
from pliant.engines.local.folder.regular import Odd, open_regular

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
MOST = 64 * 2**20  # bytes of one file that are read
POLL = 0.2  # seconds between two looks at a log that is followed


def read(
    folder: Folder,
    *,
    follow: bool,
    tail: int | None,
    since: int | None,
    ended: Callable[[], bool],
    timestamps: bool = False,
) -> Iterator[bytes]:
    """Log output from the oldest line kept, or the last `tail` lines; with `timestamps` each after its time.

    `since` (ms) leaves out lines that arrived earlier; a file without times, as an older release wrote it, is
    left out only if it was not written to since. With `follow`, b'' means that nothing new has arrived.
    """
    yield from _odd(folder)
    last = opened(folder, "log")
    old = [fd for name in numbered(folder, "log") if (fd := opened(folder, name)) is not None]
    stamps = Stamps(folder) if timestamps else None
    inode = os.fstat(last).st_ino if last is not None else None
    try:
        # `log` may have become `log.1` between the two looks: then it is read once, as the last one.
        fds = [fd for fd in old if os.fstat(fd).st_ino != inode]
        if last is not None:
            fds.append(last)
        if since is not None:
            fds = [fd for fd in fds if os.fstat(fd).st_mtime_ns // 1_000_000 >= since]
            if last is not None and last not in fds:
                os.lseek(last, 0, os.SEEK_END)
            for fd in fds:
                _go_to(folder, fd, since)
        if tail is None:
            for fd in fds:
                yield from _rest(_near_the_end(fd), stamps)
        else:
            yield from _tail(fds, tail, stamps)
        if follow:
            followed, last = last, None  # _follow closes it
            yield from _follow(folder, followed, ended, stamps)
    finally:
        if stamps is not None:
            stamps.close()
        for fd in (*old, *(() if last is None else (last,))):
            os.close(fd)


def _follow(
    folder: Folder, fd: int | None, ended: Callable[[], bool], stamps: Stamps | None
) -> Iterator[bytes]:
    """What comes after `fd`'s position, across rotations, until the attempt has ended. Closes `fd`."""
    try:
        while True:
            over = ended()  # asked before the read: what was written before the end is read
            if fd is None:
                fd = opened(folder, "log")
            came = False
            if fd is not None and os.fstat(fd).st_size < os.lseek(fd, 0, os.SEEK_CUR):
                os.lseek(fd, 0, os.SEEK_SET)  # without rotated files a full log is truncated
            while fd is not None:
                for chunk in _rest(fd, stamps):
                    came = True
                    yield chunk
                successor = _after(folder, fd)
                if successor is None:
                    break
                yield from _rest(fd, stamps)  # written between our read and the rotation
                os.close(fd)
                fd = successor
            if over:
                return
            if not came:
                yield b""
                time.sleep(POLL)
    finally:
        if fd is not None:
            os.close(fd)


def _after(folder: Folder, fd: int) -> int | None:
    """The file that follows the one behind `fd`; None if that is the last one."""
    inode = os.fstat(fd).st_ino
    newer = opened(folder, "log")
    number = 1
    while newer is not None and os.fstat(newer).st_ino != inode:
        older = opened(folder, f"log.{number}")
        if older is None or os.fstat(older).st_ino == inode:
            if older is not None:
                os.close(older)
            return newer
        os.close(newer)
        newer, number = older, number + 1
    if newer is not None:
        os.close(newer)
    return None


def _odd(folder: Folder) -> Iterator[bytes]:
    """An error line for the reader if the log is not a regular file of this account."""
    try:
        os.close(open_regular(folder / "log"))
    except FileNotFoundError:
        return
    except Odd as error:
        log.warning("not read: %s", error)
        yield f"pliant: this log is not shown: {error}\n".encode()


def _go_to(folder: Folder, fd: int, moment: int) -> None:
    """Seek to the first line that arrived at that time (ms) or later, if the times of this log are known."""
    times = Times(folder, fd)
    start = times.since(moment)
    times.close()
    if not start:
        return
    with open(fd, "rb", closefd=False) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(min(start, end) - 1)
        file.readline()  # to the end of the line, if that byte is in the middle of one
        os.lseek(fd, file.tell(), os.SEEK_SET)


def _near_the_end(fd: int) -> int:
    """`fd`, moved to at most MOST bytes before its end: a supervisor begins a new file long before that."""
    if (start := os.fstat(fd).st_size - MOST) > os.lseek(fd, 0, os.SEEK_CUR):
        os.lseek(fd, start, os.SEEK_SET)
    return fd


def _rest(fd: int, stamps: Stamps | None) -> Iterator[bytes]:
    while chunk := os.read(fd, CHUNK):
        at = os.lseek(fd, 0, os.SEEK_CUR) - len(chunk)
        yield chunk if stamps is None else stamps.put(fd, at, chunk)


def _tail(fds: list[int], lines: int, stamps: Stamps | None) -> Iterator[bytes]:
    """The last `lines` lines of all files together; a last line without its end counts as one."""
    kept: deque[tuple[bytes, int, int]] = deque(maxlen=max(lines, 0))  # with its file and first byte
    for fd in fds:
        at = os.lseek(_near_the_end(fd), 0, os.SEEK_CUR)
        with open(fd, "rb", closefd=False) as file:
            for line in file:
                if kept and not kept[-1][0].endswith(b"\n"):
                    kept[-1] = (kept[-1][0] + line, *kept[-1][1:])  # a line that was cut by a rotation
                else:
                    kept.append((line, fd, at))
                at += len(line)
    for line, fd, at in kept:
        yield line if stamps is None else stamps.put(fd, at, line)


def last_said(folder: Folder, begin: str) -> str:
    """What follows `begin` in the last line that starts with it, in the log's last 64 KiB; '' if none."""
    try:
        with open(open_regular(folder / "log"), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(begin) for line in reversed(lines) if line.startswith(begin)), "")[:500]
