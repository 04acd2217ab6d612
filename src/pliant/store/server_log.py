"""The server's log on standard error; rotates its file, so that it does not grow for ever."""

import logging
import os
from pathlib import Path

MOST = 8 * 2**20
"""Bytes after which `server.log` becomes `server.log.1` and replaces an older one."""


class ServerLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error; if that is `path` and has grown too large, opens a new file for it."""

    def __init__(self, path: Path, most: int = MOST) -> None:
        super().__init__()
        self._path = path
        self._most = most

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            self._rotate()
        except OSError:
            self.handleError(record)

    def _rotate(self) -> None:
        error = self.stream.fileno()
        size = os.fstat(error).st_size
        if size <= self._most or not self._path.exists():
            return
        if not os.path.samestat(os.fstat(error), os.stat(self._path)):
            return  # a terminal, or the file of a service manager
        self._path.rename(self._path.with_name(f"{self._path.name}.1"))
        fresh = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            for descriptor in (1, error):  # both: what libraries print must not go to the old file
                os.dup2(fresh, descriptor)
        finally:
            os.close(fresh)
