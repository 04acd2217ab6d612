"""`project describe` and `department describe`: a project or department in detail."""

from __future__ import annotations

from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.organization import quotas
from pliant.cli.output.amounts import show_bytes, show_duration, show_gpus
from pliant.cli.output.formats import output_options, show
from pliant.cli.output.tables import table
from pliant.cli.session import Session, pass_session
from pliant.client.errors import NotFound


@click.command("describe", cls=Command, short_help="Show projects in detail.")
@click.argument("names", nargs=-1, required=True)
@output_options
@pass_session
def project(session: Session, names: tuple[str, ...]) -> None:
    """Show projects in detail: quota, fair share and usage in each node pool."""
    _describe(session, "project", list(session.client.projects()), names)


@click.command("describe", cls=Command, short_help="Show departments in detail.")
@click.argument("names", nargs=-1, required=True)
@output_options
@pass_session
def department(session: Session, names: tuple[str, ...]) -> None:
    """Show departments in detail: quota, fair share and usage in each node pool."""
    _describe(session, "department", list(session.client.departments()), names)


def _describe(session: Session, what: str, units: list[Any], names: tuple[str, ...]) -> None:
    known = {unit["name"]: unit for unit in units}
    for name in names:
        if name not in known:
            there_are = f"There are: {', '.join(sorted(known))}."
            raise NotFound(f"{what.capitalize()} {name} does not exist.", there_are)
    chosen = [known[name] for name in names]
    show(session, chosen, lambda: "\n\n".join(_block(unit, session.headers) for unit in chosen))


def _block(unit: Any, headers: bool) -> str:
    rules = unit.get("schedulingRules") or {}
    types = unit.get("nodeTypes") or {}
    values = [
        ("NAME", unit["name"]),
        ("DEPARTMENT", unit.get("departmentName") or "-"),
        ("DESCRIPTION", unit.get("description") or "-"),
        ("GPU QUOTA", show_gpus(quotas.quota(unit)) + (" (derived)" if unit["quotaDerived"] else "")),
        ("ALLOCATED GPUS", show_gpus(quotas.allocated(unit))),
        ("OVER QUOTA", show_gpus(unit.get("overQuotaGpus"))),
        ("FAIR SHARE", show_gpus(unit.get("fairShareGpus"))),
        ("DEFAULT NODE POOLS", ", ".join(unit.get("defaultNodePools") or []) or "-"),
        ("INTERACTIVE NODE TYPES", ", ".join(types.get("workspace") or []) or "-"),
        ("TRAINING NODE TYPES", ", ".join(types.get("training") or []) or "-"),
        ("INTERACTIVE LIMIT", _time(rules.get("interactiveJobTimeLimitSeconds"))),
        ("TRAINING LIMIT", _time(rules.get("trainingJobTimeLimitSeconds"))),
    ]
    text = "\n".join(f"{label}: {value}" for label, value in values)
    if broken := quotas.overpromised([unit]):
        text += "\n" + "\n".join(f"OVERPROMISED: {it}" for it in broken)
    others = _others(unit, headers)
    return f"{text}\n\nNode pools:\n{_pools(unit, headers)}" + (others and f"\n\nCPU and memory:\n{others}")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else show_duration(seconds)


_HEADER = (
    "POOL",
    "QUOTA",
    "LIMIT",
    "WEIGHT",
    "RANK",
    "ALLOCATED",
    "NON-PREEMPTIBLE",
    "REQUESTED",
    "FAIR SHARE",
    "PAST USE",
    "RECLAIM MIN RUNTIME",
    "PREEMPT MIN RUNTIME",
)


def _pools(unit: Any, headers: bool) -> str:
    uses = {use["nodePoolName"]: use for use in (unit.get("status") or {}).get("nodePoolQuotaStatuses") or []}
    rows = []
    for pool in unit.get("resources") or []:
        name, gpu = pool["nodePool"].get("name") or "", pool["gpu"]
        use = uses.get(name) or {}
        rows.append(
            [
                name,
                show_gpus(gpu.get("deserved")),
                "-" if gpu.get("limit") is None else show_gpus(gpu["limit"]),
                "-" if gpu.get("overQuotaWeight") is None else f"{gpu['overQuotaWeight']:g}",
                pool.get("priority") or "-",
                *(
                    show_gpus((use.get(part) or {}).get("gpu"))
                    for part in ("allocated", "allocatedNonPreemptible", "requested")
                ),
                show_gpus(use.get("fairShareGpus")),
                past_use(use),
                _time(pool.get("reclaimMinRuntimeSeconds")),
                _time(pool.get("preemptMinRuntimeSeconds")),
            ]
        )
    return table(_HEADER, rows, headers=headers)


def _others(unit: Any, headers: bool) -> str:
    """A table of CPU and memory for the pools with a CPU or memory quota or limit; "" if there are none."""
    uses = {use["nodePoolName"]: use for use in (unit.get("status") or {}).get("nodePoolQuotaStatuses") or []}
    rows = []
    for pool in unit.get("resources") or []:
        name = pool["nodePool"].get("name") or ""
        cpu, memory = pool.get("cpu") or {}, pool.get("memory") or {}
        had = (uses.get(name) or {}).get("allocated") or {}
        said = [cpu.get("deserved"), cpu.get("limit"), memory.get("deserved"), memory.get("limit")]
        if any(value is not None for value in said):
            cores = [_cores(value) for value in (*said[:2], had.get("cpu"))]
            amounts = [_megabytes(value) for value in (*said[2:], had.get("memory"))]
            rows.append([name, *cores, *amounts])
    header = ("POOL", "CPU QUOTA", "CPU LIMIT", "CPUS", "MEMORY QUOTA", "MEMORY LIMIT", "MEMORY")
    return table(header, rows, headers=headers) if rows else ""


def _cores(millicores: float | None) -> str:
    return "-" if millicores is None else f"{millicores / 1000:g}"


def _megabytes(megabytes: float | None) -> str:
    """500M or 64G for whole MB, else in Mi or Gi, as it was probably typed; '-' for None."""
    if megabytes is None:
        return "-"
    if megabytes != int(megabytes) or not megabytes:
        return show_bytes(megabytes * 10**6)
    return f"{megabytes:.0f}M" if megabytes % 1000 else f"{megabytes / 1000:.0f}G"


def past_use(use: Any) -> str:
    """The past GPU hours used in the pool, and their share of the pool's GPU time; '-' for none."""
    hours = use.get("pastUseGpuHours")
    return f"{hours:.2f}h ({use['pastUseShare'] * 100:.1f}%)" if hours else "-"
