"""Opens files that a job can replace: follows no link, never blocks, and accepts only regular files.

A link could lead to a file of another account, a FIFO would block the server, a device never ends.
"""

import os
import stat
from pathlib import Path

MOST = 16 * 2**20
"""Most bytes of a document that are read; the documents written here are far smaller."""


class Odd(OSError):
    """The path is not a regular file of this account. The text says what it is, for people."""


def open_regular(path: str | Path) -> int:
    """A descriptor for reading. Raises FileNotFoundError, Odd, OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (NotADirectoryError, PermissionError) as error:
        raise Odd(f"{path} cannot be opened: {error.strerror}") from error
    except OSError as error:
        if os.path.islink(path):
            raise Odd(f"{path} is a symbolic link") from error
        raise
    if why := _odd(os.fstat(fd)):
        os.close(fd)
        raise Odd(f"{path} {why}")
    return fd


def read_regular(path: str | Path, most: int = MOST) -> bytes:
    """The whole file. Raises FileNotFoundError, Odd, OSError."""
    fd = open_regular(path)
    with open(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size > most:
            raise Odd(f"{path} has {size} bytes, more than {most}")
        return file.read(most) or b""


def _odd(seen: os.stat_result) -> str:
    """What is wrong with it; empty if nothing is."""
    if not stat.S_ISREG(seen.st_mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        return f"is {kinds.get(stat.S_IFMT(seen.st_mode), 'a device')}"
    if seen.st_uid != os.geteuid():
        return f"belongs to user {seen.st_uid}"
    if seen.st_nlink > 1:
        return "has another name elsewhere (hard link)"
    return ""
