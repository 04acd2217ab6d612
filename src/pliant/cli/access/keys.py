"""key (and token): secrets by which your programs act with your rights."""

from __future__ import annotations

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import show_age
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

KEYS = "/api/v1/access-keys"

key = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.access.keys:list_keys",
            "create": "pliant.cli.access.keys:create",
            "revoke": "pliant.cli.access.keys:revoke",
        }
    },
    name="key",
    help="Create, list and revoke access keys for programs that act with your rights.",
)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_keys(session: Session) -> None:
    """List your access keys."""
    found = session.client.call("GET", KEYS)["accessKeys"]

    def rows() -> str:
        lines = [
            [
                one["name"],
                one["clientId"],
                one["only"] or "all",
                one["expiresAt"] or "never",
                show_age(one["createdAt"]),
            ]
            for one in found
        ]
        header = ("Key", "Client Id", "Rights", "Expires", "Age")
        return table(header, lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("create", cls=Command)
@click.argument("name")
@click.option(
    "--days", type=click.IntRange(1, 3650), metavar="N", help="Days until it expires (default: never)."
)
@click.option(
    "--only",
    type=click.Choice(["read", "submit"]),
    help="Restrict the key to reading or to submitting (default: all of your rights).",
)
@output_options
@pass_session
def create(session: Session, name: str, days: int | None, only: str | None) -> None:
    """Create an access key and print it once."""
    body = {"name": name, **({"days": days} if days else {}), **({"only": only} if only else {})}
    made = session.client.call("POST", KEYS, body=body)
    if not structured(session, made):
        click.echo(f"Access key {name} created. Token, shown once: {made['token']}")
        click.echo(f"Client id: {made['clientId']}\nClient secret: {made['clientSecret']}")


@click.command("revoke", cls=Command)
@click.argument("names", nargs=-1, required=True)
@pass_session
def revoke(session: Session, names: tuple[str, ...]) -> None:
    """Revoke access keys, effective with the next request."""
    for name in names:
        session.client.call("DELETE", f"{KEYS}/{segment(name)}")
        click.echo(f"Access key {name} revoked.")
