"""login, logout, whoami, auth get-token and rotate-token, version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.formats import output_options, structured
from pliant.cli.session import Session, client_for, pass_session
from pliant.client.errors import (
    BadRequest,
    Conflict,
    NotFound,
    PliantError,
    Refused,
    Unauthorized,
    Unreachable,
)
from pliant.client.locate import authority_of, local_token, server_record, state_folder
from pliant.client.transport import segment

if TYPE_CHECKING:
    from pliant.client.client import Client

KEYS = "/api/v1/access-keys"
OPENID = "/api/v1/openid"

POLL = 1.0
"""Seconds between two requests whether the login in the browser is finished."""

auth = LazyGroup(
    {
        "Commands": {
            "get-token": "pliant.cli.server.login:get_token",
            "rotate-token": "pliant.cli.server.login:rotate_token",
        }
    },
    name="auth",
    help="Get access tokens for the REST API.",
)


@click.command("login", cls=Command, short_help="Save the address and token of a server.")
@click.argument("how", required=False, type=click.Choice(["user", "application", "app", "sso"]))
@click.option("--token", metavar="TOKEN", help="The server's token.")
@click.option("-u", "--user", metavar="NAME", help="User name, for `login user`.")
@click.option(
    "-P", "--password", metavar="PASSWORD", help="Password, for `login user` (default: prompt for it)."
)
@click.option("--client-id", metavar="ID", help="With `login application`.")
@click.option("--client-secret", "--secret", "secret", metavar="SECRET", help="With `login application`.")
@click.option("--ca", metavar="FILE", help="CA certificates of a server at https://.")
@pass_session
def login(
    session: Session,
    how: str | None,
    token: str | None,
    user: str | None,
    password: str | None,
    client_id: str | None,
    secret: str | None,
    ca: str | None,
) -> None:
    """Save the address and the token of a server (`--server URL`).

    The server of this machine needs no login: its token is in a file of its state folder that only you can
    read. `login sso` prints the address of the server's login provider for a browser, on any machine, and
    waits until you have logged in there.
    """
    if session.server is None and not any((how, token, user, client_id, ca)):
        record = server_record(state_folder(session.state))
        if record is not None:
            session.state = state_folder(session.state)
            if session.config.server is not None:
                session.config.set_server(None)
            me = session.client.whoami()
            click.echo(f"Logged in as {me['user']} at {session.client.url} (the server of this machine)")
            return
    url = _address(session)
    if ca is not None:
        _keep_authority(session, url, ca)
    if how == "user" or user:
        name = user or click.prompt("User", err=True)
        word = password or click.prompt("Password", hide_input=True, err=True)
        token = _key_of(session, url, _by_password(session, url, name, word))
    elif how == "sso":
        token = _key_of(session, url, _by_provider(session, url))
    elif how in ("app", "application") or client_id:
        name = client_id or click.prompt("Client id", err=True)
        word = secret or click.prompt("Client secret", hide_input=True, err=True)
        issued = _tokens(
            session, url, {"grantType": "client_credentials", "clientID": name, "clientSecret": word}
        )
        # plk_ID_SECRET is a token too, and does not expire after an hour as an access token does.
        token = f"plk_{name}_{word}" if issued.get("refreshToken") == "" else str(issued["accessToken"])
    elif token is None:
        token = click.prompt("Token", hide_input=True, err=True)
    with _client(session, url, token) as client:
        me = client.whoami()
    session.config.set_token(url, token)
    session.config.set_server(url)
    click.echo(f"Logged in as {me['user']} at {url}")


def _client(session: Session, url: str, token: str | None) -> Client:
    return client_for(url, token, None, authority_of(url, session.state, config=session.config))


def _keep_authority(session: Session, url: str, ca: str) -> None:
    """From now on verify the server with the certificates in that file. Raises PliantError."""
    from pliant.client.trust import trusting

    if not url.startswith("https:"):
        raise BadRequest(f"{url} is not encrypted: --ca is for https://.")
    trusting(ca)
    with open(ca, encoding="ascii", errors="replace") as file:
        session.config.set_authority(url, file.read())


def _tokens(session: Session, url: str, credentials: Mapping[str, str]) -> Mapping[str, Any]:
    with _client(session, url, None) as client:
        return client.tokens(credentials)


def _by_password(session: Session, url: str, name: str, word: str) -> Mapping[str, Any]:
    """Tokens for a name and a password; a password set by an administrator must be changed first."""
    issued = _tokens(session, url, {"grantType": "password", "username": name, "password": word})
    with _client(session, url, str(issued["accessToken"])) as client:
        if not client.whoami().get("mustChangePassword"):
            return issued
        session.note("An administrator gave you this password. Set your own, of 8 characters or more.")
        new = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
        client.call("POST", "/api/v1/me/password", body={"currentPassword": word, "newPassword": new})
    return _tokens(session, url, {"grantType": "password", "username": name, "password": new})


def _by_provider(session: Session, url: str) -> Mapping[str, Any]:
    """Tokens for the user who logs in and confirms in a browser. Raises Unauthorized after the time limit."""
    import hashlib
    import secrets
    import time

    secret = secrets.token_urlsafe(32)
    with _client(session, url, None) as client:
        body = {"holder": hashlib.sha256(secret.encode()).hexdigest(), "program": True}
        try:
            begun = client.call("POST", f"{OPENID}/login", body=body)
        except NotFound as error:
            raise BadRequest(str(error), "Log in with a password: pliant login user") from error
        session.note(f"Open this address in a browser, on any machine, and log in:\n\n  {begun['url']}\n")
        session.note(f"Continue there only if the page shows this code: {begun['code']}")
        end = time.monotonic() + begun["expiresIn"]
        while time.monotonic() < end:
            try:
                answer: Mapping[str, Any] = client.call(
                    "POST", f"{OPENID}/token", body={"state": begun["state"], "secret": secret}
                )
            except Conflict as error:
                if error.reason != "login-pending":
                    raise
                time.sleep(POLL)
            else:
                return answer
    raise Unauthorized(
        f"The login was not finished within {begun['expiresIn']} s.", "Try again: pliant login sso"
    )


def _key_of(session: Session, url: str, issued: Mapping[str, Any]) -> str:
    """A new access key for this machine, valid for 30 days; the access token if no key can be made."""
    token, name = str(issued["accessToken"]), f"login-{os.uname().nodename}"
    with _client(session, url, token) as client:
        try:
            if any(one["name"] == name for one in client.call("GET", KEYS)["accessKeys"]):
                client.call("DELETE", f"{KEYS}/{segment(name)}")
            made = client.call("POST", KEYS, body={"name": name, "days": 30})
        except (Refused, Unauthorized, NotFound):
            return token
    return str(made["token"])


def _address(session: Session) -> str:
    if session.server is None:
        record = server_record(state_folder(session.state))
        if record is None:
            raise Unreachable(
                "No Pliant server runs here.", "Start one with `pliant up`, or name one: login --server URL"
            )
        return str(record["url"])
    url = session.server.rstrip("/")
    return url if "://" in url else f"http://{url}"


@click.command("logout", cls=Command, short_help="Forget the server of the last login.")
@pass_session
def logout(session: Session) -> None:
    """Forget the server of the last login and its token."""
    url = session.config.server
    if url is None:
        click.echo("Not logged in to any server by `login`.")
        return
    token, key = session.config.token(url), f"login-{os.uname().nodename}"
    try:
        if token is not None and token.startswith("plk_"):
            with _client(session, url, token) as client:
                client.call("DELETE", f"{KEYS}/{segment(key)}")
    except (NotFound, Refused, Unauthorized):
        session.note("The server no longer had a key of this login.")
    except PliantError as error:
        session.note(f"{error} The key of this login is still valid there.")
        session.note(f"Log in once it answers and revoke the key: {session.program} key revoke {key}")
    finally:
        session.config.set_token(url, None)
        session.config.set_server(None)
    click.echo(f"Logged out of {url}")


@click.command("whoami", cls=Command, short_help="Show your user and roles.")
@output_options
@pass_session
def whoami(session: Session) -> None:
    """Show your user and roles."""
    me = session.client.whoami()
    if not structured(session, me):
        click.echo(f"User: {me['user']}")
        click.echo(f"Logged in Id: {me['id']}")
        for rule in me.get("roles", ()):
            where = f" in {rule['scopeType']} {rule['scopeId']}" if rule["scopeId"] else ""
            click.echo(f"Role: {rule['role']}{where}")


@click.command("get-token", cls=Command)
@pass_session
def get_token(session: Session) -> None:
    """Print an access token for the REST API."""
    endpoint = session.endpoint
    secret = local_token(endpoint.state) if endpoint.socket and endpoint.state else endpoint.token
    if not secret:
        raise Unauthorized("Not logged in.", f"`{session.program} login --server URL` first.")
    body = {"grantType": "client_credentials", "clientID": "", "clientSecret": secret}
    click.echo(session.client.token(body))


@click.command("rotate-token", cls=Command, short_help="Replace the token of the state folder.")
@pass_session
def rotate_token(session: Session) -> None:
    """Replace the token of the state folder, for example when others may know it.

    The old token and all that was issued for it are refused from then on. Jobs, users and access keys stay.
    """
    session.client.call("POST", "/api/v1/server/token")
    click.echo("The server has a new token. Elsewhere log in again with it: pliant login --server URL")


@click.command("version", cls=Command, short_help="Show the versions of this program and of the server.")
@click.option("--short", "--client", is_flag=True, help="Show the version of this program only.")
@output_options
@pass_session
def version(session: Session, short: bool) -> None:
    """Show the versions of this program and of the server."""
    from pliant import __version__

    if short:
        click.echo(__version__)
        return
    try:
        server = str(session.client.version()["version"])
    except Unreachable:
        server = ""
    if not structured(session, {"client": __version__, "server": server or None}):
        click.echo(f"Client: {__version__}\nServer: {server or 'does not run'}")
