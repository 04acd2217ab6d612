"""share: who besides its owner may read the log and the files of a job."""

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session


@click.command("share", cls=Command, short_help="Let others read the log and the files of a job.")
@click.argument("name", shell_complete=workload_names)
@click.option("--with", "others", multiple=True, metavar="project|user:NAME", help="May come several times.")
@click.option("--none", "unshared", is_flag=True, help="Stop sharing it.")
@project_option
@pass_session
def share(session: Session, name: str, others: tuple[str, ...], unshared: bool) -> None:
    """Let others read the log and the files of a job of yours; without options: show who may.

    What is given replaces what was given before.
    """
    if others and unshared:
        raise click.UsageError("Use --with or --none, not both.")
    found = session.find(name)
    if others or unshared:
        shared = session.client.share(found["id"], others)
    else:
        shared = session.client.shared_with(found["id"])
    click.echo(f"{found['name']} is shared with {', '.join(shared) or 'no one'}.")
