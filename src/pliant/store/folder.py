"""The server's part of the state folder: layout version, lock, token, and the server's address.

The folder is private to its owner (mode 0700). The holder of the lock is the server. A replaced server keeps
a lock on a file without a name, and learns from the store's epoch that it no longer leads.
"""

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from pliant.store.connect import locate
from pliant.store.errors import StoreError
from pliant.store.private import demand_private
from pliant.store.reserve import Reserve

LAYOUT = 1
"""Version of the state folder. A release reads its own version and older ones."""


FULL = (errno.ENOSPC, errno.EDQUOT)

LEADER, STANDBY = "server", "standby"
"""Roles of a server; files and locks are named after them."""


class FolderInUse(StoreError):
    """Another server uses this folder."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths and files of one server's state."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "pliant.db"

    @property
    def address(self) -> str | Path:
        """Where the store is: the chosen database, or the file in the folder."""
        try:
            return (self.path / "database").read_text().strip()
        except FileNotFoundError:
            return self.database

    @staticmethod
    def check_address(address: str) -> None:
        """Raises StoreError for an address with a password, which anybody could read."""
        place = locate(address)
        if isinstance(place, URL) and place.password is not None:
            raise StoreError("An address may not contain a password. Put it into ~/.pgpass.")

    def adopt(self, address: str | None) -> str | Path:
        """Where the store is, or will be if this folder has none yet. Raises StoreError."""
        if address is None or address == str(self.address):
            return self.address
        self.check_address(address)
        if self.database.exists() or self.address != self.database:
            raise StoreError(
                f"The state folder {self.path} keeps its state in {self.address}. "
                "Take it elsewhere with `pliant store move`."
            )
        return address

    def choose(self, address: str | None) -> None:
        """Records the database that keeps the state from now on; None: the folder's own file."""
        if address is None:
            (self.path / "database").unlink(missing_ok=True)
        else:
            self.write("database", address + "\n", mode=0o600)

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def standby_log(self) -> Path:
        """Log of a server that was started as a standby, even once it leads."""
        return self.path / "standby.log"

    @property
    def socket(self) -> Path:
        """The socket at which the server's own account needs no token."""
        return self.path / "sock"

    @property
    def listeners(self) -> Path:
        """The socket at which the leader hands its listeners to a standby server."""
        return self.path / "listeners"

    def prepare(self) -> None:
        """Creates the folder. Raises StoreError; if a newer release wrote it, nothing is changed."""
        demand_private(self.path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            version = self.path / "VERSION"
            if version.exists():
                found = version.read_text().strip()
                if not found.isdigit() or int(found) > LAYOUT:
                    raise StoreError(
                        f"The state folder {self.path} has layout version {found}; this release knows up to "
                        f"{LAYOUT}. Use the newer release, or another folder with --state."
                    )
            self.scarce(spend=True)
            self.write("VERSION", f"{LAYOUT}\n", mode=0o600)
        except OSError as error:
            raise StoreError(
                f"The state folder {self.path} cannot be used: {error.strerror}. "
                f"{'Free some space or choose' if error.errno in FULL else 'Choose'} "
                "another folder with --state."
            ) from error

    def scarce(self, spend: bool) -> bool:
        """True if the disk is nearly full; `spend`: gives up a piece of the reserve then. Raises OSError."""
        return Reserve(self.path).scarce(spend)

    def lock(self, *, take_over: bool, role: str = LEADER) -> int:
        """A descriptor that holds the lock of the server in that role until it is closed.

        Raises FolderInUse.
        """
        name = self.path / f"{role}.lock"
        while True:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                if not take_over:
                    where = self.record(role).get("url", "not known yet")
                    if role == STANDBY:
                        raise FolderInUse(f"A standby server already runs for {self.path}: {where}") from None
                    raise FolderInUse(
                        f"A server already uses {self.path} (address: {where}). Use it, stop it with `pliant "
                        "down`, or replace it with `pliant up --take-over` if it does not answer."
                    ) from None
                name.unlink(missing_ok=True)
                continue
            if os.path.exists(name) and os.path.samestat(os.fstat(fd), os.stat(name)):
                return fd
            os.close(fd)  # another process took over between our open and our lock

    def secret(self, name: str) -> str:
        """A random secret, made once and kept with mode 0600."""
        path = self.path / name
        if path.exists():
            return path.read_text().strip()
        word = secrets.token_urlsafe(32)
        self.write(name, word + "\n", mode=0o600)
        return word

    def word(self, name: str) -> "Word":
        """A secret, read again at each call because another process may replace it."""
        self.secret(name)
        return Word(self, name)

    @property
    def port(self) -> int:
        """The port of the last server; 0 if there was none."""
        try:
            text = (self.path / "port").read_text().strip()
        except OSError:
            return 0
        return int(text) if text.isdecimal() and int(text) < 65536 else 0

    def record(self, role: str = LEADER) -> dict[str, Any]:
        """The record of the running server in that role; {} if there is none."""
        try:
            found = json.loads((self.path / f"{role}.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_record(self, record: Mapping[str, Any], role: str = LEADER) -> None:
        self.write(f"{role}.json", json.dumps(record, indent=1) + "\n", mode=0o600)

    def drop_record(self, pid: int, role: str = LEADER) -> None:
        """Removes the record if it is still that process's."""
        if self.record(role).get("pid") == pid:
            (self.path / f"{role}.json").unlink(missing_ok=True)

    def standby(self) -> dict[str, Any]:
        """The record of the standby server; {} if there is none."""
        try:
            os.close(self.lock(take_over=False, role=STANDBY))
        except FolderInUse:
            return self.record(STANDBY)
        return {}

    def write(self, name: str, text: str, *, mode: int) -> None:
        """Writes the file whole or not at all; a full disk costs pieces of the reserve. Raises OSError."""
        while True:
            try:
                return self._write(name, text, mode)
            except OSError as error:
                if error.errno not in FULL or not Reserve(self.path).give_up():
                    raise

    def _write(self, name: str, text: str, mode: int) -> None:
        target = self.path / name
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(draft, target)


class Word:
    """A secret of a state folder; a replacement counts from the next call on."""

    def __init__(self, folder: StateFolder, name: str) -> None:
        self._folder, self._name, self._path = folder, name, str(folder.path / name)
        self._read: tuple[tuple[int, int, int], str] | None = None  # (identity of the file, its text)

    def __call__(self) -> str:
        """The current secret; if its file is gone or empty, an unknown random one."""
        try:
            seen = os.stat(self._path)  # called for each request, and Path.stat takes five times as long
            known = (seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns)
            if self._read is None or self._read[0] != known:
                self._read = (known, Path(self._path).read_text().strip())
        except FileNotFoundError:
            self._read = None
        return (self._read and self._read[1]) or secrets.token_urlsafe(32)

    def renew(self) -> None:
        """Replaces the secret. Raises OSError; then the old one stays valid."""
        self._folder.write(self._name, secrets.token_urlsafe(32) + "\n", mode=0o600)
