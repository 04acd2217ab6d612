"""url: where a running job can be reached; of a notebook with the token that opens it."""

from __future__ import annotations

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.submit.notebook import PROGRAMS, url
from pliant.client.errors import Conflict, NotFound


@click.command("url", cls=Command, short_help="Print the URLs of a running job.")
@click.argument("name", shell_complete=workload_names)
@project_option
@pass_session
def url_command(session: Session, name: str) -> None:
    """Print the URLs of a running job; the URL of a notebook has its token, which only its owner can read."""
    item = session.find(name)
    if not item["urls"]:
        if item["runningPods"]:
            raise NotFound(
                f"{name} has no URL.", "Submit it with --jupyter or --external-url container=PORT."
            )
        raise Conflict(
            f"{name} is not running: its status is {item['status']}.", "Its URL exists while it runs."
        )
    running = session.client.exec(item["id"], ["sh", "-c", 'printf %s "$JUPYTER_TOKEN"'])
    try:
        token = b"".join(running.output()).decode(errors="replace").strip()
    finally:
        running.close()
    page = PROGRAMS.get(item["command"].split(" ", 1)[0], "")
    for address in item["urls"]:
        port = int(address.rpartition(":")[2])
        click.echo(url(port, token, page) if token else address)
