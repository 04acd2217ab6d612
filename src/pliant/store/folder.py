"""The server's own part of the state folder: layout version, lock, token, and where it can be reached.

The folder is private to its owner (mode 0700). Whoever holds the lock is the server; a server that is taken
over keeps its lock on a file that no longer has a name, and learns from the store's epoch that it is over.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.store.errors import StoreError

LAYOUT = 1
"""Version of the state folder. A release reads its own and older ones."""


class Held(StoreError):
    """Another server uses this folder."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths and files of one server's state."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "pliant.db"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def socket(self) -> Path:
        """Where the server's own account reaches it without a token."""
        return self.path / "sock"

    @property
    def record_file(self) -> Path:
        return self.path / "server.json"

    def prepare(self) -> None:
        """Create it, or refuse one that a newer release has written; nothing is changed then."""
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
            self.write("VERSION", f"{LAYOUT}\n", mode=0o600)
        except OSError as error:
            raise StoreError(
                f"The state folder {self.path} cannot be used: {error.strerror}. "
                "Free some space or choose another folder with --state."
            ) from error

    def lock(self, *, take_over: bool) -> int:
        """A descriptor that holds the server's lock as long as it is open."""
        name = self.path / "server.lock"
        while True:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                if not take_over:
                    where = self.record().get("url", "not known yet")
                    raise Held(
                        f"A server already uses {self.path} (address: {where}). Use it, stop it with `pliant "
                        "down`, or replace it with `pliant up --take-over` if it does not answer."
                    ) from None
                name.unlink(missing_ok=True)
                continue
            if os.path.exists(name) and os.path.samestat(os.fstat(fd), os.stat(name)):
                return fd
            os.close(fd)  # somebody took over between our open and our lock

    def secret(self, name: str) -> str:
        """A random word that is made once and kept with mode 0600."""
        path = self.path / name
        if path.exists():
            return path.read_text().strip()
        word = secrets.token_urlsafe(32)
        self.write(name, word + "\n", mode=0o600)
        return word

    def record(self) -> dict[str, Any]:
        """What the running server wrote about itself; empty if there is none."""
        try:
            found = json.loads(self.record_file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_record(self, record: Mapping[str, Any]) -> None:
        self.write("server.json", json.dumps(record, indent=1) + "\n", mode=0o600)

    def drop_record(self, pid: int) -> None:
        """Remove the record if it is still that process's."""
        if self.record().get("pid") == pid:
            self.record_file.unlink(missing_ok=True)

    def write(self, name: str, text: str, *, mode: int) -> None:
        """Whole or not at all."""
        draft = self.path / f".{name}.{os.getpid()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(draft, self.path / name)
