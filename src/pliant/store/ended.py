"""Logouts that older releases kept as files of the state folder; the store keeps them now."""

import os
import shutil

from pliant.control.usecases.logouts import Logouts
from pliant.store.folder import StateFolder

FOLDER = "ended"
"""It holds an empty file for each ended session, named after the session's id."""

LIFE = 7 * 24 * 3600 + 3600
"""Seconds after its end until no cookie of a session was valid any more, in those releases."""


def brought_along(folder: StateFolder, logouts: Logouts) -> Logouts:
    """`logouts`, with those that a state folder still holds; their files are removed. Raises OSError."""
    path = folder.path / FOLDER
    if path.exists():
        with os.scandir(path) as entries:
            until = {it.name: round((it.stat().st_mtime + LIFE) * 1000) for it in entries}
        logouts.keep(until)
        logouts.forget()
        shutil.rmtree(path)
    return logouts
