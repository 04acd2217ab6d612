"""`list` in all its spellings, and `list` of each kind of workload."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from pliant.cli.lazy import Command
from pliant.cli.output import workload_tables as tables
from pliant.cli.output.fit import Columns, fit_table
from pliant.cli.output.formats import output_options, project_option, show
from pliant.cli.output.tables import selected
from pliant.cli.session import Session, bare, pass_session

if TYPE_CHECKING:
    from pliant.wire.workload import WorkloadItem


class Form(NamedTuple):
    """A form of the table of workloads."""

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
_status = click.option("--status", metavar="STATUS", help="Only workloads with this status, e.g. Running.")
_user = click.option("-u", "--user", metavar="NAME", help="Only workloads of this user.")
_mine = click.option("--mine", is_flag=True, help="Only your own workloads.")


class Narrow(NamedTuple):
    """Filters: which workloads to list; None does not filter."""

    status: str | None = None
    user: str | None = None
    kind: str | None = None
    framework: str | None = None

    def shows(self, item: Any) -> bool:
        kind, framework = item["type"].lower(), (item.get("distributedFramework") or "").lower()
        return (
            (self.status is None or self.status.lower() in (item["phase"].lower(), item["status"].lower()))
            and (self.user is None or item["submittedBy"].partition("@")[0] == self.user.partition("@")[0])
            and (self.kind is None or self.kind.lower() == kind)
            and (self.framework is None or self.framework.lower() == framework)
        )


@click.command("list", cls=Command, short_help="List jobs, projects, nodes or clusters.")
@click.argument("what", default="jobs", metavar="[jobs|projects|nodes|clusters]", shell_complete=_kinds)
@click.argument("names", nargs=-1)
@_all_projects
@_watch
@_columns
@_status
@_user
@_mine
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
    status: str | None,
    user: str | None,
    mine: bool,
) -> None:
    """List jobs (default), projects, nodes or clusters; with NAMES, only these."""
    bare = click.get_current_context().get_parameter_source("what") is not ParameterSource.COMMANDLINE
    form = ALL if everywhere and bare else CLASSIC
    if what not in _WHAT:
        raise _not_listed(session, what)
    plural = what if what.endswith("s") else f"{what}s"
    if plural != "jobs" and (status or user or mine):
        raise click.UsageError("--status, --user and --mine are for lists of jobs.")
    show_list(
        session,
        plural,
        names,
        form=form,
        everywhere=everywhere,
        watch=watch,
        columns=columns,
        narrow=Narrow(status, session.user if mine else user),
    )


_GROUPS = ("training", "workspace", "inference", "workload", "department", "nodepool", "project", "user")


def _not_listed(session: Session, what: str) -> Exception:
    """The error for a word that cannot be listed; it names what to type instead."""
    program = session.program
    for group in (what.removesuffix("s"), {"ns": "project", "namespaces": "project"}.get(what, "")):
        if group in _GROUPS:
            return click.UsageError(f"'{what}' cannot be listed here. Use `{program} {group} list`.")
    if what in ("template", "templates"):
        return click.UsageError(
            f"Pliant keeps templates as assets. Use `{program} asset list training-template`."
        )
    if what in ("pod", "pods"):
        return click.UsageError(f"Use `{program} get pods`.")
    if what == "all":
        return click.UsageError(f"Use `{program} list -A`.")
    return click.UsageError(
        f"{what!r} cannot be listed. Use one of jobs, projects, nodes, clusters. For one job use "
        f"`{program} list jobs {what}`."
    )


def show_list(
    session: Session,
    what: str,
    names: Sequence[str],
    *,
    form: Form = CLASSIC,
    everywhere: bool = False,
    watch: bool = False,
    columns: str | None = None,
    narrow: Narrow | None = None,
) -> None:
    """Print jobs, projects, nodes or clusters."""
    if what == "jobs":
        narrow = narrow or Narrow()
        workloads(
            session, form, everywhere=everywhere, watch=watch, columns=columns, names=names, narrow=narrow
        )
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
@_status
@_user
@_mine
@click.option(
    "--type", "kind", metavar="TYPE", hidden=True, help="Only this type: training, workspace, distributed."
)
@click.option(
    "--framework", metavar="NAME", hidden=True, help="Only this framework: pytorch, mpi, tf, xgboost, jax."
)
@click.option("--page-size", metavar="N", hidden=True, expose_value=False)
@click.option("--next-token", metavar="TOKEN", hidden=True, expose_value=False)
@click.option("--no-pagination", is_flag=True, hidden=True, expose_value=False)
@click.option("--table", is_flag=True, hidden=True, expose_value=False)
@project_option
@output_options
@pass_session
def typed_list(
    session: Session,
    everywhere: bool,
    watch: bool,
    columns: str | None,
    status: str | None,
    user: str | None,
    mine: bool,
    kind: str | None,
    framework: str | None,
) -> None:
    """List the workloads of a project, or with -A of all."""
    form = TYPED if session.kind else ALL
    narrow = Narrow(status, session.user if mine else user, kind, framework)
    workloads(session, form, everywhere=everywhere, watch=watch, columns=columns, narrow=narrow)


def _shown(param: click.Parameter) -> click.Parameter:
    """The parameter; for --type and --framework a copy that the help shows."""
    if param.name not in ("kind", "framework"):
        return param
    option = copy(param)
    option.hidden = False  # type: ignore[attr-defined]
    return option


any_list = copy(typed_list)
any_list.params = [_shown(param) for param in typed_list.params]
"""The command `workload list`, which shows --type and --framework in its help."""


def workloads(
    session: Session,
    form: Form,
    *,
    everywhere: bool,
    watch: bool,
    columns: str | None = None,
    names: Sequence[str] = (),
    narrow: Narrow,
) -> None:
    """Print the workloads of the current project, or of all, in `form` and the Session's output format."""
    project = None if everywhere else session.current_project
    names = [bare(name) for name in names]

    def chosen(item: Any) -> bool:
        return (
            (project is None or item["projectName"] == project)
            and session.shows(item)
            and (not names or item["name"] in names or str(item["number"]) in names)
            and narrow.shows(item)
        )

    # Watch before listing: no change between the two is missed.
    changes = session.client.watch(project) if watch else None
    items = [item for item in session.client.workloads(project, kind=session.asked_kind) if chosen(item)]
    if not items and project is not None:
        session.check_project()

    def text(listed: Sequence[WorkloadItem]) -> str:
        if not names:
            listed = tables.collapsed(listed)
        header, rows = list(form.header), [form.row(item) for item in listed]
        if session.output == "wide":
            named = [name.upper() for name in tables.WIDE] if form is CLASSIC else tables.WIDE
            new = [at for at, name in enumerate(named) if name not in header]  # NODE is already there
            header += [named[at] for at in new]
            added = [tables.wide(item) for item in listed]
            rows = [row + [more[at] for at in new] for row, more in zip(rows, added, strict=True)]
        if watch and any(item.get("progress") for item in listed):
            from pliant.cli.output.progress import bar  # imported for watched lists only

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
            session.note(f"No {'such ' if names or narrow != Narrow() else ''}{session.noun}s in {where}.")
            return
        show(session, listed, lambda: text(listed))
        return
    present: dict[str, WorkloadItem] = {item["id"]: item for item in items}
    _draw(session, present, text)
    for change in changes:
        if change.kind != "deleted" and chosen(change.item):
            present[change.item["id"]] = change.item  # type: ignore[assignment]
        elif present.pop(change.item["id"], None) is None:
            continue  # it was not in the list
        if session.output == "json":
            click.echo(json.dumps({"event": change.kind, "object": change.item}))
        else:
            _draw(session, present, text)


def _tells_workers(session: Session) -> bool:
    """True on a terminal and with -o wide: the columns that scripts read do not change."""
    return session.output == "wide" or _on_a_terminal(session)


def _on_a_terminal(session: Session) -> bool:
    return session.program != "runai" and sys.stdout.isatty()


def _draw(
    session: Session, present: dict[str, WorkloadItem], text: Callable[[Sequence[WorkloadItem]], str]
) -> None:
    """Print the whole list again: on a terminal after clearing it, elsewhere below the last one."""
    listed = tables.ordered(list(present.values()))
    terminal = sys.stdout.isatty()
    if terminal:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\x1b[H\x1b[2J")
    show(session, listed, lambda: text(listed))
    if not terminal and session.output in ("table", "wide"):
        click.echo("")
