"""Reads configuration files; those of a shared machine are accepted only if root alone can change them."""

import os
import pwd
import stat
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class Wrong(ValueError):
    """A configuration that is not used: which file and line, what is wrong, and the cure."""


def lines_of(path: Path, *, rooted: bool = True) -> list[str]:
    """The lines of a text file of root; `rooted` False: of root or of this account. Raises Wrong."""
    if rooted:
        demand_rooted(path)
    else:
        _demand_own(path)
    try:
        return path.read_text("utf-8").splitlines()
    except OSError as error:
        raise Wrong(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise Wrong(f"{path} is no text in UTF-8: byte {error.start} cannot be read.") from error


def demand_rooted(path: Path) -> None:
    """Raise Wrong unless root alone can change the file and every folder above it.

    A sticky bit makes no difference.
    """
    path = path.absolute()
    for part in (path, *path.parents):
        try:
            seen = os.lstat(part)
        except OSError as error:
            raise Wrong(f"{path} cannot be read: {error.strerror}.") from error
        mode = stat.S_IMODE(seen.st_mode)
        if stat.S_ISLNK(seen.st_mode):
            raise Wrong(f"{path} is not used: {part} is a link. Name the file itself.")
        if seen.st_uid != 0:
            raise Wrong(
                f"{path} is not used: {part} belongs to user {_user(seen.st_uid)}, who could change it. "
                f"Give it to root: chown root {part}"
            )
        if mode & 0o022:
            raise Wrong(
                f"{path} is not used: others than root may write to {part} (mode {mode:04o}). "
                f"Close it: chmod go-w {part}"
            )


def _demand_own(path: Path) -> None:
    try:
        seen = os.stat(path)
    except OSError as error:
        raise Wrong(f"{path} cannot be read: {error.strerror}.") from error
    if not stat.S_ISREG(seen.st_mode):
        raise Wrong(f"{path} is not used: it is no file.")
    if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o022:
        raise Wrong(f"{path} is not used: others could change it. Close it: chmod go-w {path}")


def unknown(where: str, key: str, known: Iterable[str]) -> Wrong:
    """The error for an unknown key."""
    near = get_close_matches(key, known := list(known), 1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
    return Wrong(f"{where}: there is no key {key[:60]!r}. {hint}")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
