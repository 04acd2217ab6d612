"""report: GPU time held by users and projects. limit: limits per user."""

from __future__ import annotations

from codecs import iterdecode
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import number, whole
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session

USAGE, LIMITS = "/api/v1/usage", "/api/v1/limits"
HEADS = {"user": "USER", "project": "PROJECT", "nodePool": "NODE POOL", "month": "MONTH", "day": "DAY"}
BY = {"user": "user", "project": "project", "pool": "nodePool", "month": "month", "day": "day"}

limit = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.organization.usage:list_limits",
            "set": "pliant.cli.organization.usage:set_limit",
            "remove": "pliant.cli.organization.usage:remove_limit",
        }
    },
    name="limit",
    help="Set limits per user: GPUs, pending jobs, GPU hours in 30 days.",
)


@click.command("report", cls=Command)
@click.option(
    "--from", "since", metavar="DAY", help="First day, e.g. 2026-11-01 (default: the first of this month)."
)
@click.option("--to", "until", metavar="DAY", help="Last day (default: today). Days are in UTC.")
@click.option("--month", metavar="MONTH", help="A whole month, e.g. 2026-11.")
@click.option(
    "--by",
    default="user,project",
    show_default=True,
    metavar="KEYS",
    help="Group by user, project, pool, month or day, separated by commas.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, in GPU seconds.")
@output_options
@pass_session
def report(
    session: Session, since: str | None, until: str | None, month: str | None, by: str, as_csv: bool
) -> None:
    """Report allocated GPU hours, and used GPU hours where the driver measures them."""
    if month is not None:
        if since is not None or until is not None:
            raise click.UsageError("Specify --month, or --from and --to.")
        since, until = _month(month)
    keys = [word.strip() for word in by.split(",")]
    for key in keys:
        if key not in BY:
            raise click.UsageError(f"--by {key}: use {', '.join(BY)}.")
    query: list[tuple[str, str | int | bool | None]] = [
        ("from", since),
        ("to", until),
        ("by", ",".join(BY[key] for key in keys)),
    ]
    if as_csv:
        for text in iterdecode(session.client.usage_file([*query, ("format", "csv")]), "utf-8", "replace"):
            click.echo(text, nl=False)
        return
    answer: Any = session.client.call("GET", USAGE, query=query)
    if structured(session, answer):
        return
    named = [key for key in HEADS if key in {BY[word] for word in keys}]
    rows = [[*(one[key] for key in named), *_sums(one)] for one in answer["rows"]]
    if not rows:
        click.echo(f"No job held a GPU from {answer['from']} to {answer['to']}.")
        return
    rows.append(["total", *[""] * (len(named) - 1), *_sums(answer["total"])])
    right = ("GPU HOURS", "USED", "RUNS", "FAILED")
    header = (*(HEADS[key] for key in named), *right)
    click.echo(table(header, rows, headers=session.headers, right=right))


def _sums(one: Any) -> list[str]:
    measured = one["measuredGpuSeconds"]
    used = f"{one['usedGpuSeconds'] * 100 / measured:.0f} %" if measured else "-"
    return [f"{one['allocatedGpuSeconds'] / 3600:.2f}", used, str(one["runs"]), str(one["failed"])]


def _month(text: str) -> tuple[str, str]:
    """First and last day of '2026-11'."""
    from datetime import date, timedelta

    try:
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        raise click.UsageError(f"--month {text}: not a month such as 2026-11.") from None
    following = (first.replace(day=28) + timedelta(days=4)).replace(day=1)
    return str(first), str(following - timedelta(days=1))


# -- limits -----------------------------------------------------------------------------------------


@click.command("list", cls=Command)
@output_options
@pass_session
def list_limits(session: Session) -> None:
    """List limits and how much of each is used; for limits of every user, your own use."""
    found: Any = session.client.call("GET", LIMITS)["limits"]
    if structured(session, found):
        return
    rows = [
        [
            one["user"] or "everybody",
            one["project"] or "all",
            _used(one["holdsGpus"], one["gpus"]),
            _used(one["hasPending"], one["pending"]),
            _used(one["usedGpuHours"], one["gpuHours"]),
        ]
        for one in found
    ]
    header = ("USER", "PROJECT", "GPUS", "PENDING JOBS", "GPU HOURS IN 30 DAYS")
    click.echo(table(header, rows, headers=session.headers) if rows else "No limits are set.")


def _used(has: float | None, most: float | None) -> str:
    return "-" if most is None else f"{has or 0:.10g} of {most:.10g}"


_WHOSE = (
    click.option(
        "--user", metavar="NAME", help="Limit for this user, by the name that the column SUBMITTED BY shows."
    ),
    click.option("--everybody", is_flag=True, help="Limit for every user who has no limit of their own."),
    click.option(
        "--in-project",
        "inside",
        metavar="NAME",
        help="Limit within this project (default: over all projects).",
    ),
)


@click.command("set", cls=Command)
@_WHOSE[0]
@_WHOSE[1]
@_WHOSE[2]
@click.option("--gpus", metavar="N", help="Maximum GPUs at a time, pending jobs included.")
@click.option("--pending", type=click.IntRange(0, 10**6), metavar="N", help="Maximum number of pending jobs.")
@click.option("--gpu-hours", metavar="N", help="Maximum GPU hours within 30 days.")
@pass_session
def set_limit(
    session: Session,
    user: str | None,
    everybody: bool,
    inside: str | None,
    gpus: str | None,
    pending: int | None,
    gpu_hours: str | None,
) -> None:
    """Set the limits of a user; they replace earlier ones. Running jobs continue."""
    body = {
        "user": _whose(user, everybody),
        "projectName": inside or "",
        "pending": pending,
        "gpus": None if gpus is None else whole(number(gpus, "--gpus", "2 or 0.5")),
        "gpuHours": None if gpu_hours is None else whole(number(gpu_hours, "--gpu-hours", "100")),
    }
    if gpus is None and pending is None and gpu_hours is None:
        raise click.UsageError("Specify a limit: --gpus, --pending or --gpu-hours.")
    session.client.call("PUT", LIMITS, body={key: value for key, value in body.items() if value is not None})
    click.echo(f"Limit of {user or 'everybody'} set.")


@click.command("remove", cls=Command)
@_WHOSE[0]
@_WHOSE[1]
@_WHOSE[2]
@pass_session
def remove_limit(session: Session, user: str | None, everybody: bool, inside: str | None) -> None:
    """Remove a limit."""
    query: list[tuple[str, str | int | bool | None]] = [
        ("user", _whose(user, everybody)),
        ("projectName", inside),
    ]
    session.client.call("DELETE", LIMITS, query=query)
    click.echo(f"Limit of {user or 'everybody'} removed.")


def _whose(user: str | None, everybody: bool) -> str:
    if (user is not None) is everybody or user == "":
        raise click.UsageError("Specify --user or --everybody.")
    return user or ""
