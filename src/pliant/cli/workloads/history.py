"""history: lists submitted jobs with their waiting and running times, usage and outcome."""

from __future__ import annotations

import csv
import io
import time
from typing import TYPE_CHECKING

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import duration, moment, show_bytes, show_duration, show_gpus
from pliant.cli.output.fit import Columns, fit_table
from pliant.cli.output.formats import output_options, project_option, show
from pliant.cli.session import Session, bare, pass_session
from pliant.cli.workloads.outcomes import signal_name

if TYPE_CHECKING:
    from pliant.wire.history import AttemptEntry, HistoryEntry
    from pliant.wire.workload import Outcome

_HEADER = (
    *("#", "NAME", "STATUS", "SUBMITTED", "WAITED", "ELAPSED", "GPUS", "GPU-HOURS", "MAX RSS", "EXIT"),
    "REASON",
)
MOST = 500
"""Most jobs that the server lists at once."""

_WIDE = ("PROJECT", "USER", "ATTEMPTS", "ID")


@click.command("history", cls=Command, short_help="List past and present jobs with their outcomes.")
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=workload_names)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, MOST),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of jobs to list.",
)
@click.option("--since", metavar="TIME", help="Only jobs submitted within this period, e.g. 7d.")
@click.option("-A", "--all-projects", "everywhere", is_flag=True, help="Jobs of all projects.")
@click.option("--attempts", is_flag=True, help="One line per attempt of each task.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, times in seconds.")
@project_option
@output_options
@pass_session
def history(
    session: Session,
    names: tuple[str, ...],
    count: int,
    since: str | None,
    everywhere: bool,
    attempts: bool,
    as_csv: bool,
) -> None:
    """List jobs with usage and outcome, the newest first, deleted jobs included.

    With NAMES, only jobs of these names or numbers.
    """
    project = None if everywhere else session.current_project
    ago = round(duration(since, "--since")) if since else 0
    limit = MOST if names else count
    entries = session.client.history(project, since=ago, limit=limit, attempts=attempts)
    if names:
        asked = {bare(name) for name in names}
        entries = [it for it in entries if asked & {it["name"], str(it["number"])}][:count]
    if not entries and project is not None:
        session.check_project()
    if as_csv:
        click.echo(_csv(entries), nl=False)
        return

    def text() -> str:
        if not entries:
            where = "any project" if everywhere else f"project {project}"
            session.note(f"No {'such ' if names else ''}jobs in {where}.")
            return ""
        if attempts:
            tries = [_try(entry, one) for entry in entries for one in entry["tries"]]
            return fit_table(session, _TRIES, tries, _TRY_COLUMNS, right=_RIGHT)
        wide = session.output == "wide"
        rows = [_row(entry) + (_more(entry) if wide else []) for entry in entries]
        return fit_table(session, (*_HEADER, *_WIDE) if wide else _HEADER, rows, _COLUMNS, right=_RIGHT)

    show(session, entries, text)


_RIGHT = ("#", "WAITED", "ELAPSED", "GPUS", "GPU-HOURS", "MAX RSS")
_COLUMNS = Columns(
    ("WAITED", "SUBMITTED", "GPU-HOURS", "MAX RSS"),
    cut={"REASON": 20},
    whole=(*_RIGHT, "STATUS", "SUBMITTED", "EXIT"),
)


_TRIES = (
    *("#", "NAME", "TASK", "ATTEMPT", "NODE", "STARTED", "ELAPSED", "GPUS", "GPU-HOURS", "MAX RSS", "EXIT"),
    "REASON",
)
_TRY_COLUMNS = Columns(
    ("NODE", "STARTED", "GPU-HOURS", "MAX RSS"),
    cut={"REASON": 20},
    whole=("#", "ATTEMPT", "ELAPSED", "GPUS", "EXIT"),
)


def _try(entry: HistoryEntry, one: AttemptEntry) -> list[str]:
    begun, ended = one["startedAt"], one["endedAt"]
    until = moment(ended) if ended else time.time()
    code = signal_name(one["signal"]) if one["signal"] is not None else str(one["exitCode"])
    why = "out of memory" if one["outOfMemory"] else "stopped" if one["stopped"] else one["message"]
    return [
        str(entry["number"]),
        entry["name"],
        one["task"],
        str(one["attempt"]),
        one["node"],
        _day(begun) if begun else "-",
        show_duration(max(0.0, until - moment(begun))) if begun else "-",
        show_gpus(one["gpus"]),
        show_gpus(one["gpuHours"]),
        show_bytes(one["maxRssBytes"]) if one["maxRssBytes"] else "-",
        code if one["exitCode"] is not None or one["signal"] is not None else "",
        why,
    ]


def _row(entry: HistoryEntry) -> list[str]:
    outcome = entry["outcome"]
    return [
        str(entry["number"]),
        entry["name"],
        status(outcome),
        _day(entry["submittedAt"]),
        show_duration(entry["waitedSeconds"]),
        show_duration(outcome["runningSeconds"]),
        show_gpus(entry["gpus"]),
        show_gpus(outcome["gpuHours"]),
        show_bytes(outcome["maxRssBytes"]) if outcome.get("maxRssBytes") else "-",
        _exit(outcome),
        reason(outcome),
    ]


def _more(entry: HistoryEntry) -> list[str]:
    return [entry["projectName"], entry["submittedBy"], str(entry["attempts"]), entry["id"]]


def status(outcome: Outcome) -> str:
    if outcome["cancelled"] and outcome["exitCode"] is not None:
        return "Cancelled"
    if outcome["deleted"] and outcome["phase"] not in ("Completed", "Failed"):
        return "Deleted"
    return {"Completed": "Succeeded", "Stopped": "Suspended"}.get(outcome["phase"], outcome["phase"])


def reason(outcome: Outcome) -> str:
    """Why it failed or was cancelled, in a few words; else ""."""
    if outcome["outOfMemory"]:
        return "out of memory"
    return outcome["message"] if status(outcome) in ("Failed", "Cancelled") else ""


def _exit(outcome: Outcome) -> str:
    if outcome["signal"] is not None:
        return signal_name(outcome["signal"])
    ended = outcome["phase"] in ("Completed", "Failed") and not outcome["cancelled"]
    return str(outcome["exitCode"]) if ended else ""


def _day(stamp: str) -> str:
    """The local time: 22 Nov 06:00."""
    from datetime import datetime

    return datetime.fromtimestamp(moment(stamp)).astimezone().strftime("%d %b %H:%M")


def _csv(entries: list[HistoryEntry]) -> str:
    """CSV with a line per entry and its outcome, or per attempt if attempts are listed; "" for none."""
    file = io.StringIO()
    flat: list[dict[str, object]] = []
    for entry in entries:
        whole: dict[str, object] = dict(entry)
        fields = {key: value for key, value in whole.items() if key not in ("outcome", "tries")}
        if "tries" in entry:
            flat += [{**fields, **one} for one in entry["tries"]]
        else:
            flat.append({**fields, **entry["outcome"]})
    if flat:
        writer = csv.DictWriter(file, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
    return file.getvalue()
