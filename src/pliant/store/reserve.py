"""Disk space kept for a full disk: with it jobs can be stopped and deleted, and a server started again."""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

SIZE = 4 * 2**20
"""Bytes: the size of SQLite's log before it is reused, some hundred changes."""

PIECE = SIZE // 16
"""Bytes given up at once, so that a job that keeps writing does not take all of it at the first need."""

SCARCE = 2 * SIZE
"""Free bytes, including the reserve, below which requests that can wait are refused."""


class Reserve:
    """The file `reserve` of a state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"

    def scarce(self, spend: bool) -> bool:
        """True if space is scarce; `spend`: gives up a piece then. Else fills the reserve if it can."""
        held = self._held()
        try:
            seen = os.statvfs(self._path.parent)
        except FileNotFoundError:  # the store reports it
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
        """Gives up a piece; True if there was one."""
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
