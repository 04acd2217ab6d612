"""role: the built-in roles, and those that an administrator builds from permission sets."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

ROLES, SETS = "/api/v2/authorization/roles", "/api/v1/authorization/permission-sets"
_HERE = "pliant.cli.access.roles"

role = LazyGroup(
    {
        "Commands": {
            "list": f"{_HERE}:list_roles",
            "describe": f"{_HERE}:describe",
            "sets": f"{_HERE}:sets",
            "create": f"{_HERE}:create",
            "update": f"{_HERE}:update",
            "enable": f"{_HERE}:enable",
            "disable": f"{_HERE}:disable",
            "delete": f"{_HERE}:delete",
        }
    },
    name="role",
    help="List roles; create, change and delete your own, made of permission sets.",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_roles(session: Session) -> None:
    """List the roles."""
    found = session.client.call("GET", ROLES)["roles"]

    def rows() -> str:
        lines = [[str(one["id"]), one["name"], _state(one), one["description"]] for one in found]
        return table(("Id", "Role", "State", "About"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


def _state(one: dict[str, Any]) -> str:
    return "built-in" if not one["custom"] else "enabled" if one["enabled"] else "disabled"


@click.command("describe", cls=Command)
@click.argument("role", metavar="ROLE")
@output_options
@pass_session
def describe(session: Session, role: str) -> None:
    """Show what a role may do."""
    found = session.client.call("GET", f"{ROLES}/{segment(role)}")

    def rows() -> str:
        lines = [[it["resourceType"], ", ".join(it["actions"])] for it in found["permissions"]]
        return table(("Thing", "Rights"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("sets", cls=Command)
@output_options
@pass_session
def sets(session: Session) -> None:
    """List the permission sets that roles are made of."""
    found = session.client.call("GET", SETS)["permissionSets"]

    def rows() -> str:
        lines = [[one["id"], one["description"]] for one in found]
        return table(("Set", "About"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("create", cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--set", "sets", multiple=True, required=True, metavar="SET", help="Repeat for several; see `role sets`."
)
@click.option("--description", default="", metavar="TEXT", help="What the role is for.")
@output_options
@pass_session
def create(session: Session, name: str, sets: tuple[str, ...], description: str) -> None:
    """Create a role that may do what its permission sets do together."""
    body = {"name": name, "description": description, "permissionSets": [{"id": it} for it in sets]}
    made = session.client.call("POST", ROLES, body=body)
    if not structured(session, made):
        click.echo(
            f"Role {made['name']} created, id {made['id']}. "
            f"Grant it: pliant access-rule create --role {made['id']}"
        )


@click.command("update", cls=Command)
@click.argument("role", metavar="ROLE")
@click.option("--name", metavar="NAME", help="Another name.")
@click.option(
    "--set", "sets", multiple=True, metavar="SET", help="In place of all permission sets it has; repeatable."
)
@click.option("--description", metavar="TEXT", help="What the role is for.")
@output_options
@pass_session
def update(
    session: Session, role: str, name: str | None, sets: tuple[str, ...], description: str | None
) -> None:
    """Change a role, effective with the next request of everybody who has it."""
    told = {"name": name, "description": description, "permissionSets": [{"id": it} for it in sets] or None}
    body = {key: value for key, value in told.items() if value is not None}
    if not body:
        raise click.UsageError("Specify --name, --set or --description.")
    made = session.client.call("PUT", f"{ROLES}/{segment(role)}", body=body)
    if not structured(session, made):
        click.echo(f"Role {made['name']} updated.")


@click.command("enable", cls=Command)
@click.argument("role", metavar="ROLE")
@pass_session
def enable(session: Session, role: str) -> None:
    """Let the access rules of a role apply again."""
    made = session.client.call("POST", f"{ROLES}/{segment(role)}/enable")
    click.echo(f"Role {made['name']} enabled.")


@click.command("disable", cls=Command)
@click.argument("role", metavar="ROLE")
@pass_session
def disable(session: Session, role: str) -> None:
    """Let the access rules of a role have no effect, from the next request."""
    made = session.client.call("POST", f"{ROLES}/{segment(role)}/disable")
    click.echo(f"Role {made['name']} disabled.")


@click.command("delete", cls=Command)
@click.argument("role", metavar="ROLE")
@pass_session
def delete(session: Session, role: str) -> None:
    """Delete a role and its access rules; one that is in use must be disabled first."""
    session.client.call("DELETE", f"{ROLES}/{segment(role)}")
    click.echo(f"Role {role} deleted.")
