"""console: opens the web console of the server, logged in."""

from __future__ import annotations

import webbrowser

import click

from pliant.cli.lazy import Command
from pliant.cli.session import Session, pass_session
from pliant.client.errors import Unreachable
from pliant.client.locate import UNIX


@click.command("console", cls=Command, short_help="Open the web console, logged in.")
@click.option("--print-url", is_flag=True, help="Print a link that logs in once, within 2 minutes.")
@pass_session
def console(session: Session, print_url: bool) -> None:
    """Open the web console in the browser of this machine, logged in as you."""
    address = session.endpoint.url
    home, path = session.client.console_link()
    if not home and address.startswith(UNIX):
        raise Unreachable(
            "This server opens no port, only a Unix socket.",
            "Start one with a port: pliant up --port 8080. On a shared machine set `console` in config.yaml.",
        )
    url = (home or address) + path
    if print_url:
        click.echo(url)
    elif not webbrowser.open(url):
        session.note("No browser opened. Open this link within 2 minutes:")
        click.echo(url)
