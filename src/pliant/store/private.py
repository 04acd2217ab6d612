"""Checks that only this account and root could replace a folder."""

import grp
import os
import pwd
import stat
from pathlib import Path

from pliant.store.errors import StoreError

_LINKS = 40  # most links followed, as in the kernel


def demand_private(path: Path) -> None:
    """Checks each part of the path from `/`, as far as it exists. Raises StoreError that names the part.

    Each part must be a folder or a link of this account or of root, and nobody else may write to it. A folder
    of root like `/tmp`, in which users cannot rename each other's files, is accepted: the next parts are
    checked too. The last part must be closed to all others.
    """
    left = [*path.absolute().parts[1:]]
    here, links = Path("/"), 0
    while True:
        seen = _look(here)
        if seen is None:
            return  # the server makes the rest, with mode 0700
        if stat.S_ISLNK(seen.st_mode):
            _demand_owner(path, here, seen)
            links += 1
            if links > _LINKS:
                raise StoreError(f"{path} cannot be the state folder: {here} is a link that leads nowhere.")
            target = Path(os.path.normpath(here.parent / os.readlink(here)))
            left, here = [*target.parts[1:], *left], Path("/")
            continue
        if not stat.S_ISDIR(seen.st_mode):
            raise StoreError(f"{path} cannot be the state folder: {here} is not a folder.")
        _demand_owner(path, here, seen)
        _demand_mode(path, here, seen, last=not left)
        if not left:
            return
        here = here / left.pop(0)


def _look(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _demand_owner(path: Path, part: Path, seen: os.stat_result) -> None:
    if seen.st_uid not in (0, os.geteuid()):
        raise StoreError(
            f"{path} cannot be the state folder: {part} belongs to user {_user(seen.st_uid)}, who could "
            "replace what is in it. Choose another folder with --state."
        )


def _demand_mode(path: Path, part: Path, seen: os.stat_result, *, last: bool) -> None:
    mode = stat.S_IMODE(seen.st_mode)
    if last and mode & 0o077:
        raise StoreError(
            f"{path} cannot be the state folder: it has mode {mode:04o} and is open to others. "
            f"Close it: chmod 700 {path}"
        )
    open_to = mode & 0o022
    if open_to == 0o020 and _alone_in(seen.st_gid):
        open_to = 0
    if open_to and not (mode & stat.S_ISVTX and seen.st_uid == 0):
        raise StoreError(
            f"{path} cannot be the state folder: others may write to {part} (owner {_user(seen.st_uid)}, "
            f"mode {mode:04o}). Close it: chmod go-w {part}"
        )


def _alone_in(group: int) -> bool:
    """True if the group is this account's own and has no other members."""
    try:
        me, its = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return me.pw_gid == group and its.gr_name == me.pw_name and set(its.gr_mem) <= {me.pw_name}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
