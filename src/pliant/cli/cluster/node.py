"""node list, label, taint, cordon, uncordon; `list nodes` and `describe node` of the first edition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from pliant.cli.lazy import Command, LazyGroup
from pliant.cli.output.amounts import show_age, show_bytes, show_gpus
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.shares import used_by_gpu
from pliant.cli.output.tables import grouped, table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound

node = LazyGroup(
    {
        "Commands": {
            "list": "pliant.cli.cluster.node:list_nodes",
            "label": "pliant.cli.cluster.marks:label",
            "taint": "pliant.cli.cluster.marks:taint",
            "cordon": "pliant.cli.cluster.node:cordon",
            "uncordon": "pliant.cli.cluster.node:uncordon",
            "drain": "pliant.cli.workloads.whatif:drain",
            "agent": "pliant.cli.cluster.agent:agent",
        }
    },
    name="node",
    help="List, show, cordon and drain nodes.",
)


def chosen(session: Session, names: Sequence[str]) -> list[Any]:
    """The named nodes (none named: all), sorted by name. Raises NotFound for an unknown name."""
    nodes: list[Any] = sorted(session.client.nodes(), key=lambda entry: entry["name"])
    present = {entry["name"] for entry in nodes}
    for name in names:
        if name not in present:
            raise NotFound(f"Node {name} does not exist.", f"There are: {', '.join(sorted(present))}.")
    return [entry for entry in nodes if not names or entry["name"] in names]


def gpu_count(entry: Any) -> int:
    return len(entry.get("gpus") or [])


def gpu_used(entry: Any) -> float:
    return float(sum(gpu["allocated"] for gpu in entry.get("gpus") or []))


def gpu_free(entry: Any) -> float:
    """Unallocated GPUs, without those that processes outside of Pliant use."""
    return float(sum(1.0 - gpu["allocated"] for gpu in entry.get("gpus") or [] if not gpu.get("foreign")))


def gpu_type(entry: Any) -> str:
    return str((entry.get("gpuInfo") or {}).get("gpuType") or "<none>") if gpu_count(entry) else "<none>"


def state(entry: Any) -> str:
    marks = [entry["status"], *(["SchedulingDisabled"] if entry.get("draining") else [])]
    return ",".join([*marks, *(["Maintenance"] if entry.get("maintenanceUntil") else [])])


def list_classic(session: Session, names: Sequence[str]) -> None:
    """Print the table of `list nodes`."""
    nodes = chosen(session, names)

    def rows() -> str:
        lines = [
            [
                entry["name"],
                state(entry),
                "<none>",
                "worker",
                f"{entry.get('cpuCores', 0):g}",
                f"{entry.get('cpuAllocated', 0):g}",
                show_bytes(entry.get("memoryBytes")),
                show_bytes(entry.get("memoryAllocated")),
                gpu_type(entry),
                str(gpu_count(entry)) if gpu_count(entry) else "-",
                show_gpus(gpu_free(entry)) if gpu_count(entry) else "-",
            ]
            for entry in nodes
        ]
        groups = (
            ("GENERAL", ("NAME", "STATUS", "IP Address", "ROLE")),
            ("CPU", ("ALLOCATABLE", "ALLOCATED")),
            ("MEMORY", ("ALLOCATABLE", "ALLOCATED")),
            ("GPU", ("TYPE", "ALLOCATABLE", "FREE")),
        )
        return grouped(groups, lines, headers=session.headers)

    show(session, nodes, rows)


@click.command("list", cls=Command)
@output_options
@pass_session
def list_nodes(session: Session) -> None:
    """List nodes with their GPUs and how much of them is allocated."""
    nodes = chosen(session, ())

    def rows() -> str:
        header = [
            "Node",
            "Status",
            "Node Pool",
            "GPU Type",
            "GPU Devices",
            "Allocated GPUs",
            "CPU",
            "CPU Memory",
        ]
        wide = session.output == "wide"
        lines = []
        for entry in nodes:
            row = [
                entry["name"],
                state(entry),
                entry.get("nodePool") or "",
                gpu_type(entry),
                str(gpu_count(entry)),
                show_gpus(gpu_used(entry)),
                f"{entry.get('cpuAllocated', 0):g}/{entry.get('cpuCores', 0):g}",
                f"{show_bytes(entry.get('memoryAllocated'))}/{show_bytes(entry.get('memoryBytes'))}",
            ]
            if wide:
                labels = entry.get("labels") or {}
                row += [
                    ",".join(f"{key}={labels[key]}" for key in sorted(labels)),
                    show_age(entry.get("createdAt")),
                ]
            lines.append(row)
        return table(
            [*header, "Labels", "Age"] if wide else header, lines, rule=True, headers=session.headers
        )

    show(session, nodes, rows)


@click.command("node", cls=Command, short_help="Show nodes in detail.")
@click.argument("names", nargs=-1)
@output_options
@pass_session
def describe(session: Session, names: tuple[str, ...]) -> None:
    """Show nodes in detail (default: all): resources, tasks, and the jobs on each GPU."""
    describe_nodes(session, names)


def describe_nodes(session: Session, names: Sequence[str]) -> None:
    nodes = chosen(session, names)

    def blocks() -> str:
        memory = used_by_gpu(session.client.workloads(None))
        return "\n\n".join(_block(entry, memory, session.headers) for entry in nodes)

    show(session, nodes, blocks)


def _block(entry: Any, memory: Mapping[str, int], headers: bool) -> str:
    labels = entry.get("labels") or {}
    values = [
        ("NAME", entry["name"]),
        ("STATUS", state(entry)),
        ("NODE POOL", entry.get("nodePool") or ""),
        ("LABELS", ", ".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>"),
        ("TAINTS", ", ".join(_taint(mark) for mark in entry.get("taints") or []) or "<none>"),
        ("SIMULATED", "yes" if entry.get("simulated") else "no"),
        ("CPU ALLOCATABLE", f"{entry.get('cpuCores', 0):g}"),
        ("CPU ALLOCATED", f"{entry.get('cpuAllocated', 0):g}"),
        ("MEMORY ALLOCATABLE", show_bytes(entry.get("memoryBytes"))),
        ("MEMORY ALLOCATED", show_bytes(entry.get("memoryAllocated"))),
        ("GPU TYPE", gpu_type(entry)),
        ("GPUS ALLOCATABLE", str(gpu_count(entry))),
        ("GPUS ALLOCATED", show_gpus(gpu_used(entry))),
    ]
    text = "\n".join(f"{label}: {value}".rstrip() for label, value in values)
    if gpu_count(entry):
        text += f"\n\n{gpu_table(entry, memory, headers=headers)}"
    return text


def _taint(mark: Any) -> str:
    value = f"={mark['value']}" if mark.get("value") else ""
    return f"{mark['key']}{value}:{mark['effect']}"


def gpu_table(entry: Any, memory: Mapping[str, int], *, headers: bool = True) -> str:
    """The table of a node's GPUs; `memory`: bytes in use by uuid, for GPUs where they are counted."""
    rows = [
        [
            str(gpu["index"]),
            show_gpus(gpu["allocated"]),
            show_bytes(gpu["memoryBytes"]),
            show_bytes(memory[gpu["uuid"]]) if gpu["uuid"] in memory else "",
            ", ".join([*(gpu.get("workloads") or []), *_others(gpu)]),
        ]
        for gpu in entry["gpus"]
    ]
    return table(("GPU", "ALLOCATED", "MEMORY", "USED", "WORKLOADS"), rows, headers=headers)


def _others(gpu: Any) -> Sequence[str]:
    """Text about each user of the GPU without a job; empty if there is none."""
    if named := gpu.get("strays"):
        return [f"{one['user']} without a job ({one['program']}, pid {one['pid']})" for one in named]
    return ["used by others"] if gpu.get("foreign") and not gpu.get("workloads") else []


@click.command("cordon", cls=Command)
@click.argument("names", nargs=-1, required=True)
@pass_session
def cordon(session: Session, names: tuple[str, ...]) -> None:
    """Mark nodes as unschedulable; running tasks continue."""
    for name in names:
        session.client.cordon(name)
        click.echo(f"Node {name} cordoned.")


@click.command("uncordon", cls=Command)
@click.argument("names", nargs=-1, required=True)
@pass_session
def uncordon(session: Session, names: tuple[str, ...]) -> None:
    """Make nodes schedulable again."""
    for name in names:
        session.client.cordon(name, on=False)
        click.echo(f"Node {name} uncordoned.")
