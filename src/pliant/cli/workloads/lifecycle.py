"""cancel, delete, suspend, resume: act on each named job and print a line for it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from pliant.cli.completion import workload_names
from pliant.cli.exits import code_of
from pliant.cli.lazy import Command
from pliant.cli.output.amounts import show_bytes
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, matching, pass_session
from pliant.cli.workloads.outcomes import ending
from pliant.client.errors import NotFound, PliantError

_names = click.argument("names", nargs=-1, metavar="NAME...", shell_complete=workload_names)
_all = click.option("-A", "--all", "everything", is_flag=True, help="All jobs of the project.")
_uuid = click.option(
    "-u", "--uuid", "ids", multiple=True, metavar="ID", help="Id instead of a name (repeatable)."
)
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_purge = click.option(
    "--purge",
    is_flag=True,
    help="Remove the files now instead of keeping them (see `cluster set --keep-deleted`).",
)


FEW = 10
"""Up to this many named jobs are deleted one by one, with a note where the files of each are."""


class _Said(NamedTuple):
    """What to print for a job instead of, or after, the standard line."""

    line: str = ""  # printed instead of the standard line
    note: str = ""  # printed after it, on standard error


class _Verb(NamedTuple):
    act: Callable[[Session, Any], _Said | None]  # None: print the standard line
    done: str
    infinitive: str
    missing: str
    applies: Callable[[Any], bool] = lambda item: True  # selects jobs of --all


def _delete(session: Session, item: Any) -> _Said | None:
    kept = session.client.delete(item["id"]).get("kept")
    if kept is None or not kept["bytes"]:  # logs alone are kept of every job
        return None
    until = kept["keptUntil"][:10]
    return _Said(note=f"Its folder ({show_bytes(kept['bytes'])}) is kept until {until} in {kept['path']}.")


def _remove(session: Session, item: Any) -> None:
    session.client.delete(item["id"], purge=True)


_DELETE = _Verb(
    _delete,
    "deleted",
    "delete",
    "{noun} {name} does not exist in project {project}. "
    "If the job exists in a different project, use -p <project-name>.",
)
_PURGE = _DELETE._replace(act=_remove)


def _goes_on(item: Any) -> bool:
    return str(item["phase"]) not in ("Completed", "Failed")


def _is_suspended(item: Any) -> bool:
    return bool(item["desiredPhase"] == "Stopped")


_SUSPEND = _Verb(
    lambda session, item: session.client.suspend(item),
    "suspended",
    "suspend",
    "{noun} {name} not found",
    _goes_on,
)
_RESUME = _Verb(
    lambda session, item: session.client.resume(item),
    "resumed",
    "resume",
    "{noun} {name} not found",
    _is_suspended,
)


@click.command("cancel", cls=Command, short_help="End jobs and keep their records, logs and files.")
@_names
@_all
@click.option("--now", is_flag=True, help="Kill their processes without a grace period.")
@click.option(
    "-s", "--signal", "sent", metavar="NAME", help="Only send this signal to all their processes: USR1, INT."
)
@project_option
@pass_session
def cancel(session: Session, names: tuple[str, ...], everything: bool, now: bool, sent: str | None) -> int:
    """End jobs. Their records, logs and files remain until `delete`."""
    if names == ("all",) and not _is_job(session, "all"):
        raise click.UsageError(f"Use `{session.program} cancel --all`.")
    number = None if sent is None else _signal(sent)
    if number is not None and now:
        raise click.UsageError("--signal and --now exclude each other.")

    def act(session: Session, item: Any) -> _Said:
        if number is not None:
            session.client.signal(item["id"], number)
            return _Said(f"{item['name']} got {signal.Signals(number).name}.")
        before = session.client.cancel(item["id"], now=now)
        if before["exitCode"] is None:
            return _Said(f"{item['name']} is being cancelled.")
        return _Said(f"{item['name']} had already {_ENDED.get(ending(before), ending(before))}.")

    verb = _Verb(act, "", "cancel", "{noun} {name} not found", _goes_on)
    return _each(session, verb, names, (), everything)


def _signal(text: str) -> int:
    """The number of a signal: USR1, SIGUSR1 or 10. Raises UsageError."""
    names = {it.name.removeprefix("SIG"): it.value for it in signal.Signals if it.value < 32}
    number = names.get(text.upper().removeprefix("SIG"), int(text) if text.isdecimal() else 0)
    if number not in names.values():
        raise click.UsageError(f"--signal {text}: not a signal, such as USR1, INT or HUP.")
    return number


_ENDED = {"was cancelled": "been cancelled", "was deleted": "been deleted"}


_OF_KIND = {
    **dict.fromkeys(("training", "trainings"), "training delete {names}"),
    **dict.fromkeys(("workspace", "workspaces"), "workspace delete {names}"),
    **dict.fromkeys(("workload", "workloads"), "workload delete {names}"),
    **dict.fromkeys(("inference", "deployment", "deploy", "service", "svc"), "inference delete {names}"),
    **dict.fromkeys(("project", "projects", "ns", "namespace"), "project delete {names}"),
    **dict.fromkeys(("node", "nodes", "no"), "node drain {names}"),
    "user": "user delete {names}",
}
"""What to type for objects of other kinds."""


def _is_job(session: Session, name: str) -> bool:
    return any(True for _ in session.client.workloads(session.current_project, name=name))


@click.command("delete", cls=Command, short_help="Delete jobs; their files are kept for a while.")
@_names
@_all
@_purge
@_yes
@project_option
@pass_session
def delete(session: Session, names: tuple[str, ...], everything: bool, purge: bool, yes: bool) -> int:
    """Delete jobs. Their names can be used again immediately.

    Job folders and logs are kept for a while, and `restore-files` brings them back. With --purge they are
    removed at once.
    """
    if len(names) > 1 and names[0] in ("job", "jobs"):
        names = names[1:]
    if names and (names[0].startswith(("pod/", "pods/")) or (names[0] in ("pod", "pods", "po"))):
        raise click.UsageError(f"A pod ends with its job. Use `{session.program} cancel NAME`.")
    if len(names) > 1 and names[0] in _OF_KIND and not _is_job(session, names[0]):
        cure = _OF_KIND[names[0]].format(names=" ".join(names[1:]))
        raise click.UsageError(f"`delete` is for jobs. Use `{session.program} {cure}`.")
    if names == ("all",) and not _is_job(session, "all"):
        raise click.UsageError(f"Use `{session.program} delete --all`.")
    if purge and not yes and sys.stdin.isatty() and (names or everything):
        what = ", ".join(names) or f"every job of project {session.current_project}"
        session.confirm(f"Remove {what} with all files of its job folder?")
    if not purge and (everything or len(names) > FEW):
        return _all_at_once(session, names, everything)
    return _each(session, _PURGE if purge else _DELETE, names, (), everything)


def _all_at_once(session: Session, names: Sequence[str], everything: bool) -> int:
    """Delete many jobs with few requests; prints and returns what `_each` does."""
    if everything == bool(names):
        raise click.UsageError("Specify job names or --all.")
    noun, worst = session.noun.capitalize(), 0
    found: dict[str, str] = {}  # name by id
    for name, find in _targets(session, names, (), everything):
        try:
            found[find()["id"]] = name
        except NotFound as error:
            missing = _DELETE.missing.format(noun=noun, name=name, project=session.current_project)
            click.echo(missing, err=True)
            worst = worst or code_of(error)
    failed = session.client.delete_all([*found])
    for identity, name in found.items():
        if identity in failed:
            click.echo(f"Failed to delete {noun.lower()} {name}: {failed[identity]}", err=True)
            worst = worst or 1
        else:
            click.echo(f"{noun} {name} deleted successfully.")
    if len(found) > len(failed):
        session.note("Their folders are kept for a while: `restore-files` lists them.")
    return worst


@click.command("delete", cls=Command)
@_names
@_all
@_uuid
@_purge
@_yes
@project_option
@pass_session
def typed_delete(
    session: Session,
    names: tuple[str, ...],
    everything: bool,
    ids: tuple[str, ...],
    purge: bool,
    yes: bool,
) -> int:
    """Delete workloads; asks on a terminal unless -y is given."""
    if not yes and (names or ids or everything):
        if not sys.stdin.isatty():
            raise click.UsageError("delete needs -y when there is no terminal to confirm on.")
        what = ", ".join([*names, *ids]) or f"every {session.noun} of project {session.current_project}"
        session.confirm(f"Delete {what}?")
    return _each(session, _PURGE if purge else _DELETE, names, ids, everything)


@click.command("suspend", cls=Command, short_help="Stop jobs and free their GPUs; `resume` continues them.")
@_names
@_all
@_uuid
@project_option
@pass_session
def suspend(session: Session, names: tuple[str, ...], everything: bool, ids: tuple[str, ...]) -> int:
    """Stop jobs and free their GPUs; `resume` continues them."""
    return _each(session, _SUSPEND, names, ids, everything)


@click.command("resume", cls=Command, short_help="Resume suspended jobs.")
@_names
@_all
@_uuid
@project_option
@pass_session
def resume(session: Session, names: tuple[str, ...], everything: bool, ids: tuple[str, ...]) -> int:
    """Resume suspended jobs."""
    return _each(session, _RESUME, names, ids, everything)


def _each(session: Session, verb: _Verb, names: Sequence[str], ids: Sequence[str], everything: bool) -> int:
    """Apply the verb to each job and continue after a failure; returns the exit code of the first failure."""
    if everything == bool(names or ids):
        raise click.UsageError("Specify job names or --all.")
    noun = session.noun.capitalize()
    worst = done = 0
    for name, find in _targets(session, names, ids, everything):
        try:
            item = find()
            if everything and not verb.applies(item):
                continue
            said = verb.act(session, item)
        except NotFound as error:
            missing = verb.missing.format(noun=noun, name=name, project=session.current_project)
            click.echo(missing, err=True)
            worst = worst or code_of(error)
        except PliantError as error:
            if code_of(error) in (4, 8):
                raise
            if everything and not verb.applies(session.client.workload(item["id"])):
                continue  # the job ended meanwhile
            click.echo(f"Failed to {verb.infinitive} {noun.lower()} {name}: {error.message}", err=True)
            worst = worst or code_of(error)
        else:
            done += 1
            line = said.line if said is not None else ""
            click.echo(line or f"{noun} {name} {verb.done} successfully.")
            if said is not None and said.note:
                session.note(said.note)
    if everything and not done and not worst:
        session.note(f"No {session.noun} of project {session.current_project} to {verb.infinitive}.")
    return worst


def _targets(
    session: Session, names: Sequence[str], ids: Sequence[str], everything: bool
) -> list[tuple[str, Callable[[], Any]]]:
    """(name to print, function that gets the item) for each target; one request for all names."""
    targets: list[tuple[str, Callable[[], Any]]] = [
        (given, partial(session.client.workload, given)) for given in ids
    ]
    if not names and not everything:
        return targets
    project = session.current_project
    present: dict[str, Any] = {}
    for item in session.client.workloads(project, kind=session.asked_kind):
        if item["projectName"] == project and item.get("desiredPhase") != "Deleted" and session.shows(item):
            present[item["name"]] = item
    if not present:
        session.check_project()
    items = list(present.values())
    for name in sorted(present) if everything else names:
        try:
            targets += [(item["name"], partial(dict, item)) for item in matching(name, items, session.user)]
        except NotFound as error:
            targets.append((name, partial(_raise, error)))
    return targets


def _raise(error: Exception) -> Any:
    raise error
