"""backup, restore, debug bundle."""

from __future__ import annotations

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
    """Save the database of the running server to a file. The copy is consistent; nothing is stopped."""
    path = os.path.abspath(file)
    answer = session.client.backup(path)
    if not structured(session, {"path": path, **answer}):
        click.echo(f"Backup written to {path}")


@click.command("restore", cls=Command, short_help="Restore a backup.")
@click.argument("file", type=click.Path())
@click.option("-y", "--yes", is_flag=True, help="Do not ask, even if tasks run.")
@pass_session
def restore(session: Session, file: str, yes: bool) -> None:
    """Replace the server's database by a backup.

    A running server is restarted. Its tasks are stopped first, because the backup may not contain them.
    """
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        raise NotFound(f"There is no file {path}.")
    if session.server is not None:
        raise click.UsageError("restore is for the server of this machine; --server names another.")
    state = own_state(session)
    record = server_record(state)
    running = record is not None and daemon.alive(int(record.get("pid", 0)))
    options = [str(spec) for spec in (record or {}).get("simulate") or ()]
    if running and record is not None:
        _app(state, "--check", path)  # before anything is stopped for it
        tasks = int(session.client.server().get("tasksRunning") or 0)
        if tasks and not yes:
            if not sys.stdin.isatty():
                raise Conflict(f"{tasks} tasks run and would be stopped.", "Use `restore --yes` to go on.")
            session.confirm(f"{tasks} tasks run and will be stopped. Go on?")
        session.client.shutdown(stop_tasks=True)
        if not daemon.wait_gone(int(record["pid"]), 180.0):
            raise PliantError(f"The server (pid {record['pid']}) does not end.")
    elif daemon.left_behind(state):
        raise Conflict("Tasks of a server that has ended still run.", "Stop them first: `pliant down`.")
    try:
        _app(state, path)
    finally:
        if running:
            daemon.start(daemon.arguments(state, simulate=options, port=port_of(record)), state)
    click.echo(f"Restored {path}{' and started the server again' if running else ''}.")


def _app(state: str, *rest: str) -> None:
    """Have the server's program restore, or see whether it could."""
    words = [sys.executable, "-m", "pliant.app", "restore", "--state", state, *rest]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1].removeprefix("pliant: ") if lines else f"exit code {done.returncode}"
        raise PliantError(f"Nothing was restored: {reason}")


@click.command("bundle", cls=Command)
@click.option("-O", "--file", type=click.Path(), help="File to write.")
@click.option("--redact", is_flag=True, help="Replace names by numbers; leave out log and history.")
@pass_session
def bundle(session: Session, file: str | None, redact: bool) -> None:
    """Write a zip with the server's state and log, to analyse a problem.

    It contains command lines, but no tokens and no values of environment variables. The latest
    recorded cycles are in it, for `pliant replay FILE`.
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
