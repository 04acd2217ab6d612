"""serve: the server that accounts of this machine share, in the foreground."""

from __future__ import annotations

import os
import sys

import click

from pliant.cli.lazy import Command
from pliant.cli.session import Session, pass_session
from pliant.client.locate import SHARED

STATE = "/var/lib/pliant"


@click.command("serve", cls=Command, short_help="Run the server that accounts of this machine share.")
@click.option("--box", is_flag=True, help="Serve all accounts; tasks run as who submitted them.")
@click.option(
    "--socket", "place", metavar="PATH", default=SHARED, show_default=True, help="Where accounts reach it."
)
@click.option(
    "--warden",
    "conf",
    metavar="FILE",
    default="/etc/pliant/warden.conf",
    show_default=True,
    help="The configuration of the warden, which starts the tasks.",
)
@click.option(
    "--simulate", multiple=True, metavar="SPEC", help="Simulated nodes: 1x2, 2x4:16G, ... (repeatable)."
)
@click.option(
    "--adopt", "unknown", flag_value="adopt", help="Keep running tasks that the database does not know."
)
@click.option(
    "--end", "unknown", flag_value="end", help="Stop running tasks that the database does not know."
)
@pass_session
def serve(
    session: Session, box: bool, place: str, conf: str, simulate: tuple[str, ...], unknown: str | None
) -> None:
    """Run the shared server until it is told to stop, for service managers.

    It runs as an account of its own without rights, and keeps its state in /var/lib/pliant unless --state
    names another folder. Who connects to the socket is known by account, so no token is needed.
    """
    if not box:
        raise click.UsageError("`serve` is for a shared machine: add --box. For yourself: pliant up")
    state = os.path.abspath(session.state or os.environ.get("PLIANT_STATE") or STATE)
    words = [sys.executable, "-m", "pliant.app", "serve", "--box", "--state", state]
    words += ["--socket", os.path.abspath(place), "--warden", os.path.abspath(conf)]
    for spec in simulate:
        words += ["--simulate", spec]
    if unknown:
        words += ["--unknown", unknown]
    sys.stdout.flush()
    os.execv(words[0], words)
