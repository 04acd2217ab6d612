"""logs: prints the log of a workload, and with -f follows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pliant.cli.completion import workload_names
from pliant.cli.exits import OWN_FAILURE
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import duration, moment
from pliant.cli.output.formats import project_option
from pliant.cli.output.plain import LogScreen
from pliant.cli.session import Session, pass_session
from pliant.cli.streams import merged
from pliant.cli.streams.execute import followed
from pliant.cli.streams.follow import Excerpt
from pliant.cli.submit.grouped import NoEffect
from pliant.client.errors import Conflict, NotFound

if TYPE_CHECKING:
    from pliant.wire.workload import PodItem


class _Lines(click.ParamType[int | None]):
    """A number of lines; -1 means all, as in kubectl. Raises UsageError for kubectl's -n NAMESPACE."""

    name = "lines"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if isinstance(value, int) or value.isdecimal():
            return int(value)
        if value == "-1":
            return None
        raise click.UsageError(f"-n {value}: a number of lines. The project is -p {value}.", ctx)


@click.command("logs", cls=Command, short_help="Show the log of a workload.")
@click.argument("name", shell_complete=workload_names)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the job ends.")
@click.option("-n", "-t", "--tail", type=_Lines(), metavar="N", help="Only the last N lines (default: all).")
@click.option("--since", metavar="TIME", help="Only lines of this last period: 5s, 2m, 3h.")
@click.option("--since-time", metavar="RFC3339", help="Only lines after this time.")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--task", "--pod", "task", metavar="NAME|N|all", help="Log of this task (default: all tasks).")
@click.option("--prefix/--no-prefix", default=None, help="Print the task's name before each line.")
@click.option("--all-pods", is_flag=True, help="Same as --task all.")
@click.option("-c", "--container", metavar="NAME", cls=NoEffect, expose_value=False)
@click.option("--wait-timeout", metavar="TIME", cls=NoEffect, expose_value=False)
@click.option("--previous", is_flag=True, help="Log of the attempt before the last.")
@click.option("--attempt", metavar="N|all", help="Log of this attempt, or of all (default: the last).")
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
    task: str | None,
    all_pods: bool,
    prefix: bool | None,
    previous: bool,
    attempt: str | None,
) -> int:
    """Show the log of a workload; -f follows it until the job ends and returns its exit code."""
    if follow:
        session.failure_code = OWN_FAILURE
    if previous and attempt is not None:
        raise click.UsageError("--previous and --attempt exclude each other.")
    if attempt == "all" and follow:
        raise click.UsageError("--attempt all and --follow exclude each other.")
    if since and since_time:
        raise click.UsageError("--since and --since-time exclude each other.")
    task = "all" if all_pods else task
    ago = round(duration(since, "--since")) if since else None
    if since_time:
        try:
            ago = max(0, round(time.time() - moment(since_time)))
        except ValueError:
            raise click.UsageError(
                f"--since-time {since_time}: not a time such as 2026-01-31T12:00:00Z."
            ) from None
    item, task = session.find_task(name, task)
    pods = session.client.pods(item["id"])
    pod = _chosen(name, pods, task)
    many = task == "all" or (task is None and len(pods) > 1 and session.program != "runai")
    excerpt = Excerpt(tail, ago, timestamps)
    number = _number(attempt)
    plain = attempt is None and not previous
    if plain and (prefix or (many and len(pods) > 1)):
        marked = prefix is not False
        if follow and pod is None:
            return merged.followed(session, item["id"], name, excerpt=excerpt, prefix=marked)
        if not follow:
            begun = [it for it in pods if it["attempt"] and pod in (None, it["name"])]
            merged.shown(session, item["id"], begun, excerpt=excerpt, prefix=marked)
            return 0
    if previous:
        number = _previous(name, pods, pod)
    if follow and number is None:
        return followed(session, item["id"], name, pod=pod, excerpt=excerpt)
    screen = LogScreen()
    for one in range(1, _newest(pods, pod) + 1) if attempt == "all" else (number,):
        stream = session.client.logs(
            item["id"], follow=follow, tail=tail, since=ago, pod=pod, timestamps=timestamps, attempt=one
        )
        if attempt == "all":
            session.note(f"-- {name}: attempt {one}")
        for piece in stream:
            screen.show(piece)
    return 0


def _chosen(name: str, pods: Sequence[PodItem], task: str | None) -> str | None:
    """The pod of the task with that name or index; None if no single task is selected. Raises NotFound."""
    if task in (None, "all") or not pods:
        return None
    for at, pod in enumerate(pods):
        if task in (pod["name"], merged.task_of(pod), str(at)):
            return pod["name"]
    names = ", ".join(map(merged.task_of, pods))
    raise NotFound(f"{name} has no task {task}.", f"Use one of: {names}.")


def _previous(name: str, pods: Sequence[PodItem], pod: str | None) -> int:
    """Number of the last attempt but one of that task, or of the first that has started. Raises Conflict."""
    newest = _newest(pods, pod)
    if newest < 2:
        raise Conflict(f"{name} has no previous attempt.", "Its log has one attempt: leave out --previous.")
    return newest - 1


def _number(attempt: str | None) -> int | None:
    if attempt in (None, "all"):
        return None
    if not attempt.isdecimal() or not int(attempt):
        raise click.UsageError(f"--attempt {attempt}: a number from 1, or all.")
    return int(attempt)


def _newest(pods: Sequence[PodItem], pod: str | None) -> int:
    """Number of the last attempt of that task, or of the first that has started; 0 if none has."""
    return next((it["attempt"] for it in pods if it["attempt"] and pod in (None, it["name"])), 0)
