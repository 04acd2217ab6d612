"""Finds the account of this machine that the shared server runs as."""

import os
import stat
from collections.abc import Mapping

USUAL = "pliant"
FOLDER = "/etc/pliant"


def server_account(env: Mapping[str, str] = os.environ) -> int | None:
    """The uid of the shared server's account; None if there is no such account.

    The line `server-user NAME` of /etc/pliant/warden.conf names it; $PLIANT_ETC replaces /etc/pliant.
    The file counts only if root alone can change it. Without the file it is the system account `pliant`.
    """
    import pwd

    path = os.path.join(env.get("PLIANT_ETC") or FOLDER, "warden.conf")
    name = USUAL
    if os.path.lexists(path):
        if not _of_root(path):
            return None
        try:
            with open(path, encoding="utf-8") as file:
                words = [line.partition("#")[0].split() for line in file]
        except (OSError, ValueError):
            return None
        name = next((word[1] for word in words if word[:1] == ["server-user"] and len(word) == 2), "")
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _of_root(path: str) -> bool:
    """True if only root can change the file and the folders above it, and none of them is a symbolic link."""
    part = os.path.abspath(path)
    while True:
        try:
            seen = os.lstat(part)
        except OSError:
            return False
        if stat.S_ISLNK(seen.st_mode) or seen.st_uid != 0 or seen.st_mode & 0o022:
            return False
        if part == "/":
            return True
        part = os.path.dirname(part)


def account_name(uid: int) -> str:
    """The name of the account; its number if it has no name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
