"""backup, restore, debug bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, structured
from pliant.cli.server import daemon
from pliant.cli.server.lifecycle import own_state, port_of
from pliant.cli.session import Session, pass_session
from pliant.client.errors import Conflict, NotFound, PliantError
from pliant.client.locate import server_record

debug = LazyGroup(
    {"Commands": {"bundle": "pliant.cli.server.maintenance:bundle"}},
    name="debug",
    help="Collect information about a problem.",
)


@click.command("backup", cls=Command, short_help="Save the server's database to a file.")
@click.argument("file", type=click.Path())
@output_options
@pass_session
def backup(session: Session, file: str) -> None:
    """Save the database of the running server to a file. The copy is consistent; the server keeps running."""
    path = os.path.abspath(file)
    answer = session.client.backup(path)
    if not structured(session, {"path": path, **answer}):
        click.echo(f"Backup written to {path}")


@click.command("restore", cls=Command, short_help="Restore a backup.")
@click.argument("file", type=click.Path())
@click.option("-y", "--yes", is_flag=True, help="Do not ask, even if tasks run.")
@pass_session
def restore(session: Session, file: str, yes: bool) -> None:
    """Replace the server's database with a backup and restart a running server. Tasks in the backup keep
    running; tasks that are not in it are stopped after a confirmation.
    """
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        raise NotFound(
            f"There is no file {path}.", "For the files of a deleted job use `pliant restore-files NAME`."
        )
    if session.server is not None:
        raise click.UsageError("restore works on the server of this machine only: omit --server.")
    state = own_state(session)
    record = server_record(state)
    running = record is not None and daemon.alive(int(record.get("pid", 0)))
    options = [str(spec) for spec in (record or {}).get("simulate") or ()]
    live = json.loads(_app(state, "--check", path))  # checked before anything is stopped
    known, unknown = int(live["known"]), int(live["unknown"])
    if running and record is not None:
        if unknown and not yes:
            are = "1 task runs" if unknown == 1 else f"{unknown} tasks run"
            said = f"{are} that the backup does not know and would be stopped."
            if not sys.stdin.isatty():
                raise Conflict(said, "Use `restore --yes` to continue.")
            session.confirm(f"{said} Continue?")
        session.client.shutdown(stop_tasks=False)
        if not daemon.wait_gone(int(record["pid"]), 180.0):
            raise PliantError(f"The server (pid {record['pid']}) does not end.")
    try:
        _app(state, path)
    finally:
        if running:
            words = daemon.arguments(state, simulate=options, port=port_of(record), unknown="end")
            daemon.start(words, state)
    click.echo(f"Restored {path}{' and started the server again' if running else ''}.")
    if known:
        session.note(f"{_tasks(known)} that the backup knows: nothing was stopped.")
    if unknown and not running:
        session.note(
            f"{_tasks(unknown)} that the backup does not know: "
            "`pliant up --adopt` keeps them, `pliant up --end` stops them."
        )


def _tasks(count: int) -> str:
    return "1 task runs" if count == 1 else f"{count} tasks run"


def _app(state: str, *rest: str) -> str:
    """Run the server's program to restore (--check: only to test it); its output. Raises PliantError."""
    words = [sys.executable, "-m", "pliant.app", "restore", "--state", state, *rest]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1].removeprefix("pliant: ") if lines else f"exit code {done.returncode}"
        raise PliantError(f"Nothing was restored: {reason}")
    return done.stdout


@click.command("bundle", cls=Command)
@click.option("-O", "--file", type=click.Path(), help="File to write.")
@click.option("--redact", is_flag=True, help="Replace names with numbers; omit log and history.")
@pass_session
def bundle(session: Session, file: str | None, redact: bool) -> None:
    """Write a zip file with the server's state and log, for analysis.

    It contains command lines, but no tokens and no values of environment variables. The latest recorded
    cycles are in it, for `pliant replay FILE`.
    """
    path = os.path.abspath(file or time.strftime("pliant-debug-%Y%m%d-%H%M%S.zip"))
    stream = session.client.debug_bundle(redact=redact)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
            for piece in stream:
                target.write(piece)
    except OSError as error:
        raise PliantError(f"Cannot write {path}: {error.strerror}.") from error
    click.echo(f"Debug bundle written to {path}")
