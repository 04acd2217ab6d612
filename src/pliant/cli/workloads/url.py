"""url: prints the URLs of a running job, for a notebook with its token."""

from __future__ import annotations

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.submit.notebook import addresses, told
from pliant.cli.submit.served import TUNNEL, of_command
from pliant.client.errors import Conflict, NotFound


@click.command("url", cls=Command, short_help="Print the URLs of a running job.")
@click.argument("name", shell_complete=workload_names)
@project_option
@pass_session
def url_command(session: Session, name: str) -> None:
    """Print the URLs of a running job; the URL of a notebook has its token, which only its owner can read."""
    item = session.find(name)
    what = of_command(f"{item['command']} {item['arguments']}")
    if what is not None and what[1] == TUNNEL and (found := addresses(session, item["id"])):
        click.echo("\n".join(found))
        return
    if not item["urls"]:
        if item["runningPods"]:
            raise NotFound(
                f"{name} has no URL.",
                "Submit it with --jupyter, --vscode, --tensorboard LOGDIR or --external-url container=PORT.",
            )
        raise Conflict(
            f"{name} is not running: its status is {item['status']}.", "Its URL exists while it runs."
        )
    token = _token(session, item["id"], what[0].secret if what else "")
    for address in item["urls"]:
        if what is None or (what[0].secret and not token):
            click.echo(address)
        else:
            told(session, what[1], int(address.rpartition(":")[2]), token)


def _token(session: Session, workload_id: str, variable: str) -> str:
    """The token or password, read from a variable of the job, which only its owner can read."""
    if not variable:
        return ""
    running = session.client.exec(workload_id, ["sh", "-c", f'printf %s "${variable}"'])
    try:
        return b"".join(running.output()).decode(errors="replace").strip()
    finally:
        running.close()
