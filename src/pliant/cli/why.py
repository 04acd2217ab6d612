"""why, queue: what a workload waits for, who is before it, what happened to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from pliant.cli.amounts import show_age, show_gpus
from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output import output_options, project_option, show, structured
from pliant.cli.session import Session, pass_session
from pliant.cli.tables import table
from pliant.cli.workload_tables import gpus


@click.command("why", cls=Command, short_help="Why is a workload where it is?")
@click.argument("name", shell_complete=workload_names)
@project_option
@output_options
@pass_session
def why(session: Session, name: str) -> None:
    """Why a workload waits, or what was decided about it, with the numbers behind."""
    item = session.find(name)
    answer: Any = session.client.why(item["id"])
    if structured(session, answer):
        return
    click.echo(f"{name} (project {item['projectName']}): {item['status']}, GPUs {gpus(item)}")
    if text := _text(answer.get("reason")) or item.get("phaseMessage"):
        click.echo(f"Reason: {text}")
    if position := answer.get("position"):
        ahead = answer.get("ahead") or []
        before = ", ".join(f"{one['name']} ({one['project']}, {show_gpus(one['gpus'])})" for one in ahead)
        click.echo(f"Position {position} in the queue" + (f", after {before}" if before else ""))
    if history := answer.get("history") or []:
        click.echo("\nHistory:")
        rows = [[event["createdAt"], event.get("reason", ""), event.get("message", "")] for event in history]
        click.echo(table(("TIME", "EVENT", "WHY"), rows, headers=session.headers))


@click.command("queue", cls=Command, short_help="Who waits, in which order, for what?")
@output_options
@pass_session
def queue(session: Session) -> None:
    """All waiting workloads in the order in which they will be tried."""
    entries: list[Any] = session.client.queue()

    def rows() -> str:
        lines = [
            [
                str(entry["position"]),
                entry["name"],
                entry["project"],
                show_gpus(entry["gpus"]),
                show_age(entry.get("since")),
                _text(entry.get("reason")),
            ]
            for entry in entries
        ]
        if not lines:
            return "Nothing waits." if session.headers else ""
        header = ("POSITION", "NAME", "PROJECT", "GPUS", "WAITING", "REASON")
        return table(header, lines, headers=session.headers)

    show(session, entries, rows)


def _text(reason: Any) -> str:
    if isinstance(reason, Mapping):
        return f"{reason['message']} [{reason['code']}]"
    return str(reason or "")
