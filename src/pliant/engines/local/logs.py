"""Reading what a supervisor logs: `log`, and behind it the rotated `log.1` (youngest) to `log.N`."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

from pliant.engines.local.layout import Folder
from pliant.engines.local.regular import Odd, open_regular

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
MOST = 64 * 2**20  # bytes of one file that are read
POLL = 0.2  # seconds between two looks at a log that is followed


def read(
    folder: Folder, *, follow: bool, tail: int | None, since: int | None, ended: Callable[[], bool]
) -> Iterator[bytes]:
    """Log output from the oldest line kept, or the last `tail` lines.

    `since` (ms) leaves out the files that were not written to since: lines carry no time, so a file that
    spans the moment comes as a whole. With `follow`, b'' stands for a wait.
    """
    yield from _odd(folder)
    last = _last(folder)
    files = sorted(
        (path for path in folder.path.glob("log.*") if path.suffix[1:].isdigit()),
        key=lambda path: -int(path.suffix[1:]),
    )
    old = [fd for path in files if (fd := _open(str(path))) is not None]
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
        if tail is None:
            for fd in fds:
                yield from _rest(_near_the_end(fd))
        else:
            yield from _tail(fds, tail)
        if follow:
            followed, last = last, None  # it closes what it is given
            yield from _follow(folder, followed, ended)
    finally:
        for fd in (*old, *(() if last is None else (last,))):
            os.close(fd)


def _follow(folder: Folder, fd: int | None, ended: Callable[[], bool]) -> Iterator[bytes]:
    """What comes after `fd`'s position, across rotations, until the attempt has ended. Closes `fd`."""
    try:
        while True:
            over = ended()  # asked before the read: what was written before the end is read
            if fd is None:
                fd = _last(folder)
            came = False
            if fd is not None and os.fstat(fd).st_size < os.lseek(fd, 0, os.SEEK_CUR):
                os.lseek(fd, 0, os.SEEK_SET)  # a log of which nothing older is kept starts again
            while fd is not None:
                for chunk in _rest(fd):
                    came = True
                    yield chunk
                successor = _after(folder, fd)
                if successor is None:
                    break
                yield from _rest(fd)  # written between our read and the rotation
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
    """The file that follows the one behind `fd`: None if that is still the last one."""
    inode = os.fstat(fd).st_ino
    newer = _last(folder)
    number = 1
    while newer is not None and os.fstat(newer).st_ino != inode:
        older = _open(str(folder / f"log.{number}"))
        if older is None or os.fstat(older).st_ino == inode:
            if older is not None:
                os.close(older)
            return newer
        os.close(newer)
        newer, number = older, number + 1
    if newer is not None:
        os.close(newer)
    return None


def _last(folder: Folder) -> int | None:
    return _open(str(folder / "log"))


def _open(path: str) -> int | None:
    """None if nothing is there, or something else than a file of this account."""
    try:
        return open_regular(path)
    except (FileNotFoundError, Odd):
        return None


def _odd(folder: Folder) -> Iterator[bytes]:
    """A line for the reader if something stands in the place of the log."""
    try:
        os.close(open_regular(folder / "log"))
    except FileNotFoundError:
        return
    except Odd as error:
        log.warning("not read: %s", error)
        yield f"pliant: this log is not shown: {error}\n".encode()


def _near_the_end(fd: int) -> int:
    """The descriptor, at most MOST bytes from its end: a supervisor begins a new file long before that."""
    if (size := os.fstat(fd).st_size) > MOST:
        os.lseek(fd, size - MOST, os.SEEK_SET)
    return fd


def _rest(fd: int) -> Iterator[bytes]:
    while chunk := os.read(fd, CHUNK):
        yield chunk


def _tail(fds: list[int], lines: int) -> Iterator[bytes]:
    """The last `lines` lines of all files together; a last line without its end counts as one."""
    kept: deque[bytes] = deque(maxlen=max(lines, 0))
    for fd in fds:
        with open(_near_the_end(fd), "rb", closefd=False) as file:
            for line in file:
                if kept and not kept[-1].endswith(b"\n"):
                    kept[-1] += line  # a line that was cut by a rotation
                else:
                    kept.append(line)
    yield from kept


def last_said(folder: Folder, begin: str) -> str:
    """What follows `begin` in the last line that starts so, of the last 64 KiB of the log; or ''."""
    try:
        with open(open_regular(folder / "log"), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(begin) for line in reversed(lines) if line.startswith(begin)), "")[:500]
