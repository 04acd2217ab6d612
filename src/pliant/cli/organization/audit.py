"""audit: what each project was entitled to in a period and what it got; the log of changes and refusals."""

from __future__ import annotations

import time
from codecs import iterdecode
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import duration
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session

audit = LazyGroup(
    {
        "Commands": {
            "fairness": "pliant.cli.organization.audit:fairness",
            "log": "pliant.cli.organization.audit:log",
        }
    },
    name="audit",
    help="Report fairness over a period; list who changed what.",
)


@click.command("fairness", cls=Command)
@click.option("--window", default="24h", metavar="TIME", help="Period to report, e.g. 30m, 24h, 7d.")
@output_options
@pass_session
def fairness(session: Session, window: str) -> None:
    """Report the GPU hours each project was entitled to, used, borrowed and lent, and the fairness index."""
    seconds = round(duration(window, "--window"))
    if seconds < 60:
        raise click.UsageError(f"--window {window}: the shortest period is 1m.")
    query: list[tuple[str, str | int | bool | None]] = [("windowSeconds", seconds)]
    answer: Any = session.client.call("GET", "/api/v1/audit/fairness", query=query)
    if structured(session, answer):
        return
    rows = [
        [
            one["project"],
            *(f"{one[part]:.2f}" for part in ("entitled", "received", "borrowed", "lent", "late")),
            f"{one['violatedSeconds']} s",
        ]
        for one in answer["projects"]
    ]
    header = ("PROJECT", "ENTITLED", "RECEIVED", "BORROWED", "LENT", "GIVEN BACK LATE", "VIOLATED")
    click.echo(table(header, rows, headers=session.headers) if rows else "No usage in this period.")
    index = answer["jain"]
    click.echo(f"Jain index: {'none, no project was entitled to GPUs' if index is None else f'{index:.3f}'}")
    if session.headers:
        click.echo("\nIn GPU hours over the window (whole hours, the present one included):")
        for word, meaning in answer["definitions"].items():
            click.echo(f"  {word}: {meaning}")


@click.command("log", cls=Command)
@click.option("--user", metavar="NAME", help="Only changes by this user.")
@click.option("--entity", metavar="TEXT", help="Only changes of objects with this name or kind.")
@click.option(
    "--since", metavar="TIME", help="Period to report, e.g. 30m, 24h, 7d (default: all that is kept)."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    metavar="N",
    help="Maximum number of records (default: 50).",
)
@click.option("--export", type=click.Choice(["csv", "json"]), help="Print all records, oldest first.")
@output_options
@pass_session
def log(
    session: Session, user: str | None, entity: str | None, since: str | None, limit: int, export: str | None
) -> None:
    """List changes and refused requests, the newest first."""
    began = int((time.time() - duration(since, "--since")) * 1000) if since is not None else None
    query: list[tuple[str, str | int | bool | None]] = [("user", user), ("entity", entity), ("start", began)]
    if export is not None:
        for text in iterdecode(session.client.audit_file([*query, ("format", export)]), "utf-8", "replace"):
            click.echo(text, nl=False)
        return
    answer: Any = session.client.call("GET", "/api/v1/audit/log", query=[*query, ("limit", limit)])
    if structured(session, answer):
        return
    rows = [
        [
            one["timestamp"],
            one["subject"],
            one["source_ip"],
            one["action"],
            f"{one['entity_type']} {one['entity_name']}".strip() or one["url"],
            one["result"],
            ", ".join(it["field"].partition(".")[2] for it in one["changes"] if "." in it["field"]),
        ]
        for one in answer["audit_logs"]
    ]
    header = ("TIME", "WHO", "FROM", "ACTION", "WHAT", "RESULT", "CHANGED")
    click.echo(table(header, rows, headers=session.headers) if rows else "No records.")
