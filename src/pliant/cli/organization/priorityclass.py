"""priorityclass list, create, delete: names for priorities."""

from __future__ import annotations

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import show_age
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

CLASSES = "/api/v1/priority-classes"

priorityclass = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.organization.priorityclass:list_classes",
            "create": "pliant.cli.organization.priorityclass:create",
            "delete": "pliant.cli.organization.priorityclass:delete",
        }
    },
    name="priorityclass",
    help="List, create and delete priority classes: names for priorities, as in Kubernetes.",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_classes(session: Session) -> None:
    """List priority classes, the highest first."""
    born = {row["name"]: row["createdAt"] for row in session.client.call("GET", CLASSES)["priorityClasses"]}
    found = session.client.call("GET", "/api/v1/workload-priorities")["priorities"]
    found.sort(key=lambda row: (-row["value"], row["name"]))

    def rows() -> str:
        lines = [
            [
                row["name"],
                str(row["value"]),
                "built in" if row["source"] == "system" else "yours",
                show_age(born.get(row["name"])),
            ]
            for row in found
        ]
        return table(("Priority Class", "Value", "Source", "Age"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("create", cls=Command)
@click.argument("name")
@click.option(
    "--value", type=int, required=True, metavar="N", help="Priority; a higher number is scheduled first."
)
@click.option("--description", metavar="TEXT", help="Description.")
@output_options
@pass_session
def create(session: Session, name: str, value: int, description: str | None) -> None:
    """Create a priority class. A workload keeps the value that its class had when it was submitted."""
    body = {"name": name, "value": value, "description": description or ""}
    made = session.client.call("POST", CLASSES, body=body)
    if not structured(session, made):
        click.echo(f"Priority class {made['name']} created with the value {made['value']}.")


@click.command("delete", cls=Command)
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Accepted; workloads of the class keep its value.")
@pass_session
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete priority classes; their workloads keep the value."""
    for name in names:
        session.client.call("DELETE", f"{CLASSES}/{segment(name)}")
        click.echo(f"Priority class {name} deleted.")
