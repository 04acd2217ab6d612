"""audit: what each project was due over some time, and what it got."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import duration
from pliant.cli.output.formats import output_options, structured
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session

audit = LazyGroup(
    {"Commands": {"fairness": "pliant.cli.organization.audit:fairness"}},
    name="audit",
    help="Report usage and fairness over a period.",
)


@click.command("fairness", cls=Command)
@click.option("--window", default="24h", metavar="TIME", help="How far back: 30m, 24h, 7d.")
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
