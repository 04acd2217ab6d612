"""why, queue: why a job is pending, the jobs ahead of it, what would let it start, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import counted_gpus, moment, show_age, show_gpus, show_moment
from pliant.cli.output.fit import Columns, fit_table
from pliant.cli.output.formats import output_options, project_option, show, structured
from pliant.cli.output.tables import table
from pliant.cli.output.workload_tables import allocated
from pliant.cli.session import Session, pass_session


@click.command("why", cls=Command, short_help="Explain the status of a workload and what would change it.")
@click.argument("name", required=False, shell_complete=workload_names)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="All pending workloads, each with its reason and one change that would let it start.",
)
@click.option("--quick", is_flag=True, help="Answer quickly: search for one change only.")
@project_option
@output_options
@pass_session
def why(session: Session, name: str | None, everything: bool, quick: bool) -> None:
    """Explain the status of a workload: the reason with its numbers, its place in the queue, the changes that
    would let it start, and the estimated start.
    """
    if everything == (name is not None):
        raise click.UsageError("Specify one workload or --all.")
    if name is None:
        _all(session, remedies=True)
        return
    item = session.find(name)
    answer: Any = session.client.why(item["id"], full=not quick)
    if structured(session, answer):
        return
    has = f", {counted_gpus(allocated(item))} allocated" if allocated(item) else ""
    click.echo(f"{name} (project {item['projectName']}): {item['status']}{has}")
    if text := _text(answer.get("reason")) or item.get("phaseMessage"):
        click.echo(f"Reason: {text}")
    if until := _until(answer.get("reason")):
        click.echo(f"Until: {until} at the latest")
    if position := answer.get("position"):
        _ahead(position, answer)
    if unblock := answer.get("unblock"):
        _unblock(unblock, session.program, f"{name} -p {item['projectName']}")
    if history := answer.get("history") or []:
        click.echo("\nHistory:")
        rows = [[event["createdAt"], event.get("reason", ""), event.get("message", "")] for event in history]
        click.echo(table(("TIME", "EVENT", "WHY"), rows, headers=session.headers))


FEW = 5
"""Most jobs ahead that are named; the others are counted."""


def _ahead(position: int, answer: Mapping[str, Any]) -> None:
    ahead = answer.get("ahead") or []
    named = [f"{one['name']} ({one['project']}, {counted_gpus(one['gpus'])})" for one in ahead[:FEW]]
    if (more := answer["aheadCount"] - FEW) > 0:
        rest = answer["aheadGpus"] - sum(one["gpus"] for one in ahead[:FEW])
        named.append(f"{more} more ({counted_gpus(rest)})")
    click.echo(f"Position {position} in the queue" + (f", after {', '.join(named)}" if named else ""))


def _unblock(answer: Mapping[str, Any], program: str, job: str) -> None:
    if answer["never"]:
        click.echo("It cannot start on this cluster, even with every node empty.")
    remedies = answer["remedies"]
    if remedies:
        click.echo("To let it start, one of these is enough:")
        for remedy in remedies:
            click.echo(f"  - {remedy['text']}")
            for command in (line for step in remedy["steps"] for line in commands(step, job)):
                click.echo(f"      {program} {command}")
    else:
        click.echo("No change was found that would let it start.")
    if not answer["complete"]:
        click.echo("  (the search ended at its time limit; there may be others)")
    start = answer["start"]
    if start["earliest"]:
        first, last = (show_moment(moment(start[end])) for end in ("earliest", "latest"))
        click.echo(f"Estimated start: {first} to {last} ({_BASIS[start['basis']]})")
    else:
        click.echo(f"Estimated start: unknown; {start['unknown']}")


def commands(step: Mapping[str, Any], job: str) -> list[str]:
    """The commands for one step of a remedy; [] if no command does it or its names are hidden."""
    match step["kind"]:
        case "quota" | "fair-share" | "limit" if step["resource"] == "gpu" and step["where"] == "default":
            flag = "--limit" if step["kind"] == "limit" else "--quota"
            known = all(queue["name"] for queue in step["whom"]) and len(step["whom"]) == 1
            amount = f"{(step['before'] + step['count']) / 1000:g}"
            return [f"{it['kind']} update {it['name']} {flag} {amount}" for it in step["whom"] if known]
        case "uncordon":
            return [f"node uncordon {step['where']}"]
        case "taint":  # key=value:Effect, or key:Effect
            gone = (
                f"{it.partition(':')[0].partition('=')[0]}:{it.rpartition(':')[2]}-" for it in step["taints"]
            )
            return [f"node taint {step['where']} {' '.join(gone)}"]
        case "resume":
            return [f"resume {job}"]
    return []


_BASIS = {
    "declared": "from --max-runtime of the running jobs",
    "past": "from the runtimes of similar jobs",
    "wait": "after the time to wait",
}
"""The basis of an estimated start, in words."""


def _all(session: Session, *, remedies: bool = False) -> None:
    entries: list[Any] = session.client.queue(remedies=remedies)
    show(session, entries, lambda: _queue_table(session, entries, remedies))


@click.command("queue", cls=Command, short_help="List pending workloads in scheduling order.")
@output_options
@pass_session
def queue(session: Session) -> None:
    """List pending workloads in the order in which the scheduler tries them, with their reasons."""
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
        return "No pending jobs." if session.headers else ""
    header = (
        "POSITION",
        "NAME",
        "PROJECT",
        "GPUS",
        "WAITING",
        "REASON",
        *(("TO START IT",) if remedies else ()),
    )
    return fit_table(session, header, lines, _QUEUE)


_QUEUE = Columns(
    ("WAITING", "PROJECT", "TO START IT"),
    cut={"REASON": 30, "TO START IT": 30},
    short={"POSITION": "#"},
    whole=("POSITION", "GPUS", "WAITING"),
)


def _remedy(entry: Mapping[str, Any]) -> str:
    """A change that would let it start, or the pending job ahead that waits for the same."""
    if entry.get("remedy"):
        return str(entry["remedy"]["text"])
    return f"after {entry['like']}" if entry.get("like") else ""


def _until(reason: Any) -> str:
    """The latest time until which the reason holds; "" if it has none."""
    until = (reason.get("numbers") or {}).get("until") if isinstance(reason, Mapping) else None
    return show_moment(until / 1000) if until else ""


def _text(reason: Any) -> str:
    if isinstance(reason, Mapping):
        return f"{reason['message']} [{reason['code']}]"
    return str(reason or "")
