"""share: shows and sets who besides its owner may read the log and files of a job."""

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session


@click.command("share", cls=Command, short_help="Let others read the log and the files of a job.")
@click.argument("name", shell_complete=workload_names)
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="project|user:NAME",
    help="Project or user to share with (repeatable).",
)
@click.option("--none", "unshared", is_flag=True, help="Stop sharing.")
@project_option
@pass_session
def share(session: Session, name: str, others: tuple[str, ...], unshared: bool) -> None:
    """Let others read the log and the files of your job. Without options, show who may. A new list replaces
    the earlier one.
    """
    if others and unshared:
        raise click.UsageError("Use --with or --none, not both.")
    found = session.find(name)
    if others or unshared:
        shared = session.client.share(found["id"], others)
    else:
        shared = session.client.shared_with(found["id"])
    click.echo(f"{found['name']} is shared with {', '.join(shared) or 'no one'}.")
