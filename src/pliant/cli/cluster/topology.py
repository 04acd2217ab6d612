"""topology list, create, update, delete: the network topology of nodes, as levels of labels."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session

topology = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.cluster.topology:list_topologies",
            "create": "pliant.cli.cluster.topology:create",
            "update": "pliant.cli.cluster.topology:update",
            "delete": "pliant.cli.cluster.topology:delete",
        }
    },
    name="topology",
    help="List, show, create and delete topologies: levels of node labels, the widest first.",
)


def _levels(texts: tuple[str, ...]) -> list[str]:
    return [level for text in texts for level in text.replace(",", " ").split()]


_levels_option = click.option(
    "--levels",
    multiple=True,
    required=True,
    metavar="A,B",
    help="Labels of nodes, the widest first: zone,rack (or repeated).",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_topologies(session: Session) -> None:
    """List topologies."""
    found: list[Any] = list(session.client.topologies())

    def rows() -> str:
        lines = [
            [row["name"], ", ".join(row["levels"]), str(row["nodes"]), ", ".join(row["nodePools"]) or "-"]
            for row in found
        ]
        return table(("Topology", "Levels", "Nodes", "Node Pools"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("create", cls=Command)
@click.argument("name")
@_levels_option
@output_options
@pass_session
def create(session: Session, name: str, levels: tuple[str, ...]) -> None:
    """Create a topology."""
    body = {"name": name, "levels": _levels(levels)}
    made = session.client.create_topology(body)
    if not structured(session, made):
        click.echo(f"Topology {made['name']} created.")


@click.command("update", cls=Command)
@click.argument("name")
@_levels_option
@output_options
@pass_session
def update(session: Session, name: str, levels: tuple[str, ...]) -> None:
    """Replace the levels of a topology."""
    made = session.client.update_topology(name, {"levels": _levels(levels)})
    if not structured(session, made):
        click.echo(f"Topology {name} updated.")


@click.command("delete", cls=Command)
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Accepted; one that is in use is never deleted.")
@pass_session
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete topologies that no node pool and no workload uses."""
    for name in names:
        session.client.delete_topology(name)
        click.echo(f"Topology {name} deleted.")
