"""store move: moves the state from a file to PostgreSQL, or back."""

from __future__ import annotations

import subprocess
import sys

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.server import daemon
from pliant.cli.server.lifecycle import own_state, stop
from pliant.cli.session import Session, pass_session
from pliant.client.errors import PliantError

store = LazyGroup(
    {"Commands": {"move": "pliant.cli.server.store:move"}},
    name="store",
    help="Move the server's state to PostgreSQL, or back to a file.",
)


@click.command("move", cls=Command, short_help="Move the state to PostgreSQL, or back to a file.")
@click.argument("target", metavar="postgresql://USER@HOST/DATABASE|file")
@pass_session
def move(session: Session, target: str) -> None:
    """Move the server's state to an empty PostgreSQL database, or back to a file in the state folder. The
    server is restarted; its tasks keep running. Put the password into ~/.pgpass, not into the address.
    """
    if session.server is not None:
        raise click.UsageError("store move works on the server of this machine only: omit --server.")
    state = own_state(session)
    _run(state, "--check", target)  # checked before anything is stopped
    record = daemon.leading(state)
    if record is None or not daemon.alive(int(record["pid"])):
        _run(state, target)
        click.echo(f"The state is in {target}.")
        return
    again = stop(session, state)
    try:
        _run(state, target)
    finally:
        started = again()
    click.echo(f"The state is in {target}. Pliant runs at {started['url']} (pid {started['pid']}).")


def _run(state: str, *rest: str) -> None:
    words = [sys.executable, "-m", "pliant.store.move", "--state", state, *rest]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1].removeprefix("pliant: ") if lines else f"exit code {done.returncode}"
        raise PliantError(f"Nothing was moved: {reason}")
