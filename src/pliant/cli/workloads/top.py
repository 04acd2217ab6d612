"""top node, top job: the allocation of nodes, and the present use of jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

from pliant.cli.cluster.node import chosen, gpu_count, gpu_table, gpu_used, state
from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output import workload_tables
from pliant.cli.output.amounts import show_bytes, show_gpus
from pliant.cli.output.fit import Columns, fit_groups, fit_table
from pliant.cli.output.formats import output_options, project_option, show
from pliant.cli.output.shares import used, used_by_gpu
from pliant.cli.session import Session, pass_session

if TYPE_CHECKING:
    from pliant.wire.workload import WorkloadItem, WorkloadLoad

REFRESH = 2.0
"""Seconds between two tables with --watch."""


@click.pass_context
def _both(ctx: click.Context) -> None:
    """Show nodes, then jobs, if no command is given."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(node)
        click.echo()
        ctx.invoke(job)


top = LazyGroup(
    {
        "Commands": {
            "node": "pliant.cli.workloads.top:node",
            "nodes": "pliant.cli.workloads.top:node",
            "job": "pliant.cli.workloads.top:job",
            "jobs": "pliant.cli.workloads.top:job",
            "pods": "pliant.cli.workloads.top:job",
            "pod": "pliant.cli.workloads.top:job",
        }
    },
    name="top",
    help="Show the current use of nodes and jobs (without a command: of both).",
    invoke_without_command=True,
    callback=_both,
)


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


@click.command("node", cls=Command, short_help="Show capacity and allocation of nodes.")
@click.argument("names", nargs=-1)
@click.option("-d", "--details", is_flag=True, help="Show each GPU.")
@output_options
@pass_session
def node(session: Session, names: tuple[str, ...], details: bool) -> None:
    """Show the capacity of nodes and how much of it is allocated."""
    nodes = chosen(session, names)

    def rows() -> str:
        lines = []
        for entry in nodes:
            cpu, cpu_used = entry.get("cpuCores") or 0.0, entry.get("cpuAllocated") or 0.0
            memory, memory_used = entry.get("memoryBytes") or 0, entry.get("memoryAllocated") or 0
            lines.append(
                [
                    entry["name"],
                    state(entry),
                    str(gpu_count(entry)),
                    f"{show_gpus(gpu_used(entry))} ({_percent(gpu_used(entry), gpu_count(entry))})",
                    f"{cpu:g}",
                    f"{cpu_used:g} ({_percent(cpu_used, cpu)})",
                    show_bytes(memory),
                    f"{show_bytes(memory_used)} ({_percent(memory_used, memory)})",
                ]
            )
        groups = (
            ("", ("NAME", "STATUS")),
            ("GPU", ("CAPACITY", "ALLOCATED")),
            ("CPU", ("CAPACITY", "ALLOCATED")),
            ("MEMORY", ("CAPACITY", "ALLOCATED")),
        )
        drop = ("MEMORY CAPACITY", "CPU CAPACITY", "GPU CAPACITY")
        text = fit_groups(session, groups, lines, drop)
        if details:
            memory = used_by_gpu(session.client.workloads(None))
            for entry in nodes:
                if gpu_count(entry):
                    text += f"\n\n{entry['name']}\n{gpu_table(entry, memory, headers=session.headers)}"
        return text

    show(session, nodes, rows)


SORTS = ("name", "gpu", "cpu", "memory")


@click.command("job", cls=Command, short_help="Show the current use of jobs.")
@click.argument("names", nargs=-1)
@click.option("-A", "--all-projects", "everywhere", is_flag=True, help="Jobs of all projects.")
@click.option("-w", "--watch", is_flag=True, help="Refresh every 2s until Ctrl-C.")
@click.option(
    "--sort", type=click.Choice(SORTS), help="Column to sort by, the largest first (default: name)."
)
@project_option
@output_options
@pass_session
def job(session: Session, names: tuple[str, ...], everywhere: bool, watch: bool, sort: str | None) -> None:
    """Show the current use of a project's jobs; `-` means not measured. CPU% is 100 for each core, GPU% is
    the mean over the job's own GPUs, memory is used/requested.
    """
    while True:
        if watch and sys.stdout.isatty():
            click.echo("\x1b[H\x1b[2J", nl=False)
        _jobs(session, names, everywhere, sort)
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(REFRESH)


def _jobs(session: Session, names: Sequence[str], everywhere: bool, sort: str | None) -> None:
    project = None if everywhere else session.current_project
    found = [item for item in session.client.workloads(project) if not names or item["name"] in names]
    items = workload_tables.ordered(found)
    if not items and project is not None:
        session.check_project()
    if session.program == "runai":  # as in the first edition, with ended jobs too
        show(session, items, lambda: fit_table(session, _OLDER, [_allocated(item) for item in items], _JOBS))
        return
    items = [item for item in items if names or item["phase"] not in ("Completed", "Failed")]
    loads: dict[str, WorkloadLoad] = {load["id"]: load for load in session.client.loads()}
    key = _KEYS.get(sort or "name")
    if key is not None:
        items.sort(key=lambda item: -((loads.get(item["id"]) or _NOTHING)[key] or 0))

    def rows() -> str:
        if not items:
            where = f"project {project}" if project is not None else "any project"
            session.note(f"No pending or running jobs in {where}.")
            return ""
        lines = [_used(item, loads.get(item["id"]) or _NOTHING) for item in items]
        return fit_table(session, _USED, lines, _JOBS, right=_NUMBERS)

    show(session, [{**item, "load": loads.get(item["id"])} for item in items], rows)


_KEYS: dict[str, Literal["gpuPercent", "cpuCores", "memoryBytes"]] = {
    "gpu": "gpuPercent",
    "cpu": "cpuCores",
    "memory": "memoryBytes",
}
_NOTHING: WorkloadLoad = {
    "id": "",
    "cpuCores": None,
    "memoryBytes": None,
    "gpuPercent": None,
    "gpuMemoryBytes": None,
}
_NUMBERS = ("GPUS", "GPU%", "GPU-MEM", "CPU%", "MEM")
_USED = ("NAME", "PROJECT", "STATUS", *_NUMBERS, "NODES")
_OLDER = ("NAME", "PROJECT", "STATUS", "GPUS", "GPU MEMORY", "USED", "CPU", "MEMORY", "NODES")
_JOBS = Columns(
    ("NODES", "PROJECT", "GPU MEMORY", "CPU"),
    whole=("STATUS", "GPUS", "GPU MEMORY", "USED", "CPU", "MEMORY", *_NUMBERS),
)


def _used(item: WorkloadItem, load: WorkloadLoad) -> list[str]:
    has = item["allocatedResources"]
    cores, busy = load["cpuCores"], load["gpuPercent"]
    return [
        item["name"],
        item["projectName"],
        item["status"],
        show_gpus(workload_tables.allocated(item)),
        "-" if busy is None else f"{busy:.0f}",
        _of(load["gpuMemoryBytes"], has.get("gpuMemory")),
        "-" if cores is None else f"{cores * 100:.0f}",
        _of(load["memoryBytes"], has.get("cpuMemory")),
        ",".join(item.get("nodes") or []),
    ]


def _of(used_now: int | None, requested: str | None) -> str:
    """Used/requested: `6.2/16Gi`, `610Mi/16Gi`; `-` if not measured."""
    if used_now is None:
        return "-"
    text = show_bytes(used_now)
    if not requested:
        return text
    unit = requested[-2:]
    return f"{text.removesuffix(unit)}/{requested}"


def _allocated(item: WorkloadItem) -> list[str]:
    """A row of the first edition's table: allocated resources, and used GPU memory."""
    has = item["allocatedResources"]
    return [
        item["name"],
        item["projectName"],
        item["status"],
        show_gpus(workload_tables.allocated(item)),
        has.get("gpuMemory") or "0",
        used(item),
        f"{has.get('cpu') or 0.0:g}",
        has.get("cpuMemory") or "0",
        ",".join(item.get("nodes") or []),
    ]
