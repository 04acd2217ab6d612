"""notify: who is told what becomes of jobs."""

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
    help="Get mail when your jobs start, end, fail or lose their GPUs.",
)


@click.command("add", cls=Command)
@click.argument("address", required=False)
@click.option(
    "--on",
    "words",
    default="end,failure",
    show_default=True,
    metavar="EVENTS",
    help=f"Of {', '.join(EVENTS)}, separated by commas.",
)
@click.option(
    "--url-file",
    metavar="FILE",
    help="POST to the address in this file on the server's machine instead (administrators).",
)
@click.option("--everybody", is_flag=True, help="About all users' jobs (administrators).")
@output_options
@pass_session
def add(session: Session, address: str | None, words: str, url_file: str | None, everybody: bool) -> None:
    """Send a message to ADDRESS when a job of yours ends or fails."""  # fmt: skip
    if (address is None) is (url_file is None):
        raise click.UsageError("Name a mail address, or --url-file.")
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
    whose = "any user's job" if everybody else "a job of yours"
    click.echo(f"{made['address']} is told about {', '.join(made['on'])} of {whose}. Id: {made['id']}")
    if made["kind"] == "mail" and not session.client.call("GET", PATH)["mail"]:
        session.note("No mail server is set yet: an administrator sets it with `pliant notify server`.")


@click.command("list", cls=Command)
@output_options
@pass_session
def list_notifications(session: Session) -> None:
    """List who is told what, and the mail server."""
    found: Any = session.client.call("GET", PATH)
    if structured(session, found):
        return
    rows = [
        [one["id"], one["address"], one["user"] or "everybody", ",".join(one["on"]), str(one["pending"])]
        for one in found["notifications"]
    ]
    header = ("ID", "ADDRESS", "JOBS OF", "EVENTS", "NOT SENT YET")
    click.echo(table(header, rows, headers=session.headers) if rows else "No address is told anything.")
    if it := found["mailServer"]:
        click.echo(f"\nMail server: {it['host']}:{it['port']} ({it['security']}), from {it['sender']}")
    elif not found["mail"]:
        session.note("No mail server is set.")


@click.command("remove", cls=Command)
@click.argument("identities", nargs=-1, required=True, metavar="ID...")
@pass_session
def remove(session: Session, identities: tuple[str, ...]) -> None:
    """Tell an address nothing more."""
    for identity in identities:
        session.client.call("DELETE", f"{PATH}/{segment(identity)}")
        click.echo(f"Notification {identity} removed.")


@click.command("test", cls=Command)
@pass_session
def test(session: Session) -> None:
    """Send a message to each of your addresses."""
    sent = session.client.call("POST", f"{PATH}/test", body={})["sent"]
    click.echo(f"{counted(sent, 'message')} will be sent. `pliant notify list` shows what is not sent yet.")


@click.command("server", cls=Command)
@click.option("--smtp", metavar="HOST[:PORT]", help="The mail server; the port follows from --security.")
@click.option("--from", "sender", metavar="ADDRESS", help="Who the messages are from.")
@click.option(
    "--security",
    type=click.Choice(["starttls", "tls", "none"]),
    default="starttls",
    show_default=True,
    help="How the connection is protected.",
)
@click.option("--login", metavar="NAME", help="Log in by this name.")
@click.option("--password-file", metavar="FILE", help="Its password is in this file on the server's machine.")
@click.option("--remove", "gone", is_flag=True, help="Send no mail any more.")
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
    """Set the server by which mail is sent (administrators)."""  # fmt: skip
    if gone:
        session.client.call("DELETE", SERVER)
        click.echo("No mail is sent any more.")
        return
    if smtp is None or sender is None:
        raise click.UsageError("Name --smtp and --from, or --remove.")
    host, colon, port = smtp.rpartition(":") if ":" in smtp else (smtp, "", "")
    if colon and not (port.isascii() and port.isdecimal()):
        raise click.UsageError(f"--smtp {smtp}: the port is no number.")
    body: dict[str, Any] = {"host": host, "sender": sender, "security": security}
    body |= {"port": int(port)} if port else {}
    body |= {"login": login} if login else {}
    body |= {"passwordFile": os.path.abspath(password_file)} if password_file else {}
    made: Any = session.client.call("PUT", SERVER, body=body)
    click.echo(f"Mail is sent by {made['host']}:{made['port']}. Try it: pliant notify test")
