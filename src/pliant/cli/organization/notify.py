"""notify: messages about jobs that start, end, fail, are preempted or are idle."""

from __future__ import annotations

import os
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import counted
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

PATH, SERVER = "/api/v1/notifications", "/api/v1/mail-server"
EVENTS = ("start", "end", "failure", "preemption", "idle")
_HERE = "pliant.cli.organization.notify"

notify = LazyGroup(
    {
        "Commands": {
            "add": f"{_HERE}:add",
            "list": f"{_HERE}:list_notifications",
            "remove": f"{_HERE}:remove",
            "test": f"{_HERE}:test",
            "server": f"{_HERE}:server",
        }
    },
    name="notify",
    help="Get mail when your jobs start, end, fail or lose GPUs.",
)


@click.command("add", cls=Command)
@click.argument("address", required=False)
@click.option(
    "--on",
    "words",
    default="end,failure",
    show_default=True,
    metavar="EVENTS",
    help=f"Events, separated by commas: {', '.join(EVENTS)}.",
)
@click.option(
    "--url-file",
    metavar="FILE",
    help="Instead of mail, POST to the URL in this file on the server's machine (administrators).",
)
@click.option("--everybody", is_flag=True, help="Jobs of all users (administrators).")
@output_options
@pass_session
def add(session: Session, address: str | None, words: str, url_file: str | None, everybody: bool) -> None:
    """Send a message to ADDRESS when one of your jobs ends or fails."""  # fmt: skip
    if (address is None) is (url_file is None):
        raise click.UsageError("Specify a mail address or --url-file.")
    on = [word.strip() for word in words.split(",") if word.strip()]
    for word in on or [words]:
        if word not in EVENTS:
            raise click.UsageError(f"--on {word}: use {', '.join(EVENTS)}.")
    body: dict[str, Any] = {"kind": "mail", "address": address, "on": on}
    if url_file is not None:
        body |= {"kind": "webhook", "address": os.path.abspath(url_file)}
    made: Any = session.client.call("POST", PATH, body=body | {"everybody": everybody})
    if structured(session, made):
        return
    whose = "all jobs" if everybody else "your jobs"
    click.echo(f"Notification of {made['address']} on {', '.join(made['on'])} of {whose}. Id: {made['id']}")
    if made["kind"] == "mail" and not session.client.call("GET", PATH)["mail"]:
        session.note("No mail server is set yet: an administrator sets it with `pliant notify server`.")


@click.command("list", cls=Command)
@output_options
@pass_session
def list_notifications(session: Session) -> None:
    """List notifications and the mail server."""
    found: Any = session.client.call("GET", PATH)
    if structured(session, found):
        return
    rows = [
        [one["id"], one["address"], one["user"] or "everybody", ",".join(one["on"]), str(one["pending"])]
        for one in found["notifications"]
    ]
    header = ("ID", "ADDRESS", "JOBS OF", "EVENTS", "UNSENT")
    click.echo(table(header, rows, headers=session.headers) if rows else "No notifications.")
    if it := found["mailServer"]:
        click.echo(f"\nMail server: {it['host']}:{it['port']} ({it['security']}), from {it['sender']}")
    elif not found["mail"]:
        session.note("No mail server is set.")


@click.command("remove", cls=Command)
@click.argument("identities", nargs=-1, required=True, metavar="ID...")
@pass_session
def remove(session: Session, identities: tuple[str, ...]) -> None:
    """Remove notifications."""
    for identity in identities:
        session.client.call("DELETE", f"{PATH}/{segment(identity)}")
        click.echo(f"Notification {identity} removed.")


@click.command("test", cls=Command)
@pass_session
def test(session: Session) -> None:
    """Send a message to each of your addresses."""
    sent = session.client.call("POST", f"{PATH}/test", body={})["sent"]
    click.echo(f"{counted(sent, 'message')} will be sent. `pliant notify list` shows unsent messages.")


@click.command("server", cls=Command)
@click.option("--smtp", metavar="HOST[:PORT]", help="Mail server (default port: that of --security).")
@click.option("--from", "sender", metavar="ADDRESS", help="Sender address of the messages.")
@click.option(
    "--security",
    type=click.Choice(["starttls", "tls", "none"]),
    default="starttls",
    show_default=True,
    help="Encryption of the connection.",
)
@click.option("--login", metavar="NAME", help="User name at the mail server.")
@click.option("--password-file", metavar="FILE", help="File with the password, on the server's machine.")
@click.option("--remove", "gone", is_flag=True, help="Stop sending mail.")
@pass_session
def server(
    session: Session,
    smtp: str | None,
    sender: str | None,
    security: str,
    login: str | None,
    password_file: str | None,
    gone: bool,
) -> None:
    """Set the mail server (administrators)."""  # fmt: skip
    if gone:
        session.client.call("DELETE", SERVER)
        click.echo("Mail is switched off.")
        return
    if smtp is None or sender is None:
        raise click.UsageError("Specify --smtp and --from, or --remove.")
    host, colon, port = smtp.rpartition(":") if ":" in smtp else (smtp, "", "")
    if colon and not (port.isascii() and port.isdecimal()):
        raise click.UsageError(f"--smtp {smtp}: the port is not a number.")
    body: dict[str, Any] = {"host": host, "sender": sender, "security": security}
    body |= {"port": int(port)} if port else {}
    body |= {"login": login} if login else {}
    body |= {"passwordFile": os.path.abspath(password_file)} if password_file else {}
    made: Any = session.client.call("PUT", SERVER, body=body)
    click.echo(f"Mail is sent by {made['host']}:{made['port']}. Test it: pliant notify test")
