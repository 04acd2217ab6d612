"""what-if: shows what changes would do. node drain: moves work off nodes after a preview."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.output.amounts import counted, counted_gpus, number, show_gpus, whole
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.transport import segment

Entry = dict[str, Any]


@click.command("what-if", cls=Command, short_help="Show what changes would do, without making them.")
@click.option(
    "--submit", multiple=True, metavar="SPEC", help="name=x,project=p,gpus=2[,tasks=4][,priority=80]"
)
@click.option("--end", multiple=True, metavar="[PROJECT/]NAME", help="End a workload.")
@click.option("--add-nodes", multiple=True, metavar="SPEC", help="count=2,gpus=8[,pool=fast]")
@click.option(
    "--drain",
    multiple=True,
    metavar="NODE|LABEL=VALUE",
    help="Drain a node, or all nodes with a label; jobs that cannot move are stopped.",
)
@click.option(
    "--remove", multiple=True, metavar="NODE|LABEL=VALUE", help="Remove these nodes and everything on them."
)
@click.option("--fail", multiple=True, metavar="LABEL=VALUE", help="Fail all nodes with this label.")
@click.option("--quota", multiple=True, metavar="PROJECT=GPUS", help="Set the quota of a project.")
@click.option("--limit", multiple=True, metavar="PROJECT=GPUS", help="Set the limit of a project.")
@click.option("--weight", multiple=True, metavar="PROJECT=N", help="Set the over-quota weight of a project.")
@click.option("--priority", multiple=True, metavar="[PROJECT/]NAME=N", help="Set the priority of a workload.")
@click.option(
    "-f", "--file", type=click.File(), help="Read changes from a JSON file in the format of the API."
)
@output_options
@pass_session
def what_if(session: Session, file: Any, **given: tuple[str, ...]) -> None:
    """Show which workloads would start, stop, move or change size after these changes. Nothing is changed.

    Options can be repeated; all changes apply together. PROJECT of --quota, --limit and --weight can be
    department:NAME.
    """
    changes = suppositions(given)
    if file is not None:
        try:
            changes += json.load(file)
        except (ValueError, TypeError) as error:
            raise click.UsageError(f"--file: {error}") from error
    if not changes:
        raise click.UsageError("Specify at least one change, for example --drain NODE.")
    answer: Any = session.client.call("POST", "/api/v1/what-if", body={"changes": changes})
    if structured(session, answer):
        return
    rows = [
        [
            one["name"],
            one["project"],
            one["what"],
            "" if one["what"] == "new" else _seats(one["before"]),
            "" if one["what"] == "gone" else _seats(one["after"]),
            one["reason"],
        ]
        for one in answer["differences"]
    ]
    if rows:
        header = ("NAME", "PROJECT", "WHAT", "BEFORE", "AFTER", "WHY")
        click.echo(table(header, rows, headers=session.headers))
    else:
        click.echo("No workload would change.")
    click.echo(
        f"In use: {counted_gpus(answer['gpusBefore'])} -> {counted_gpus(answer['gpusAfter'])};"
        f" pending: {counted(answer['waitingBefore'], 'job')} -> {counted(answer['waitingAfter'], 'job')}"
    )


def suppositions(given: Mapping[str, Sequence[str]]) -> list[Entry]:
    """The changes in the form of the API. Raises UsageError."""
    found: list[Entry] = []
    for text in given.get("submit", ()):
        entry = _fields(text, "--submit", ("gpus", "tasks", "priority"))
        found.append({"kind": "submit", **entry})
    for text in given.get("end", ()):
        found.append({"kind": "end", **_named(text)})
    for text in given.get("add_nodes", ()):
        found.append({"kind": "add-nodes", **_fields(text, "--add-nodes", ("count", "gpus"))})
    for kind in ("drain", "remove"):
        found += [{"kind": kind, **_nodes(name)} for name in given.get(kind, ())]
    for text in given.get("fail", ()):
        label, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--fail {text}: expected a label and its value, as in --fail rack=r1.")
        found.append({"kind": "fail", "label": label, "value": value})
    for kind in ("quota", "limit", "weight"):
        for text in given.get(kind, ()):
            name, amount = _pair(text, f"--{kind}")
            level, _, rest = name.rpartition(":")
            owner = {"department": rest} if level == "department" else {"project": name}
            found.append({"kind": kind, **owner, "to": amount})
    for text in given.get("priority", ()):
        name, amount = _pair(text, "--priority")
        found.append({"kind": "priority", **_named(name), "to": amount})
    return found


def _nodes(text: str) -> Entry:
    """One node by its name, or all nodes with LABEL=VALUE, in the form of the API."""
    label, separator, value = text.partition("=")
    return {"label": label, "value": value} if separator else {"node": text}


def _pair(text: str, flag: str) -> tuple[str, float | int]:
    name, separator, value = text.rpartition("=")
    if not separator or not name:
        raise click.UsageError(f"{flag} {text}: expected a name and a number, as in {flag} team-a=4.")
    return name, _number(value, flag)


def _number(text: str, flag: str) -> float | int:
    try:
        return whole(float(text))
    except (ValueError, OverflowError):  # no number, or an infinite one
        return whole(number(text, flag, "4"))


def _named(text: str) -> Entry:
    project, _, name = text.rpartition("/")
    return {"workload": name, **({"project": project} if project else {})}


def _fields(text: str, flag: str, numbers: Sequence[str]) -> Entry:
    found: Entry = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator:
            raise click.UsageError(f"{flag} {text}: fields are name=value, separated by commas.")
        key = {"type": "nodeType"}.get(name, name)
        if name in numbers:
            found[key] = _number(value, flag)
        elif value in ("true", "false"):
            found[key] = value == "true"
        else:
            found[key] = value
    return found


def _seats(seats: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{seat['node']} ({show_gpus(seat['gpus'])})" for seat in seats) or "pending"


@click.command("drain", cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="NODE|LABEL=VALUE...")
@click.option("--stop", is_flag=True, help="Stop jobs that cannot move (default: they run to their end).")
@click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before anything is stopped.")
@output_options
@pass_session
def drain(session: Session, names: tuple[str, ...], stop: bool, dry_run: bool, yes: bool) -> None:
    """Drain nodes: move the jobs that can move, let the others end (or stop them), start no new ones.

    LABEL=VALUE, such as rack=r1, drains all nodes with that label.
    """
    for name in names:
        which = _nodes(name)
        path = "/api/v1/drains" if "label" in which else f"/api/v1/nodes/{segment(name)}/drain"
        body = {"stop": stop, **(which if "label" in which else {})}
        before: Any = session.client.call("POST", path, query=[("dryRun", True)], body=body)
        if not (dry_run and structured(session, before)):
            click.echo(_preview(session, name, before), err=session.output in ("json", "yaml"))
        if dry_run:
            continue
        stopped = sum(one["what"] == "stops" for one in before["workloads"])
        if stopped and not yes:
            session.confirm(f"{counted(stopped, 'workload')} on {name} will be stopped. Continue?")
        done: Any = session.client.call("POST", path, body=body)
        if not structured(session, done):
            there = (
                f"{counted(len(done['nodes']), 'node')} with {name} drained"
                if "label" in which
                else f"Node {name} drained"
            )
            click.echo(f"{there}: no new work is placed there. Undo: {session.program} node uncordon {name}")


def _preview(session: Session, name: str, answer: Mapping[str, Any]) -> str:
    rows = [[one["name"], one["project"], one["what"]] for one in answer["workloads"]]
    if not rows:
        return f"No workloads run on {name}."
    return table(("NAME", "PROJECT", "WHAT"), rows, headers=session.headers)
