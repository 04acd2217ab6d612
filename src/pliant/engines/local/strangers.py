"""Finds and ends live attempts of this state folder that the store does not know."""

import logging
import os
import signal
import time
from collections.abc import Container, Sequence
from typing import Any

from pliant.control.ports import Stranger
from pliant.engines.local.folder.layout import VERSION, Layout, read_json, write_json
from pliant.engines.local.launch.launcher import Launcher
from pliant.engines.local.observe import processes
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

GRACE_SECONDS = 45  # longest wait: the command that started the server waits as well
POLL_SECONDS = 0.05


def strangers(layout: Layout, launcher: Launcher, known: Container[AttemptId]) -> list[Stranger]:
    """The live attempts that are not known. Raises OSError if they cannot be listed."""
    found = launcher.living(lambda attempt: attempt not in known)
    return [Stranger(attempt, _order(layout, attempt), _gpus(layout, attempt)) for attempt in sorted(found)]


def end(layout: Layout, launcher: Launcher, found: Sequence[Stranger]) -> None:
    """Ask each to end, wait for the longest grace period, at most GRACE_SECONDS, and kill what is left."""
    ids = frozenset(one.id for one in found)
    for one in found:
        folder = layout.folder(one.id)
        now = time.time_ns() // 1_000_000
        stop = {"version": VERSION, "cause": "unknown", "grace_ms": one.order.get("grace_ms", 0), "at": now}
        try:
            write_json(folder / "stop", stop, durable=True)
        except OSError as error:  # its folder is gone: its supervisor has nothing to write into either
            log.warning("stop of %s is not on disk: %s", one.id, error)
        says = folder.holder()
        pidfd = processes.open_pid(*says) if says is not None else None
        if pidfd is not None:
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            except ProcessLookupError:
                log.info("%s has just ended", one.id)
            finally:
                os.close(pidfd)
    grace = max((one.order.get("grace_ms", 0) / 1000 for one in found), default=0)
    deadline = time.monotonic() + min(grace, GRACE_SECONDS)
    while time.monotonic() < deadline and launcher.living(ids.__contains__):
        time.sleep(POLL_SECONDS)
    launcher.end(ids.__contains__, waiting=lambda left: None)
    log.warning("ended %d attempts that the store does not know", len(found))


def _order(layout: Layout, attempt: AttemptId) -> dict[str, Any]:
    return read_json(layout.folder(attempt) / "order.json") or {}


def _gpus(layout: Layout, attempt: AttemptId) -> tuple[str, ...]:
    told = read_json(layout.folder(attempt) / "allocation.json") or {}
    entries = [entry for entry in told.get("tasks", ()) if isinstance(entry, dict)]
    mine = [one for one in entries if one.get("id") == attempt.task and one.get("state") != "pending"]
    return tuple(dict.fromkeys(gpu for one in mine for gpu in one.get("gpus", ()) if isinstance(gpu, str)))
