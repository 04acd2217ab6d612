"""Finds the first traceback of a failed job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pliant.cli.session import Session
from pliant.client.errors import PliantError

if TYPE_CHECKING:
    from pliant.wire.workload import PodItem

HEAD = "Traceback (most recent call last):"
_OURS = ("elasticdl: ", "pliant.train: ")
_TAIL = 2000
"""Number of last lines of a log that are searched."""


def first_traceback(session: Session, workload_id: str, pods: Sequence[PodItem]) -> str:
    """The first traceback, in order of failure; else the first line of elasticdl or pliant.train; else ""."""
    failed = [pod for pod in pods if pod.get("exitCode") or pod["status"] == "Failed"]
    failed.sort(key=lambda pod: pod.get("completedAt") or "")
    logs = [_log(session, workload_id, pod["name"]) for pod in failed]
    for lines in logs:
        if found := _traceback(lines):
            return "\n".join(found)
    said = (line for lines in logs for line in lines if line.startswith(_OURS))
    return next(said, "")


def _log(session: Session, workload_id: str, pod: str) -> list[str]:
    try:
        pieces = b"".join(session.client.logs(workload_id, pod=pod, tail=_TAIL))
    except PliantError:
        return []  # the log is gone: the caller's other output matters more
    return pieces.decode(errors="replace").splitlines()


def _traceback(lines: Iterable[str]) -> list[str]:
    """The first traceback, from its head to the line that names the error; [] if there is none."""
    found: list[str] = []
    for line in lines:
        if line.startswith(HEAD):
            found = [line]
        elif found:
            found.append(line)
            if line and not line.startswith(" "):
                return found
    return found
