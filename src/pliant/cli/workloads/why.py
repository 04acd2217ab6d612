"""why, queue: what a workload waits for, who is before it, what happened to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import show_age, show_gpus
from pliant.cli.output.formats import output_options, project_option, show, structured
from pliant.cli.output.tables import table
from pliant.cli.output.workload_tables import gpus
from pliant.cli.session import Session, pass_session


@click.command("why", cls=Command, short_help="Why is a workload where it is?")
@click.argument("name", required=False, shell_complete=workload_names)
@click.option("--all", "everything", is_flag=True, help="All that wait, each with its reason.")
@click.option("--quick", is_flag=True, help="Do not look for every way to start it.")
@project_option
@output_options
@pass_session
def why(session: Session, name: str | None, everything: bool, quick: bool) -> None:
    """Why a workload waits, with numbers; who is ahead; what would let it start; when it will start."""
    if everything == (name is not None):
        raise click.UsageError("Name one workload, or say --all.")
    if name is None:
        _all(session, remedies=True)
        return
    item = session.find(name)
    answer: Any = session.client.why(item["id"], full=not quick)
    if structured(session, answer):
        return
    click.echo(f"{name} (project {item['projectName']}): {item['status']}, GPUs {gpus(item)}")
    if text := _text(answer.get("reason")) or item.get("phaseMessage"):
        click.echo(f"Reason: {text}")
    if until := _until(answer.get("reason")):
        click.echo(f"Until: {until} at the latest")
    if position := answer.get("position"):
        _ahead(position, answer)
    if unblock := answer.get("unblock"):
        _unblock(unblock)
    if history := answer.get("history") or []:
        click.echo("\nHistory:")
        rows = [[event["createdAt"], event.get("reason", ""), event.get("message", "")] for event in history]
        click.echo(table(("TIME", "EVENT", "WHY"), rows, headers=session.headers))


FEW = 5
"""Of those ahead so many are named; the others are counted."""


def _ahead(position: int, answer: Mapping[str, Any]) -> None:
    ahead = answer.get("ahead") or []
    named = [f"{one['name']} ({one['project']}, {show_gpus(one['gpus'])})" for one in ahead[:FEW]]
    if (more := answer["aheadCount"] - FEW) > 0:
        rest = answer["aheadGpus"] - sum(one["gpus"] for one in ahead[:FEW])
        named.append(f"{more} more ({show_gpus(rest)} GPUs)")
    click.echo(f"Position {position} in the queue" + (f", after {', '.join(named)}" if named else ""))


def _unblock(answer: Mapping[str, Any]) -> None:
    if answer["never"]:
        click.echo("Never on this cluster as it is: its nodes could not hold it even if they were empty.")
    remedies = answer["remedies"]
    if remedies:
        click.echo("It would start if")
        for remedy in remedies:
            click.echo(f"  - {remedy['text']}")
    else:
        click.echo("No single change is known with which it would start.")
    if not answer["complete"]:
        click.echo("  (not everything was tried)")
    start = answer["start"]
    if start["earliest"]:
        basis = {"declared": "declared run times", "past": "past run times"}.get(
            start["basis"], start["basis"]
        )
        click.echo(f"Estimated start: {start['earliest']} to {start['latest']} (from {basis})")
    else:
        click.echo(f"Estimated start: unknown. {start['unknown']}")


def _all(session: Session, *, remedies: bool = False) -> None:
    entries: list[Any] = session.client.queue(remedies=remedies)
    show(session, entries, lambda: _queue_table(session, entries, remedies))


@click.command("queue", cls=Command, short_help="Who waits, in which order, for what?")
@output_options
@pass_session
def queue(session: Session) -> None:
    """All waiting workloads in the order in which they will be tried."""
    _all(session)


def _queue_table(session: Session, entries: list[Any], remedies: bool) -> str:
    lines = [
        [
            str(entry["position"]),
            entry["name"],
            entry["project"],
            show_gpus(entry["gpus"]),
            show_age(entry.get("since")),
            _text(entry.get("reason")),
            *([_remedy(entry)] if remedies else []),
        ]
        for entry in entries
    ]
    if not lines:
        return "Nothing waits." if session.headers else ""
    header = (
        "POSITION",
        "NAME",
        "PROJECT",
        "GPUS",
        "WAITING",
        "REASON",
        *(("STARTS IF",) if remedies else ()),
    )
    return table(header, lines, headers=session.headers)


def _remedy(entry: Mapping[str, Any]) -> str:
    """What was found for it, or behind whom it waits for the same."""
    if entry.get("remedy"):
        return str(entry["remedy"]["text"])
    return f"after {entry['like']}" if entry.get("like") else ""


def _until(reason: Any) -> str:
    """When what it waits for is over, where the reason knows that."""
    until = (reason.get("numbers") or {}).get("until") if isinstance(reason, Mapping) else None
    return f"{datetime.fromtimestamp(until / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}" if until else ""


def _text(reason: Any) -> str:
    if isinstance(reason, Mapping):
        return f"{reason['message']} [{reason['code']}]"
    return str(reason or "")
