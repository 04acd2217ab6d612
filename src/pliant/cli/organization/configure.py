"""`config project` and `config cluster`: the first edition's way to choose."""

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.session import Session, pass_session

config = LazyGroup(
    {
        "Commands": {
            "project": "pliant.cli.organization.configure:project",
            "cluster": "pliant.cli.organization.configure:cluster",
        }
    },
    name="config",
    help="Choose the project or the cluster to work in.",
)


@click.command("project", cls=Command)
@click.argument("name")
@pass_session
def project(session: Session, name: str) -> None:
    """Make a project the one that commands work in."""
    from pliant.cli.organization.project import choose

    choose(session, name)


@click.command("cluster", cls=Command)
@click.argument("name")
@pass_session
def cluster(session: Session, name: str) -> None:
    """Choose a cluster."""
    from pliant.cli.cluster.cluster import choose

    choose(session, name)
