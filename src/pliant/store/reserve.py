"""Space that is kept for a full disk: with it jobs can be stopped and deleted, and a server started again."""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

SIZE = 4 * 2**20
"""Bytes: as much as SQLite's log takes before it is used again, some hundred changes."""

PIECE = SIZE // 16
"""So much is given up at once: a job that goes on writing does not get all of it at the first need."""

SCARCE = 2 * SIZE
"""With less than that free, what is kept included, nothing is taken in that can wait."""


class Reserve:
    """The file `reserve` of a state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"

    def scarce(self, spend: bool) -> bool:
        """True if little is left; with `spend` what is kept is given up then. Else it is kept (again)."""
        held = self._held()
        try:
            seen = os.statvfs(self._path.parent)
        except FileNotFoundError:  # the store says it
            return False
        free = seen.f_bavail * seen.f_frsize + held
        if free < SCARCE:
            if spend:
                self.give_up()
            return True
        if held < SIZE and free >= SCARCE + SIZE:
            self._keep()
        return False

    def give_up(self) -> bool:
        """A piece of it. True if there was something to give up."""
        held = self._held()
        if held:
            left = max(0, held - PIECE)
            os.truncate(self._path, left)
            log.warning(
                "the disk is nearly full: of %s a piece is given up, %d bytes are left", self._path, left
            )
        return held > 0

    def _held(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _keep(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, SIZE)
        except OSError as error:
            os.ftruncate(fd, 0)
            log.warning("%s cannot be kept: %s", self._path, error.strerror)
        finally:
            os.close(fd)
