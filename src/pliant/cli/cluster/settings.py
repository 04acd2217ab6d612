"""cluster settings, cluster events: the cluster-wide scheduling settings, and the events of the cluster."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.output.amounts import pair, show_age
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session


@click.command("settings", cls=Command)
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@output_options
@pass_session
def settings(session: Session, changes: tuple[str, ...]) -> None:
    """Show scheduling settings, or change them: stale-grace=5m past-use=1 victims=default.

    They apply from the next scheduling cycle and survive a restart; `cluster events` lists the changes.
    """
    if changes:
        pairs = [pair(text, "settings") for text in changes]
        body = dict(pairs)
        if len(body) < len(pairs):
            raise click.UsageError("A setting is given twice.")
        made = session.client.set_settings(
            {name: None if value == "default" else value for name, value in body.items()}
        )
    else:
        made = session.client.settings()

    def rows() -> str:
        lines = [
            [entry["name"], entry["value"], entry["default"], entry["about"]] for entry in made["settings"]
        ]
        text = table(("Setting", "Value", "Default", "Meaning"), lines, rule=True, headers=session.headers)
        faults = "".join(f"\nSet aside, the rest is scheduled as ever: {it}" for it in made["faults"])
        return f"{text}\n{faults}" if faults else text

    show(session, made["settings"], rows)


@click.command("events", cls=Command)
@click.option(
    "--subject",
    default="cluster",
    metavar="WHAT",
    help="node/NAME, pool/NAME, topology/NAME, project/ID, department/ID; default: the cluster.",
)
@output_options
@pass_session
def events(session: Session, subject: str) -> None:
    """List events of the cluster: changed settings, inconsistent rows."""
    found: list[Any] = list(session.client.happenings(subject))

    def rows() -> str:
        lines = [
            [event["who"], event["type"], show_age(event["createdAt"]), event["message"]] for event in found
        ]
        return table(("WHO", "TYPE", "AGE", "MESSAGE"), lines, headers=session.headers)

    show(session, found, rows)
