"""access-rule: grants a role to a user, application, account or group, everywhere or in one scope."""

from __future__ import annotations

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

RULES, ROLES = "/api/v1/authorization/access-rules", "/api/v2/authorization/roles"
_HERE = "pliant.cli.access.rules"

access_rule = LazyGroup(
    {
        "Commands": {
            "list": f"{_HERE}:list_rules",
            "create": f"{_HERE}:create",
            "delete": f"{_HERE}:delete",
            "roles": f"{_HERE}:roles",
        }
    },
    name="access-rule",
    help="List, create and delete access rules: who has which role, and where.",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_rules(session: Session) -> None:
    """List the access rules."""
    found = session.client.call("GET", RULES)["accessRules"]

    def rows() -> str:
        lines = [
            [
                one["id"],
                f"{one['subjectType']} {one['subjectName']}",
                one["roleName"],
                f"{one['scopeType']} {one['scopeName']}".strip(),
            ]
            for one in found
        ]
        return table(("Id", "Subject", "Role", "Scope"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("create", cls=Command)
@click.option("--user", metavar="NAME", help="A user of this server.")
@click.option("--app", "application", metavar="NAME", help="An application.")
@click.option("--account", metavar="NAME", help="An account of the server's machine.")
@click.option("--group", metavar="NAME", help="A group of the server's machine.")
@click.option("--role", required=True, metavar="ROLE", help="Role to grant; `access-rule roles` lists them.")
@click.option("--department", metavar="NAME", help="Only in this department.")
@click.option("--in-project", "inside", metavar="NAME", help="Only in this project.")
@output_options
@pass_session
def create(
    session: Session,
    user: str | None,
    application: str | None,
    account: str | None,
    group: str | None,
    role: str,
    department: str | None,
    inside: str | None,
) -> None:
    """Grant a role; without --department or --in-project it applies everywhere."""
    options = (("user", user), ("app", application), ("unix", account), ("unix-group", group))
    named = [(kind, name) for kind, name in options if name is not None]
    if len(named) != 1:
        raise click.UsageError("Specify one of --user, --app, --account and --group.")
    if department is not None and inside is not None:
        raise click.UsageError("Specify --department or --in-project, not both.")
    scope = "project" if inside is not None else "department" if department is not None else "tenant"
    body = {
        "subjectType": named[0][0],
        "subjectId": named[0][1],
        "roleName": role,
        "scopeType": scope,
        "scopeId": inside or department or "",
    }
    made = session.client.call("POST", RULES, body=body)
    if not structured(session, made):
        where = f"in {made['scopeType']} {made['scopeName']}" if made["scopeId"] else "everywhere"
        click.echo(f"{made['subjectName']} has the role {made['roleName']} {where}. Rule: {made['id']}")


@click.command("delete", cls=Command)
@click.argument("rules", nargs=-1, required=True, metavar="ID...")
@pass_session
def delete(session: Session, rules: tuple[str, ...]) -> None:
    """Revoke access rules, effective with the next request."""
    for rule in rules:
        session.client.call("DELETE", f"{RULES}/{segment(rule)}")
        click.echo(f"Access rule {rule} deleted.")


@click.command("roles", cls=Command)
@output_options
@pass_session
def roles(session: Session) -> None:
    """List the roles."""
    found = session.client.call("GET", ROLES)["roles"]

    def rows() -> str:
        lines = [[str(one["id"]), one["name"], one["description"]] for one in found]
        return table(("Id", "Role", "About"), lines, rule=True, headers=session.headers)

    show(session, found, rows)
