"""Which account of this machine the shared server runs as: the administrator has written it down."""

import os
import stat
from collections.abc import Mapping

USUAL = "pliant"
FOLDER = "/etc/pliant"


def server_account(env: Mapping[str, str] = os.environ) -> int | None:
    """Its uid; None if there is none. Only a file that root alone can change is believed.

    `$PLIANT_ETC` names another folder than /etc/pliant; its `warden.conf` says `server-user NAME`. Without
    that file it is the system account `pliant`.
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
    """True if neither the file nor a folder above it can be changed by anybody but root."""
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
    """Its number if it has no name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
