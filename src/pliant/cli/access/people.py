"""user and app: people and programs that may log in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import show_age
from pliant.cli.output.formats import output_options, show, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

USERS, APPS = "/api/v1/users", "/api/v1/service-accounts"
_HERE = "pliant.cli.access.people"

user = LazyGroup(
    {
        "Commands": {
            "list": f"{_HERE}:list_users",
            "create": f"{_HERE}:create_user",
            "bind": f"{_HERE}:bind_user",
            "enable": f"{_HERE}:enable_user",
            "disable": f"{_HERE}:disable_user",
            "reset": f"{_HERE}:reset_user",
            "password": f"{_HERE}:password",
            "delete": f"{_HERE}:delete_user",
        }
    },
    name="user",
    help="Create, list and disable users who log in with a password.",
)
app = LazyGroup(
    {
        "Commands": {
            "list": f"{_HERE}:list_apps",
            "create": f"{_HERE}:create_app",
            "bind": f"{_HERE}:bind_app",
            "enable": f"{_HERE}:enable_app",
            "disable": f"{_HERE}:disable_app",
            "secret": f"{_HERE}:renew_app",
            "delete": f"{_HERE}:delete_app",
        }
    },
    name="app",
    help="Create, list and disable applications: programs with a client id and a secret.",
)


def _listed(session: Session, found: list[Any], what: str, name: str) -> None:
    def rows() -> str:
        lines = [
            [
                one[name],
                "enabled" if one["enabled"] else "disabled",
                one["account"] or "-",
                show_age(one["createdAt"]),
            ]
            for one in found
        ]
        return table((what, "Status", "Account", "Age"), lines, rule=True, headers=session.headers)

    show(session, found, rows)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_users(session: Session) -> None:
    """List the users."""
    _listed(session, session.client.call("GET", USERS)["users"], "User", "username")


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--account", metavar="NAME", help="Account of this machine that runs the user's jobs.")
@output_options
@pass_session
def create_user(session: Session, name: str, account: str | None) -> None:
    """Create a user and print a first password, which the user must change."""
    made = session.client.call("POST", USERS, body={"email": name, **_bound(account)})
    if not structured(session, made):
        click.echo(f"User {name} created. First password, shown once: {made['tempPassword']}")


def _bound(account: str | None) -> dict[str, str]:
    return {} if account is None else {"account": account}


@click.command("reset", cls=Command)
@click.argument("name")
@pass_session
def reset_user(session: Session, name: str) -> None:
    """Print a new password, which the user must change; all sessions of the user end."""
    made = session.client.call("POST", f"{USERS}/{segment(name)}/password")
    click.echo(f"New password of user {name}, shown once: {made['password']}")


@click.command("password", cls=Command)
@pass_session
def password(session: Session) -> None:
    """Change your own password; your sessions end."""
    old = click.prompt("Current password", hide_input=True, err=True)
    new = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
    session.client.call("POST", "/api/v1/me/password", body={"currentPassword": old, "newPassword": new})
    click.echo(f"Password changed. Log in again: {session.program} login user")


@click.command("list", cls=Command)
@output_options
@pass_session
def list_apps(session: Session) -> None:
    """List the applications."""
    _listed(session, session.client.call("GET", APPS)["serviceAccounts"], "Application", "name")


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--account", metavar="NAME", help="Account of this machine that runs the application's jobs.")
@output_options
@pass_session
def create_app(session: Session, name: str, account: str | None) -> None:
    """Create an application and print its client id and its secret."""
    made = session.client.call("POST", APPS, body={"name": name, **_bound(account)})
    if not structured(session, made):
        click.echo(f"Application {name} created.")
        click.echo(f"Client id: {made['clientId']}\nClient secret, shown once: {made['clientSecret']}")
        session.note(f"It has no rights yet: {session.program} access-rule create --app {name} --role ROLE")


@click.command("secret", cls=Command)
@click.argument("name")
@pass_session
def renew_app(session: Session, name: str) -> None:
    """Print a new secret and invalidate the old one."""
    made = session.client.call("POST", f"{APPS}/{segment(name)}/secret")
    click.echo(f"Client secret of {name}, shown once: {made['clientSecret']}")


def _alike(path: str, who: str, disable: str, delete: str) -> Iterator[click.Command]:
    """Yields the commands bind, enable, disable and delete for users or applications; `who`: "a user"."""
    noun = who.rpartition(" ")[2]

    @click.command("bind", cls=Command, help=f"Run {who}'s jobs as an account of this machine.")
    @click.argument("name")
    @click.option("--account", required=True, metavar="NAME", help="Account of this machine; '' for none.")
    @pass_session
    def bind(session: Session, name: str, account: str) -> None:
        session.client.call("PATCH", f"{path}/{segment(name)}", body={"account": account})
        click.echo(f"Jobs of {noun} {name} run as {account or 'no account'}.")

    yield bind
    for word, enabled, text in (
        ("enable", True, f"Let a disabled {noun} log in again."),
        ("disable", False, disable),
    ):

        @click.command(word, cls=Command, help=text)
        @click.argument("name")
        @pass_session
        def switch(session: Session, name: str, word: str = word, enabled: bool = enabled) -> None:
            session.client.call("PATCH", f"{path}/{segment(name)}", body={"enabled": enabled})
            click.echo(f"{noun.capitalize()} {name} {word}d.")

        yield switch

    @click.command("delete", cls=Command, help=delete)
    @click.argument("names", nargs=-1, required=True)
    @pass_session
    def remove(session: Session, names: tuple[str, ...]) -> None:
        for name in names:
            session.client.call("DELETE", f"{path}/{segment(name)}")
            click.echo(f"{noun.capitalize()} {name} deleted.")

    yield remove


bind_user, enable_user, disable_user, delete_user = _alike(
    USERS,
    "a user",
    "Disable a user and end all sessions; running jobs continue.",
    "Delete users with their access rules and keys; their running jobs continue.",
)
bind_app, enable_app, disable_app, delete_app = _alike(
    APPS,
    "an application",
    "Disable an application and its tokens; running jobs continue.",
    "Delete applications with their access rules; their running jobs continue.",
)
