"""wait: waits until jobs have ended or reached another state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from pliant.cli.completion import workload_names
from pliant.cli.exits import WAIT_TIMED_OUT
from pliant.cli.lazy import JobCommand
from pliant.cli.output.amounts import duration
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.workloads.outcomes import POLL, POLL_MOST, ending, patiently
from pliant.client.errors import NotFound

if TYPE_CHECKING:
    from pliant.wire.workload import Outcome

_STATES = ("finished", "succeeded", "running", "deleted")
_CONDITIONS = {"complete": "succeeded", "failed": "finished", "ready": "running", "delete": "deleted"}
"""kubectl's words for the states."""

_RUNNING = ("Running", "Degraded", "Updating")


@click.command("wait", cls=JobCommand, short_help="Wait until jobs have ended; return their exit code.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=workload_names)
@click.option(
    "--for", "wanted", default="finished", metavar="STATE", help=f"{', '.join(_STATES)} (default: finished)."
)
@click.option("--timeout", metavar="TIME", help="Give up after this time with exit code 124, e.g. 2h.")
@click.option("--any", "first", is_flag=True, help="Return when the first of the jobs is done.")
@project_option
@pass_session
def wait(session: Session, names: tuple[str, ...], wanted: str, timeout: str | None, first: bool) -> int:
    """Wait until jobs have ended, and return the highest of their exit codes.

    The wait continues over evictions, suspensions and retries, and ends when a job can no longer reach the
    state.
    """
    state = _state(wanted)
    deadline = time.monotonic() + duration(timeout, "--timeout") if timeout else None
    waiting = {item["name"]: item["id"] for name in dict.fromkeys(names) for item in session.find_all(name)}
    left, code = awaited(session, waiting, state, deadline=deadline, first=first)
    if left:
        click.echo(f"Error: timed out after {timeout}; still waiting for {', '.join(left)}.", err=True)
        return WAIT_TIMED_OUT
    return code


def awaited(
    session: Session,
    jobs: Mapping[str, str],
    state: str = "finished",
    *,
    deadline: float | None = None,
    first: bool = False,
) -> tuple[list[str], int]:
    """Wait for jobs (id by name) and print each end; (names of unfinished jobs, highest exit code)."""
    waiting, worst, pause = dict(jobs), 0, POLL
    while True:
        for name, identity in list(waiting.items()):
            outcome = _outcome(session, identity)
            if outcome is not None and not _over(outcome, state):
                continue
            del waiting[name]
            code = _tell(name, outcome, state)
            worst = max(worst, code)
            if first:
                return [], code
        if not waiting:
            return [], worst
        if deadline is not None and time.monotonic() + pause > deadline:
            return list(waiting), worst
        time.sleep(pause)
        pause = min(pause * 1.1, POLL_MOST)


def _state(text: str) -> str:
    word = text.removeprefix("condition=").lower() if "=" in text else text.lower()
    found = _CONDITIONS.get(word, word)
    if found not in _STATES:
        raise click.UsageError(f"--for {text}: one of {', '.join(_STATES)}.")
    return found


def _outcome(session: Session, identity: str) -> Outcome | None:
    """The outcome of the job; None if no record of it is left."""
    try:
        return patiently(lambda: session.client.outcome(identity))
    except NotFound:
        return None


def _over(outcome: Outcome, wanted: str) -> bool:
    """True if the job is in the state or can no longer reach it."""
    if wanted == "deleted":
        return outcome["gone"]
    if wanted == "running" and outcome["phase"] in _RUNNING:
        return True
    return outcome["exitCode"] is not None


def _tell(name: str, outcome: Outcome | None, wanted: str) -> int:
    """Print the line about one job; returns its part of the exit code."""
    if outcome is None:
        click.echo(f"{name} was deleted")
        return 0 if wanted == "deleted" else DELETED
    code = outcome["exitCode"]
    if code is None:
        click.echo(f"{name} is running")
        return 0
    click.echo(f"{name} {ending(outcome)}")
    return 0 if wanted == "deleted" else code


DELETED = 143
"""Exit code for a job of which no record is left."""
