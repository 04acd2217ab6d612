"""Web sessions that were ended: their cookies stay refused after a restart of the server."""

import os
import time
from threading import Lock

from pliant.store.folder import StateFolder

FOLDER = "ended"

EVERY = 3600.0
"""Seconds between two removals of what is past."""


class EndedSessions:
    """An empty file for each ended session, in a folder of the state folder; its name is the session's id."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder, self._path = folder, folder.path / FOLDER
        self._lock = Lock()
        self._due = 0.0  # when past ones are removed again

    def __contains__(self, identity: str) -> bool:
        return os.path.exists(f"{self._path}/{identity}")

    def add(self, identity: str, life: float) -> None:
        """Records the end of a session whose cookies expire within `life` seconds. Raises OSError."""
        with self._lock:
            self._path.mkdir(mode=0o700, exist_ok=True)
            self._folder.write(f"{FOLDER}/{identity}", "", mode=0o600)
            if time.time() >= self._due:
                self._due = time.time() + EVERY
                self._prune(time.time() - life)

    def _prune(self, before: float) -> None:
        with os.scandir(self._path) as entries:
            for entry in entries:
                if entry.stat().st_mtime < before:
                    os.unlink(entry)
