"""Accounts and groups of this machine, as its name service knows them."""

import asyncio
import grp
import os
import pwd
import time
from dataclasses import dataclass
from functools import lru_cache

from fastapi.concurrency import run_in_threadpool

from pliant.api.errors import Unauthorized
from pliant.control.errors import Unavailable
from pliant.model.identity import Account

FRESH = 60.0
"""Seconds for which an answer of the name service is used again."""

LONGEST = 5.0
"""Seconds to wait for the name service."""

NOBODY = 65534
"""The uid of a process in a user namespace that has no uid of this machine."""


@dataclass(frozen=True, slots=True)
class Known:
    account: Account
    groups: tuple[str, ...]


class Accounts:
    """Looks up the accounts whose uids the kernel reports."""

    def __init__(self, least: int = 0) -> None:
        self._least = least  # smaller uids are refused, except root
        self._known: dict[int, tuple[float, Known]] = {}

    async def of(self, uid: int) -> Known:
        """The account with that uid. Raises Unauthorized if it may not use the server, Unavailable."""
        at, known = self._known.get(uid, (0.0, None))
        if known is not None and time.monotonic() - at < FRESH:
            return known
        try:
            known = await asyncio.wait_for(run_in_threadpool(look_up, uid), LONGEST)
        except TimeoutError as error:
            raise Unavailable(
                f"The name service did not resolve user {uid} within {LONGEST:g} s.",
                f"Try: getent passwd {uid}",
            ) from error
        if known is None or not (uid == 0 or self.serves(uid)):
            raise Unauthorized(
                f"User {uid} may not use this server.",
                f"It needs an account on this machine with a number of {self._least} or more.",
            )
        self._known[uid] = (time.monotonic(), known)
        return known

    def serves(self, uid: int) -> bool:
        """True if jobs may run as that uid, if such an account exists."""
        return uid not in (0, NOBODY) and uid >= self._least


def look_up(uid: int) -> Known | None:
    """None: there is no such account."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    names = []
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # no rule can name a group without a name
    return Known(Account(uid, entry.pw_name), tuple(names))


def by_name(name: str) -> Account | None:
    try:
        return Account(pwd.getpwnam(name).pw_uid, name)
    except (KeyError, ValueError):
        return None


@lru_cache(maxsize=256)
def _local(name: str, minute: int) -> Known | None:
    account = by_name(name)
    return look_up(account.uid) if account is not None else None


def local(name: str) -> Known | None:
    """The account with that name, as it was within the last minute; None if there is none."""
    return _local(name, int(time.monotonic() // FRESH))
