"""logs: what a workload has printed, and what it prints now."""

from __future__ import annotations

import sys
import time

import click

from pliant.cli.completion import workload_names
from pliant.cli.exits import OWN_FAILURE
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import duration, moment
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.workloads.execute import followed


@click.command("logs", cls=Command, short_help="Show the log of a workload.")
@click.argument("name", shell_complete=workload_names)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the job ends.")
@click.option("-n", "-t", "--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--since", metavar="TIME", help="Only lines of this last period: 5s, 2m, 3h.")
@click.option("--since-time", metavar="RFC3339", help="Only lines after this time.")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--pod", metavar="POD", help="Log of this task.")
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N", help="Log of this attempt (default: the last)."
)
@project_option
@pass_session
def logs(
    session: Session,
    name: str,
    follow: bool,
    tail: int | None,
    since: str | None,
    since_time: str | None,
    timestamps: bool,
    pod: str | None,
    attempt: int | None,
) -> int:
    """Show the log of a workload; -f follows it until the job ends and returns its exit code."""
    if since and since_time:
        raise click.UsageError("--since and --since-time exclude each other.")
    ago = round(duration(since, "--since")) if since else None
    if since_time:
        try:
            ago = max(0, round(time.time() - moment(since_time)))
        except ValueError:
            raise click.UsageError(
                f"--since-time {since_time}: not a time such as 2026-01-31T12:00:00Z."
            ) from None
    if follow:
        session.failure_code = OWN_FAILURE
    item = session.find(name)
    if follow and attempt is None and ago is None and not timestamps:
        return followed(session, item["id"], name, pod=pod, tail=tail)
    stream = session.client.logs(
        item["id"], follow=follow, tail=tail, since=ago, pod=pod, timestamps=timestamps, attempt=attempt
    )
    for piece in stream:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return 0
