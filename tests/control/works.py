"""Questions to a decider: functions that its process can import."""

import os
import time
from pathlib import Path

from pliant.control.decider.port import Known
from pliant.control.errors import NotFound


def memory(known: Known) -> bytes:
    return repr([*known.world.rows()]).encode()


def clears(known: Known) -> int:
    known.world.workloads.clear()
    return len(known.world.nodes)


def refuses(known: Known) -> None:
    raise NotFound("There is no such thing.", "Look elsewhere.")


def fails(known: Known) -> None:
    raise ZeroDivisionError


def swells(known: Known) -> None:
    raise MemoryError


def marked(known: Known, path: str) -> int:
    """Appends the process id to a file; the first call takes a minute."""
    file = Path(path)
    tries = len(file.read_text().split())
    with file.open("a") as out:
        out.write(f"{os.getpid()} ")
    if not tries:
        time.sleep(60)
    return tries
