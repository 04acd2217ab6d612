"""replay: reruns recorded scheduling cycles with this or another version of the core."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound, PliantError


@click.command(
    "replay", cls=Command, short_help="Run recorded scheduling cycles again and compare the plans."
)
@click.argument("file", required=False, type=click.Path())
@click.option("--cycle", type=click.IntRange(min=1), metavar="N", help="Number of the cycle.")
@click.option("--at", metavar="TIME", help="The last cycle up to this time, e.g. 2026-11-20T15:04:05Z.")
@click.option(
    "--with-core",
    type=click.Path(),
    metavar="DIR",
    help="Also run another version of the core, and compare.",
)
@output_options
@pass_session
def replay(
    session: Session, file: str | None, cycle: int | None, at: str | None, with_core: str | None
) -> int:
    """Run recorded scheduling cycles again and compare the plans, byte for byte.

    FILE is a debug bundle or a record from one; without it, the running server's record is used. DIR is an
    installed or unpacked source tree of another version, or its wheel. Returns 1 if a plan differs.
    """
    if cycle is not None and at is not None:
        raise click.UsageError("--cycle and --at exclude each other.")
    when = None if at is None else _time(at)
    if file is not None and not os.path.isfile(file):
        raise NotFound(f"There is no file {file}.")
    with tempfile.TemporaryDirectory() as folder:
        path = file or _fetched(session, folder, cycle, when)
        ours = _rerun(path, cycle, when, None)
        theirs = None if with_core is None else _rerun(path, cycle, when, with_core)
    if not structured(session, {"ours": ours, **({"theirs": theirs} if theirs else {})}):
        _tell(ours, "This version")
        if theirs is not None:
            _tell(theirs, f"The version in {with_core}")
    return 1 if ours["differ"] else 0


def _fetched(session: Session, folder: str, cycle: int | None, when: int | None) -> str:
    """Write the running server's record to a file in `folder` and return its path."""
    path = os.path.join(folder, "replay.jsonl")
    stream = session.client.record(cycle=cycle, at=when)
    with open(path, "wb") as target:
        for piece in stream:
            target.write(piece)
    return path


def _time(text: str) -> int:
    try:
        found = datetime.datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.astimezone()
    except (ValueError, OverflowError):
        raise click.UsageError(f"--at {text}: a time such as 2026-11-20T15:04:05Z.") from None
    return int(found.timestamp() * 1000)


def _rerun(path: str, cycle: int | None, when: int | None, core: str | None) -> Any:
    """Rerun in a separate process: the client does not import the core, and `core` may be another version."""
    place = importlib.util.find_spec("pliant")
    assert place is not None and place.submodule_search_locations is not None
    program = os.path.join(place.submodule_search_locations[0], "store", "rerun.py")
    words = [sys.executable, "-P", program, path]
    words += ["--cycle", str(cycle)] if cycle is not None else []
    words += ["--at", str(when)] if when is not None else []
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if core is not None:
        environment["PYTHONPATH"] = _root(core)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise PliantError((lines[-1] if lines else "it failed").removeprefix("pliant: "))
    return json.loads(done.stdout)


def _root(core: str) -> str:
    """The folder (or wheel) that holds the package `pliant` of that version. Raises NotFound."""
    for place in (core, os.path.join(core, "src")):
        tree = os.path.isfile(os.path.join(place, "pliant", "sched", "cycle.py"))
        if tree or (place.endswith(".whl") and os.path.isfile(place)):
            return os.path.abspath(place)
    raise NotFound(f"No Pliant found in {core}.", "Specify a source tree, a site-packages folder or a wheel.")


def _tell(found: Mapping[str, Any], who: str) -> None:
    if found["unknown"]:
        rows = ", ".join(f"{count} {name}" for name, count in sorted(found["unknown"].items()))
        click.echo(f"{who} does not know these rows and leaves them out: {rows}")
    chosen = found["chosen"]
    if chosen is None:
        words = f"{who} decided {found['cycles']} cycles again: {found['same']} plans are the same"
        differ = f", {found['cycles'] - found['same']} differ: {found['differ']}" if found["differ"] else ""
        click.echo(f"{words}, byte for byte{differ}.")
        return
    same = "the same plan, byte for byte" if chosen["same"] else "ANOTHER plan than was recorded"
    click.echo(f"{who}, cycle {chosen['cycle']}: {same} ({chosen['digest'][:12]}).")
    decided = [
        [it["verb"], it["workload"], _gpus(it["gpuBefore"]), _gpus(it["gpuAfter"]), it["reason"]]
        for it in chosen["decisions"]
    ]
    if decided:
        click.echo(table(("WHAT", "WORKLOAD", "BEFORE", "AFTER", "WHY"), decided))
    waits = [[str(it["position"]), it["workload"], it["reason"]] for it in chosen["verdicts"][:20]]
    if waits:
        click.echo(table(("POSITION", "WORKLOAD", "WAITS BECAUSE"), waits))


def _gpus(milli: int) -> str:
    return f"{milli / 1000:.2f}"
