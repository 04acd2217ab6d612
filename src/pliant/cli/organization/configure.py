"""`config project` and `config cluster`, which set the defaults as in the first edition; `config check`."""

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, show
from pliant.cli.session import Session, pass_session

config = LazyGroup(
    {
        "Commands": {
            "project": "pliant.cli.organization.configure:project",
            "cluster": "pliant.cli.organization.configure:cluster",
            "check": "pliant.cli.organization.configure:check",
        }
    },
    name="config",
    help="Set the default project or cluster; check the settings of a shared server.",
)


@click.command("project", cls=Command)
@click.argument("name")
@pass_session
def project(session: Session, name: str) -> None:
    """Set the default project for later commands."""
    from pliant.cli.organization.project import choose

    choose(session, name)


@click.command("cluster", cls=Command)
@click.argument("name")
@pass_session
def cluster(session: Session, name: str) -> None:
    """Set the default cluster for later commands."""
    from pliant.cli.cluster.cluster import choose

    choose(session, name)


@click.command("check", cls=Command)
@click.argument("file", default="/etc/pliant/config.yaml", metavar="[FILE]")
@output_options
@pass_session
def check(session: Session, file: str) -> None:
    """Check the settings of a shared server, and show the effective ones. Returns 1 if one is invalid."""
    import os
    from pathlib import Path

    from pliant.cli.output.tables import table
    from pliant.cli.server.doctor import of_machine
    from pliant.client.errors import PliantError
    from pliant.site.config import KEYS, read, shown
    from pliant.site.trusted import Wrong

    path = Path(os.path.abspath(file))
    try:
        found = shown(config := read(path))
    except Wrong as error:
        raise PliantError(str(error), "See docs/reference/config.md") from error
    if config.openid is not None:
        for one in of_machine(str(config.state), "--openid", str(config.openid)):
            session.note(f"{one['what']}: {one['text']}")
    if not path.exists():
        session.note(f"{path} does not exist: these are the defaults.")
    rows = [{"name": key.name, "value": found[key.name], "about": key.about} for key in KEYS]
    show(
        session,
        rows,
        lambda: table(
            ("KEY", "VALUE", "WHAT IT IS"),
            [[row["name"], row["value"], row["about"]] for row in rows],
            headers=session.headers,
        ),
    )
