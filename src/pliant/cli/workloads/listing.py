"""`list` in all its spellings, and the lists of the kinds of workload."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from pliant.cli.lazy import Command
from pliant.cli.output import workload_tables as tables
from pliant.cli.output.fit import Columns, fit_table
from pliant.cli.output.formats import output_options, project_option, show
from pliant.cli.output.tables import selected
from pliant.cli.session import Session, pass_session

if TYPE_CHECKING:
    from pliant.wire.workload import WorkloadItem


class Form(NamedTuple):
    """One of the tables of workloads."""

    header: Sequence[str]
    row: Callable[[WorkloadItem], list[str]]
    rule: bool
    columns: Columns


CLASSIC = Form(
    tables.JOBS,
    tables.job_row,
    rule=False,
    columns=Columns(
        ("AGE", "IMAGE", "USER", "TYPE", "SERVICE URL(S)", "PROJECT", "PODs Running (Pending)", "NODE"),
        short={"GPUs Allocated (Requested)": "GPUS (REQ.)", "PODs Running (Pending)": "PODS (PENDING)"},
        whole=(
            "STATUS",
            "AGE",
            "GPUs Allocated (Requested)",
            "PODs Running (Pending)",
            "PROGRESS",
            "WORKERS",
        ),
    ),
)
_PODS = ("Running/Requested Pods", "Running/Req. Pods")
_TYPED = Columns(
    ("Preemptible", "Type", *_PODS, "Project"),
    short={"Running/Requested Pods": "Pods", "Running/Req. Pods": "Pods", "GPU Allocation": "GPUs"},
    whole=(
        "Status",
        "Running/Requested Pods",
        "Running/Req. Pods",
        "GPU Allocation",
        "GPU Alloc.",
        "PROGRESS",
        "WORKERS",
    ),
    last="Workload",
)
TYPED = Form(tables.TYPED, tables.typed_row, rule=True, columns=_TYPED)
ALL = Form(tables.ALL, tables.all_row, rule=True, columns=_TYPED)

_OTHERS = {
    "projects": "pliant.cli.organization.project:list_classic",
    "nodes": "pliant.cli.cluster.node:list_classic",
    "clusters": "pliant.cli.cluster.cluster:list_classic",
}
_WHAT = ("jobs", "job", "projects", "project", "nodes", "node", "clusters", "cluster")


def _kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _WHAT if name.startswith(incomplete)]


_all_projects = click.option(
    "-A", "--all-projects", "--all", "everywhere", is_flag=True, help="Workloads of all projects."
)
_watch = click.option("-w", "--watch", is_flag=True, help="Watch for changes until Ctrl-C.")
_columns = click.option("--columns", metavar="A,B", help="Columns to show, in this order.")


@click.command("list", cls=Command, short_help="List jobs, projects, nodes or clusters.")
@click.argument("what", default="jobs", metavar="[jobs|projects|nodes|clusters]", shell_complete=_kinds)
@click.argument("names", nargs=-1)
@_all_projects
@_watch
@_columns
@project_option
@output_options
@pass_session
def list_command(
    session: Session,
    what: str,
    names: tuple[str, ...],
    everywhere: bool,
    watch: bool,
    columns: str | None,
) -> None:
    """List jobs (default), projects, nodes or clusters; with NAMES, only these."""
    bare = click.get_current_context().get_parameter_source("what") is not ParameterSource.COMMANDLINE
    form = ALL if everywhere and bare else CLASSIC
    if what not in _WHAT:
        raise click.UsageError(f"{what!r} cannot be listed. Use one of jobs, projects, nodes, clusters.")
    plural = what if what.endswith("s") else f"{what}s"
    show_list(session, plural, names, form=form, everywhere=everywhere, watch=watch, columns=columns)


def show_list(
    session: Session,
    what: str,
    names: Sequence[str],
    *,
    form: Form = CLASSIC,
    everywhere: bool = False,
    watch: bool = False,
    columns: str | None = None,
) -> None:
    """Print jobs, projects, nodes or clusters."""
    if what == "jobs":
        workloads(session, form, everywhere=everywhere, watch=watch, columns=columns, names=names)
        return
    if watch or everywhere:
        raise click.UsageError("--watch and --all-projects are for lists of jobs.")
    from importlib import import_module

    module, _, attribute = _OTHERS[what].partition(":")
    show_others: Any = getattr(import_module(module), attribute)
    show_others(session, names)


@click.command("list", cls=Command)
@_all_projects
@_watch
@_columns
@click.option("--status", metavar="STATUS", help="Only workloads with this status, e.g. Running.")
@project_option
@output_options
@pass_session
def typed_list(
    session: Session, everywhere: bool, watch: bool, columns: str | None, status: str | None
) -> None:
    """List the workloads of a project, or with -A of all."""
    form = TYPED if session.kind else ALL
    workloads(session, form, everywhere=everywhere, watch=watch, columns=columns, status=status)


def workloads(
    session: Session,
    form: Form,
    *,
    everywhere: bool,
    watch: bool,
    columns: str | None = None,
    names: Sequence[str] = (),
    status: str | None = None,
) -> None:
    """Print the workloads of the current project, or of all, as `form` and the Session's output say."""
    project = None if everywhere else session.current_project

    def chosen(item: Any) -> bool:
        return (
            (project is None or item["projectName"] == project)
            and session.shows(item)
            and (not names or item["name"] in names)
            and (status is None or status.lower() in (item["phase"].lower(), item["status"].lower()))
        )

    # Watch first, then list: nothing that changes between the two is missed.
    changes = session.client.watch(project) if watch else None
    items = [item for item in session.client.workloads(project, kind=session.asked_kind) if chosen(item)]
    if not items and project is not None:
        session.check_project()

    def text(listed: Sequence[WorkloadItem]) -> str:
        if not names:
            listed = tables.collapsed(listed)
        header, rows = list(form.header), [form.row(item) for item in listed]
        if session.output == "wide":
            header += [name.upper() for name in tables.WIDE] if form is CLASSIC else tables.WIDE
            rows = [row + tables.wide(item) for row, item in zip(rows, listed, strict=True)]
        if watch and any(item.get("progress") for item in listed):
            from pliant.cli.output.progress import bar  # a list that is not watched starts without it

            header += ["PROGRESS"]
            rows = [[*row, bar(item)] for row, item in zip(rows, listed, strict=True)]
        if _tells_workers(session) and any(item.get("progress") for item in listed):
            header += ["WORKERS"]
            rows = [[*row, tables.workers(item)] for row, item in zip(rows, listed, strict=True)]
        try:
            header, rows = selected(columns, header, rows)
        except ValueError as error:
            raise click.UsageError(f"--columns: {error}.") from None
        fit = form.columns if columns is None else form.columns._replace(drop=())
        lines = fit_table(session, header, rows, fit, rule=form.rule)
        if form is CLASSIC and project is not None and session.headers:
            lines = f"Showing jobs for project {project}\n{lines}"
        return lines

    if changes is None:
        listed = tables.ordered(items)
        if not (listed or columns) and session.output in ("table", "wide") and _on_a_terminal(session):
            where = f"project {project}" if project is not None else "any project"
            session.note(f"No {'such ' if names or status else ''}{session.noun}s in {where}.")
            return
        show(session, listed, lambda: text(listed))
        return
    present: dict[str, WorkloadItem] = {item["id"]: item for item in items}
    _draw(session, present, text)
    for change in changes:
        if change.kind == "deleted":
            present.pop(change.item["id"], None)
        elif not chosen(change.item):
            continue
        else:
            present[change.item["id"]] = change.item  # type: ignore[assignment]
        if session.output == "json":
            click.echo(json.dumps({"event": change.kind, "object": change.item}))
        else:
            _draw(session, present, text)


def _tells_workers(session: Session) -> bool:
    """Where a person reads: what scripts read keeps its columns."""
    return session.output == "wide" or _on_a_terminal(session)


def _on_a_terminal(session: Session) -> bool:
    return session.program != "runai" and sys.stdout.isatty()


def _draw(
    session: Session, present: dict[str, WorkloadItem], text: Callable[[Sequence[WorkloadItem]], str]
) -> None:
    """The whole list again: in place on a terminal, one under the other elsewhere."""
    listed = tables.ordered(list(present.values()))
    terminal = sys.stdout.isatty()
    if terminal:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\x1b[H\x1b[2J")
    show(session, listed, lambda: text(listed))
    if not terminal and session.output in ("table", "wide"):
        click.echo("")
