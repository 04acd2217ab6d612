"""Makes the debug bundle: the data to analyse a problem elsewhere. `redact` removes the names from it."""

import io
import json
import platform
import zipfile
from dataclasses import asdict
from pathlib import Path

from pliant import __version__
from pliant.control.loop import Loop
from pliant.control.ports import Store

LOG_BYTES = 2**20
"""Bytes from the end of the server's log."""


def bundle(loop: Loop, store: Store, log: Path) -> bytes:
    """A zip. It has no tokens and no values of environment variables, since no row has them."""
    board = loop.board
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        about = {
            "version": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "cycles": board.cycles,
            "cycle_us": board.cycle_us,
            "epoch": loop.state.epoch,
            "at": board.at,
        }
        archive.writestr("about.json", json.dumps(about, indent=1))
        for name, rows in (
            ("workloads", [asdict(view.workload) for view in board.workloads.values()]),
            ("tasks", [asdict(task) for view in board.workloads.values() for task in view.tasks]),
            ("nodes", [asdict(view) for view in board.nodes]),
            ("projects", [asdict(view) for view in board.projects.values()]),
            ("departments", [asdict(view) for view in board.departments.values()]),
            ("pools", [asdict(pool) for pool in board.pools]),
        ):
            archive.writestr(f"{name}.json", json.dumps(rows, indent=1))
        for identity in board.workloads:
            lines = [json.dumps(asdict(event)) for _, event in store.events(identity)]
            archive.writestr(f"history/{identity}.jsonl", "\n".join(lines))
        archive.writestr("replay.jsonl", loop.recorder.newest())
        if log.exists():
            archive.writestr("server.log", log.read_bytes()[-LOG_BYTES:])
    return buffer.getvalue()
