"""`elasticdl --wait`: follow a job to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pliant.cli.output.amounts import show_duration
from pliant.cli.output.progress import bar
from pliant.cli.session import Session
from pliant.cli.streams.traceback import first_traceback
from pliant.client.errors import NotFound, PliantError

if TYPE_CHECKING:
    from pliant.wire.workload import WorkloadItem

_TENTHS = 10
"""A line is printed after each of this many equal parts of the work."""


def follow(session: Session, workload_id: str, name: str) -> int:
    """Print changes until the job ends; 0 if it completed. Raises PliantError if it failed or was deleted."""
    changes = session.client.watch(session.current_project)  # before the first read: no change is missed
    try:
        item = session.client.workload(workload_id)
    except NotFound:
        raise _gone(name) from None
    shown = ""
    while True:
        line = _line(item)
        if line != shown:
            click.echo(f"{name}: {_said(item)}")
            shown = line
        if item["phase"] == "Completed":
            return 0
        if item["phase"] == "Failed":
            raise _failed(session, item)
        for change in changes:
            if change.item["id"] == workload_id:
                break
        if change.kind == "deleted":
            raise _gone(name)
        item = change.item  # type: ignore[assignment]


def _gone(name: str) -> PliantError:
    return PliantError(f"Job {name} was deleted before it ended.")


def _line(item: WorkloadItem) -> str:
    """A key whose change prints a new line: phase, running pods and tenths of the work done."""
    said = item.get("progress")
    tenths = said["step"] * _TENTHS // said["stepsTotal"] if said and said["stepsTotal"] else 0
    pods = item.get("runningPods") if item["phase"] == "Running" else 0
    return f"{item['phase']} {pods} {tenths}"


def _said(item: WorkloadItem) -> str:
    if item["phase"] == "Completed":
        return f"Completed after {show_duration(item.get('totalRunningTimeSeconds'))}"
    parts = [item["phase"]]
    if item["phase"] == "Running":
        running = item.get("runningPods", 0)
        parts.append(f"{running} pod{'' if running == 1 else 's'}")
    reason = item.get("reason")
    if reason and item.get("queuePosition"):
        parts.append(reason["message"].rstrip("."))
    return ", ".join([*parts, *([bar(item)] if item.get("progress") else [])])


def _failed(session: Session, item: WorkloadItem) -> PliantError:
    said = (item.get("phaseMessage") or "").rstrip(".")
    found = first_traceback(session, item["id"], session.client.pods(item["id"]))
    return PliantError(f"Job {item['name']} has failed{f': {said}' if said else ''}.", found)
