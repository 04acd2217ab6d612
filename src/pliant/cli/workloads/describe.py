"""`describe job`, `describe node`, and `get`, which lists objects or describes a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output import workload_tables
from pliant.cli.output.amounts import show_age, show_duration, show_gpus
from pliant.cli.output.formats import output_options, project_option, structured
from pliant.cli.output.progress import labels
from pliant.cli.output.shares import shares_table
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import BadRequest, NotFound, Unauthorized

if TYPE_CHECKING:
    from pliant.wire.events import EventItem
    from pliant.wire.workload import PodItem, WorkloadItem


_KINDS = {
    **dict.fromkeys(
        ("job", "jobs", "pod", "pods", "po", "workload", "workloads", "training", "trainings"), "job"
    ),
    **dict.fromkeys(
        ("workspace", "workspaces", "inference", "deployment", "deploy", "svc", "service"), "job"
    ),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("project", "projects", "ns", "namespace"), "project"),
    **dict.fromkeys(("department", "departments"), "department"),
}
"""The command of `describe` for the kinds of other tools."""


class DescribeGroup(LazyGroup):
    """`describe job NAME`, `describe node NAME`; `describe NAME` finds the job or the node of that name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        kind, slash, name = args[0].partition("/")
        ours = _KINDS.get(kind) if slash or args[1:] or kind in ("nodes", "jobs") else None
        if ours in ("project", "department") and (slash or args[1:]):
            words = [*([name] if slash else []), *args[1:]]
            raise click.UsageError(f"Use `pliant {ours} describe {' '.join(words)}`.")
        if ours in self.where:
            args = [ours, *([name] if slash else []), *args[1:]]
        elif args[0] not in self.where and not args[0].startswith("-"):
            return "NAME", either, args
        return super().resolve_command(ctx, args)


describe = DescribeGroup(
    {
        "Commands": {
            "job": "pliant.cli.workloads.describe:job",
            "node": "pliant.cli.cluster.node:describe",
        }
    },
    name="describe",
    help="Show a job or a node in detail: `describe NAME`, `describe job NAME`, `describe node NAME`.",
)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("name", shell_complete=workload_names)(
        project_option(output_options(pass_session(function)))
    )


@click.command("job", cls=Command, short_help="Show a job in detail.")
@_options
def job(session: Session, name: str) -> None:
    """Show a job in detail: requested and allocated resources, pods and events."""
    show_job(session, name)


@click.command("NAME", cls=Command)
@_options
def either(session: Session, name: str) -> None:
    """Show everything about the job or the node of that name."""
    project = session.current_project
    is_job = any(session.client.workloads(project, name=name))
    is_node = any(entry["name"] == name for entry in session.client.nodes())
    if is_job and is_node:
        raise BadRequest(
            f"{name} is a job and a node.",
            f"Use `{session.program} describe job {name}` or `{session.program} describe node {name}`.",
        )
    if is_node:
        from pliant.cli.cluster.node import describe_nodes

        describe_nodes(session, (name,))
        return
    show_job(session, name)


_PODS = ("pods", "pod", "po")
_LISTS = {
    "jobs": "jobs", "job": "jobs", "workloads": "jobs", "nodes": "nodes", "node": "nodes", "no": "nodes",
    "projects": "projects", "project": "projects",
}  # fmt: skip


@click.command("get", cls=Command, short_help="List jobs, pods, nodes or projects, as kubectl does.")
@click.argument("name", metavar="jobs|pods|nodes|projects|NAME", shell_complete=workload_names)
@click.argument("names", nargs=-1)
@click.option("-e", "--events", is_flag=True, help="Accepted; events are always shown.")
@click.option(
    "-A",
    "--all-projects",
    "--all-namespaces",
    "everywhere",
    is_flag=True,
    help="get jobs, get pods: of all projects.",
)
@click.option("-l", "--selector", metavar="K=V", help="get pods: only of workloads with these labels.")
@click.option("-n", "--namespace", metavar="NAME", help="get jobs, get pods: of this project.")
@click.option("-w", "--watch", is_flag=True, help="get jobs: watch for changes until Ctrl-C.")
@project_option
@output_options
@pass_session
def get(
    session: Session,
    name: str,
    names: tuple[str, ...],
    events: bool,
    everywhere: bool,
    selector: str | None,
    namespace: str | None,
    watch: bool,
) -> None:
    """List jobs, pods, nodes or projects. `get NAME` is the same as `describe job NAME`."""
    kind, slash, rest = name.partition("/")
    if slash and (kind in _LISTS or kind in _PODS):
        name, names = kind, (rest, *names)
    if namespace is not None:
        session.project = namespace.removeprefix("runai-")
    if len(names) == 1 and _LISTS.get(name) == "jobs" and session.output not in ("table", "wide", "name"):
        show_job(session, names[0])  # one object instead of a list of one
        return
    if name in _LISTS and selector is None:
        from pliant.cli.workloads.listing import show_list

        show_list(session, _LISTS[name], names, everywhere=everywhere, watch=watch)
        return
    if name in _PODS and not watch:
        from pliant.cli.workloads.pods import get_pods

        get_pods(session, selector, names, everywhere=everywhere, namespace=namespace)
        return
    if selector is not None:
        raise click.UsageError("-l is for `get pods`.")
    if watch:
        raise click.UsageError(f"-w is for jobs. Use `{session.program} get jobs -w`.")
    from pliant.cli.habits import instead  # a kind of kubectl is not a job's name

    if cure := instead(f"get {name.partition(',')[0]}", names):
        raise click.UsageError(cure)
    try:
        show_job(session, name)
    except NotFound:
        from difflib import get_close_matches

        close = get_close_matches(name, (*_LISTS, *_PODS), 1, 0.72)
        if not close:
            raise
        said = f"'{name}' cannot be listed. Did you mean `{session.program} get {close[0]}`?"
        raise click.UsageError(said) from None


def show_job(session: Session, name: str) -> None:
    item, pods, events = gathered(session, name)
    if structured(session, {**item, "pods": pods, "events": events}):
        return
    if session.output == "name":
        click.echo(item["name"])
        return
    for label, value in _labels(item, pods):
        click.echo(f"{label}: {value}".rstrip())
    if variables := item.get("environmentVariables"):
        click.echo(f"ENVIRONMENT: {' '.join(f'{name}={value}' for name, value in variables.items())}")
    for label, folder in _folders(session, item["id"]):
        click.echo(f"{label}: {folder}")
    if progress := item.get("progress"):
        click.echo("\nTraining:")
        for label, value in labels(progress):
            click.echo(f"{label}: {value}")
    click.echo("\nPods:")
    click.echo(pods_table(pods, item, headers=session.headers))
    if item["phase"] == "Failed" and item.get("distributedFramework") == "ElasticDL":
        from pliant.cli.streams.traceback import first_traceback

        if said := first_traceback(session, item["id"], pods):
            click.echo(f"\nFirst Error:\n{said}")
    if shares := item.get("gpuShares"):
        click.echo(f"\nGPU Shares:\n{shares_table(shares, headers=session.headers)}")
    click.echo("\nEvents:")
    click.echo(events_table(events, headers=session.headers))


def _folders(session: Session, identity: str) -> list[tuple[str, str]]:
    """The labelled folders of a job; [] if this user may not see its files."""
    try:
        found: Mapping[str, Any] = session.client.folders(identity)
    except Unauthorized as error:
        if error.status != 403:
            raise
        return []
    return [(label, found[key]) for label, key in _FOLDERS.items() if found[key]]


_FOLDERS = {"WORKING DIRECTORY": "workingDir", "JOB FOLDER": "jobFolder", "LOG": "logFolder"}


def gathered(session: Session, name: str) -> tuple[WorkloadItem, list[PodItem], list[EventItem]]:
    found: WorkloadItem = session.find_task(name)[0]
    return found, session.client.pods(found["id"]), session.client.events(found["id"])


def command_line(item: WorkloadItem) -> str:
    return " ".join(part for part in (item.get("command"), item.get("arguments")) if part)


def _labels(item: WorkloadItem, pods: Sequence[PodItem]) -> list[tuple[str, str]]:
    """The labelled values: the first edition's in their order, then Pliant's."""
    status = [pod.get("status", "").lower() for pod in pods]
    wanted = item["requestedPods"]
    per_pod = item["podsRequestedResources"]["gpu"]
    memory = item["allocatedResources"]["gpuMemory"]
    labels = [
        ("NAME", item["name"]),
        ("NAMESPACE", item.get("namespace") or f"runai-{item['projectName']}"),
        ("TYPE", item.get("jobType") or item["type"]),
        ("STATUS", item["status"]),
        ("TRAINING DURATION", show_duration(item.get("totalRunningTimeSeconds"))),
        ("GPUS", show_gpus(per_pod["request"] if per_pod is not None else None)),
        ("TOTAL REQUESTED GPUS", workload_tables.requested(item)),
        ("ALLOCATED GPUS", show_gpus(workload_tables.allocated(item))),
        ("ALLOCATED GPUS MEMORY", memory or "0"),
        ("RUNNING PODS", str(item.get("runningPods", 0))),
        ("PENDING PODS", str(item.get("pendingPods", 0))),
        ("PARALLELISM", str(wanted.get("parallelism", 1))),
        ("COMPLETIONS", str(wanted.get("completions", 1))),
        ("SUCCEEDED PODS", str(status.count("succeeded") + status.count("completed"))),
        ("FAILED PODS", str(status.count("failed"))),
        ("IS DISTRIBUTED WORKLOAD", str(item["type"] == "Distributed").lower()),
        ("CREATED BY CLI", str(item.get("source") == "CLI").lower()),
        ("SERVICE URL(S)", ", ".join(item.get("urls") or [])),
        ("COMMAND LINE", command_line(item)),
        ("PROJECT", item["projectName"]),
        ("PRIORITY", f"{item.get('priorityClassName') or ''} ({item.get('priority', '')})".strip()),
        ("PREEMPTIBLE", workload_tables.preemptible(item)),
        ("ELASTIC", _elastic(item)),
    ]
    return labels + _limits(item) + explained(item)


def _limits(item: WorkloadItem) -> list[tuple[str, str]]:
    """The requested main memory and cores, and whether they are enforced."""
    asked, held = item["podsRequestedResources"], item["limitsEnforced"]
    found = []
    memory = asked["cpuMemory"]["request"] if asked["cpuMemory"] else None
    cores = asked["cpu"]["request"] if asked["cpu"] else None
    if memory and memory != "0":
        how = "enforced: a job that exceeds it is killed" if held else COUNTED
        found.append(("MEMORY", f"{memory} ({how})"))
    if cores:
        how = "its part of the cores when all are busy" if held else COUNTED
        found.append(("CORES", f"{cores:g} ({how})"))
    return found


COUNTED = "counted, not enforced"


def _elastic(item: WorkloadItem) -> str:
    """Whether the job is elastic, and whether a resize restarts it."""
    if item["resize"] == "live":
        return "yes (resizes without a restart)"
    if item["resize"] == "restart" and item["runningPods"]:
        return "yes (restarts at every resize; use pliant.train to resize without a restart)"
    return "yes" if item["elastic"] else "no"


def explained(item: WorkloadItem) -> list[tuple[str, str]]:
    """The labelled values that exist: its end, GPU fraction, reason, protection and queue position."""
    labels = []
    if item["phase"] in ("Completed", "Failed") and item["phaseMessage"]:
        labels.append(("ENDED", item["phaseMessage"]))
    if fraction := item.get("fraction"):
        labels.append(("GPU FRACTION", fraction))
    if reason := item.get("reason"):
        labels.append(("REASON", f"[{reason['code']}] {reason['message']}"))
    if protection := item.get("protection"):
        for what, until in (("RECLAIM", protection["reclaim"]), ("PREEMPTION", protection["preemption"])):
            if until:
                value = f"{until['endsAt']} (minimum runtime of {until['level']} {until['name']})"
                labels.append((f"PROTECTED FROM {what} UNTIL", value))
    if position := item.get("queuePosition"):
        labels.append(("QUEUE POSITION", str(position)))
    return labels


def pods_table(pods: Sequence[PodItem], item: WorkloadItem, *, headers: bool = True) -> str:
    kind = str(item.get("jobType") or item["type"]).upper()
    rows = [
        [
            pod["name"],
            pod.get("status", "").upper(),
            kind,
            show_age(pod.get("createdAt")),
            f"{pod['nodeName']}/N/A" if pod.get("nodeName") else "N/A",
        ]
        for pod in pods
    ]
    return table(("POD", "STATUS", "TYPE", "AGE", "NODE"), rows, headers=headers)


def events_table(events: Sequence[EventItem], *, headers: bool = True) -> str:
    if not events:
        return "No events for resources"
    header = ("SOURCE", "TYPE", "AGE", "MESSAGE")
    rows = []
    for event in events:
        about = event["involvedObject"]
        source = f"{about['kind']}/{about['name']}"
        message = f"[{event.get('reason', '')}] {event.get('message', '')}"
        rows.append([source, event.get("type", ""), show_age(event["createdAt"]), message])
    dashes = ["-" * len(name) for name in header]
    return table(header, [dashes, *rows] if headers else rows, headers=headers)
