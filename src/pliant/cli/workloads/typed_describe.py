"""`training describe` and the other typed ones: the sections of the second edition."""

from __future__ import annotations

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output import workload_tables
from pliant.cli.output.amounts import show_duration, show_gpus
from pliant.cli.output.formats import output_options, project_option, structured
from pliant.cli.output.progress import labels
from pliant.cli.output.shares import shares_table
from pliant.cli.session import Session, pass_session
from pliant.cli.submit.grouped import NoEffect
from pliant.cli.workloads.describe import command_line, events_table, explained, gathered, pods_table

PODS = 10
EVENTS = 50
"""Most pods and events in the sections; -o json has all."""


@click.command("describe", cls=Command, short_help="Show a workload in detail.")
@click.argument("name", shell_complete=workload_names)
@click.option("--type", metavar="TYPE", cls=NoEffect, expose_value=False)
@click.option("--framework", metavar="NAME", cls=NoEffect, expose_value=False)
@project_option
@output_options
@pass_session
def describe(session: Session, name: str) -> None:
    """Show a workload in detail: requested and allocated resources, pods and events."""
    item, pods, events = gathered(session, name)
    if structured(session, {**item, "pods": pods, "events": events}):
        return
    if session.output == "name":
        click.echo(item["name"])
        return
    cpu, memory = item["podsRequestedResources"]["cpu"], item["podsRequestedResources"]["cpuMemory"]
    general = [
        ("Name", item["name"]),
        ("ID", item["id"]),
        ("Type", item["type"]),
        ("Framework", item.get("distributedFramework") or ""),
        ("Status", item["phase"]),
        ("Project", item["projectName"]),
        ("Department", item.get("departmentName") or ""),
        ("Submitted by", item.get("submittedBy") or ""),
        ("Created", item["createdAt"]),
        ("Completed", item.get("completedAt") or ""),
        ("Priority", item.get("priorityClassName") or str(item.get("priority", ""))),
        ("Preemptible", workload_tables.preemptible(item).capitalize()),
        ("Elastic", "Yes" if item.get("elastic") else "No"),
        ("Image", ", ".join(item.get("images") or ["-"])),
        ("Command", command_line(item)),
        ("Running time", show_duration(item.get("totalRunningTimeSeconds"))),
        ("Pending time", show_duration(item.get("totalPendingTimeSeconds"))),
        *((label.capitalize().replace("Gpu", "GPU"), value) for label, value in explained(item)),
    ]
    compute = [
        ("GPU requested", workload_tables.requested(item)),
        ("GPU allocated", show_gpus(workload_tables.allocated(item))),
        ("GPU memory allocated", item["allocatedResources"]["gpuMemory"] or "0"),
        ("CPU cores per pod", str(cpu["request"] or "" if cpu is not None else "")),
        ("CPU memory per pod", memory["request"] or "" if memory is not None else ""),
        ("Running/Requested Pods", workload_tables.pods(item)),
        ("Node pools", ", ".join(item.get("currentNodePools") or item.get("requestedNodePools") or [])),
        ("Node type", item.get("nodeType") or ""),
        ("Node", ", ".join(item.get("nodes") or [])),
        ("Address", ", ".join(item.get("urls") or [])),
    ]
    said = item.get("progress")
    training = [(label.capitalize(), value) for label, value in labels(said)] if said else []
    sections = (("General", general), ("Compute", compute), ("Training", training))
    for title, entries in sections:
        if not entries:
            continue
        click.echo(f"{title}:")
        width = max(len(label) for label, _ in entries)
        for label, value in entries:
            if value:
                click.echo(f"  {label.ljust(width)}  {value}")
        click.echo("")
    click.echo(f"Pods:\n{pods_table(pods[:PODS], item, headers=session.headers)}")
    if shares := item.get("gpuShares"):
        click.echo(f"\nGPU shares:\n{shares_table(shares, headers=session.headers)}")
    click.echo(f"\nEvents:\n{events_table(events[-EVENTS:], headers=session.headers)}")
