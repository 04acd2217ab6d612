"""top node, top job: how much of what there is, is taken."""

from __future__ import annotations

import click

from pliant.cli.cluster.node import chosen, gpu_count, gpu_table, gpu_used, state
from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output import workload_tables
from pliant.cli.output.amounts import show_bytes, show_gpus
from pliant.cli.output.fit import Columns, fit_groups, fit_table
from pliant.cli.output.formats import output_options, project_option, show
from pliant.cli.output.shares import used, used_by_gpu
from pliant.cli.session import Session, pass_session

top = LazyGroup(
    {
        "Commands": {
            "node": "pliant.cli.workloads.top:node",
            "nodes": "pliant.cli.workloads.top:node",
            "job": "pliant.cli.workloads.top:job",
            "jobs": "pliant.cli.workloads.top:job",
            "pods": "pliant.cli.workloads.top:job",
        }
    },
    name="top",
    help="Show what nodes and jobs use now.",
)


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


@click.command("node", cls=Command)
@click.argument("names", nargs=-1)
@click.option("-d", "--details", is_flag=True, help="Show each GPU.")
@output_options
@pass_session
def node(session: Session, names: tuple[str, ...], details: bool) -> None:
    """Capacity of nodes and how much of it is allocated."""
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


@click.command("job", cls=Command)
@click.argument("names", nargs=-1)
@click.option("-A", "--all-projects", "everywhere", is_flag=True, help="Jobs of all projects.")
@project_option
@output_options
@pass_session
def job(session: Session, names: tuple[str, ...], everywhere: bool) -> None:
    """Show what the jobs of a project use now."""
    project = None if everywhere else session.current_project
    found = [item for item in session.client.workloads(project) if not names or item["name"] in names]
    items = workload_tables.ordered(found)
    if not items and project is not None:
        session.check_project()

    def rows() -> str:
        lines = []
        for item in items:
            has = item["allocatedResources"]
            lines.append(
                [
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
            )
        header = ("NAME", "PROJECT", "STATUS", "GPUS", "GPU MEMORY", "USED", "CPU", "MEMORY", "NODES")
        return fit_table(session, header, lines, _JOBS)

    show(session, items, rows)


_JOBS = Columns(
    ("NODES", "PROJECT", "GPU MEMORY", "CPU"),
    whole=("STATUS", "GPUS", "GPU MEMORY", "USED", "CPU", "MEMORY"),
)
