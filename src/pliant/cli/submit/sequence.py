"""Options for the start of a job, as in Slurm: --begin, --dependency, --after, --singleton, --array."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, cast

import click

from pliant.cli.output.amounts import duration
from pliant.cli.submit.options import Option

if TYPE_CHECKING:
    from pliant.wire.submission import ArrayItem, DependencyItem, Spec

_CONDITIONS = ("after", "afterok", "afterany", "afternotok", "aftercorr")
_EXAMPLE = "afterok:NAME, afterany:NAME:NAME, afternotok:NAME"


def begin(text: str, flag: str) -> str:
    """'22:00' (today or tomorrow), 'now+2h' or '2026-12-01T08:00' (local time) as RFC 3339. UsageError."""
    try:
        return _begin(text, flag)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"{flag} {text}: not a time such as 22:00, now+2h or 2026-12-01T08:00."
        ) from None


def _begin(text: str, flag: str) -> str:
    from datetime import UTC, datetime, timedelta

    now = datetime.now().astimezone()
    if text.startswith("now"):
        sign, later = text[3:4], text[4:]
        if text != "now" and (sign != "+" or not later):
            raise click.UsageError(f"{flag} {text}: write now+TIME, for example now+2h.")
        moment = now + timedelta(seconds=duration(later, flag) if later else 0)
    elif match := re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", text):
        hour, minute, second = (int(part or 0) for part in match.groups())
        if hour > 23 or minute > 59 or second > 59:
            raise click.UsageError(f"{flag} {text}: not a time of day.")
        today = now.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
        moment = today.astimezone()
        if moment < now:
            moment = (today + timedelta(days=1)).astimezone()  # its offset may differ: summer time
    else:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.astimezone()
        if moment.timestamp() < time.time():
            raise click.UsageError(f"{flag} {text}: this time is in the past.")
    # Rounded up to whole seconds.
    return datetime.fromtimestamp(-(-moment.timestamp() // 1), UTC).isoformat()


def dependencies(text: str, flag: str) -> list[DependencyItem]:
    """'afterok:a:b,afterany:c'; 'afterok:a?afterok:b' if one of them suffices. Raises UsageError."""
    found: list[DependencyItem] = []
    if "," in text and "?" in text:
        raise click.UsageError(f"{flag} {text}: use ',' (all of them) or '?' (one of them), not both.")
    for part in re.split("[,?]", text):
        when, colon, names = part.partition(":")
        if when == "singleton":
            raise click.UsageError(f"{flag} singleton is not supported. Use --array INDEXES%1.")
        if when not in _CONDITIONS or not colon:
            raise click.UsageError(f"{flag} {text}: expected {_EXAMPLE}.")
        for name in names.split(":"):
            if not name:
                raise click.UsageError(f"{flag} {text}: a name is missing after '{when}:'.")
            found.append(cast("DependencyItem", {"on": name, "when": when}))
    return found


def array(text: str, flag: str) -> ArrayItem:
    """'0-15%4': indexes, and how many elements may run at the same time. Raises UsageError."""
    indexes, percent, most = text.partition("%")
    if percent and not (most.isdecimal() and int(most)):
        raise click.UsageError(f"{flag} {text}: write a number after '%', as in 0-15%4.")
    made: ArrayItem = {"indexes": indexes}
    if percent:
        made["atOnce"] = int(most)
    return made


OPTIONS = (
    Option("beginAt", ("--begin",), "TIME", "Do not start before: 22:00, now+2h, 2026-12-01T08:00.", begin),
    Option(
        "dependencies",
        ("--dependency",),
        "LIST",
        "Start after other jobs: afterok:A:B,afterany:C; '?' instead of ',' for one of them.",
        dependencies,
    ),
    Option(
        "after",
        ("--after",),
        "NAME",
        "Start after this job succeeded (repeatable).",
        lambda names, flag: [{"on": name, "when": "afterok"} for name in names],
        multiple=True,
    ),
    Option(
        "keepPending",
        ("--keep-pending",),
        None,
        "If a dependency fails, stay pending until a later job of its name succeeds (default: cancelled).",
        flag=True,
    ),
    Option(
        "singleton",
        ("--singleton",),
        None,
        "Start after your earlier jobs with the same --job-name-prefix have ended.",
        flag=True,
    ),
    Option(
        "array",
        ("--array",),
        "INDEXES[%N]",
        "One job per index, N at a time: 0-15, 0,6,16-32, 0-15%4.",
        array,
    ),
)


def joined(made: Spec, given: dict[str, Any]) -> Spec:
    """Merges --after and --singleton into the list of --dependency. Raises UsageError."""
    sent = cast("dict[str, Any]", made)
    after = sent.pop("after", [])
    if sent.pop("singleton", False):
        prefix = given.get("job_name_prefix") or given.get("name_prefix")
        if not prefix:
            raise click.UsageError("--singleton needs --job-name-prefix PREFIX.")
        after = [*after, {"on": prefix, "when": "singleton"}]
    if after:
        if "?" in (given["dependencies"] or ""):
            raise click.UsageError("--after and --singleton exclude a '?' in --dependency.")
        sent["dependencies"] = [*sent.get("dependencies", ()), *after]
    if "?" in (given["dependencies"] or ""):
        sent["dependencyAny"] = True
    return made
