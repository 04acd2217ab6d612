"""What the commands of projects and departments share: quota options, and the request bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from pliant.cli.output.amounts import counted_gpus, duration, memory, number, show_gpus, whole
from pliant.cli.output.formats import structured
from pliant.cli.session import Session

_Function = TypeVar("_Function", bound=Callable[..., Any])

DEFAULT_POOL = "default"
OVERPROMISED = "*"
"""Marks a quota if the quotas of its pool or department add up to more than there is."""
_KEYS = (
    "nodepool, gpu-deserved, gpu-limit, gpu-weight, cpu-deserved, cpu-limit, "
    "memory-deserved, memory-limit, priority, reclaim-min-runtime, preempt-min-runtime"
)
_UNBOUNDED = ("-1", "none", "unlimited")
_RUNTIMES = (
    ("reclaim-min-runtime", "reclaimMinRuntimeSeconds"),
    ("preempt-min-runtime", "preemptMinRuntimeSeconds"),
)


def quota_options(function: _Function) -> _Function:
    for decorate in reversed(
        (
            click.option("--quota", metavar="N", help="Guaranteed GPUs in node pool default."),
            click.option("--limit", metavar="N", help="Maximum GPUs, over-quota included; -1: no limit."),
            click.option(
                "--weight", metavar="N", help="Over-quota weight: its share of idle GPUs; none: its quota."
            ),
            click.option("--rank", metavar="RANK", help="Priority: very-low ... very-high, or a number."),
            click.option(
                "--reclaim-min-runtime",
                metavar="TIME",
                help="Minimum runtime before other projects may reclaim GPUs; none: that of the level above.",
            ),
            click.option(
                "--preempt-min-runtime",
                metavar="TIME",
                help="Minimum runtime before a higher priority may preempt; none: that of the level above.",
            ),
            click.option(
                "--resources",
                multiple=True,
                metavar="K=V,...",
                help="For a node pool (repeatable): nodepool=NAME,gpu-deserved=N,gpu-limit=N,priority=RANK,"
                "cpu-limit=MILLICORES,memory-limit=64G.",
            ),
            click.option("--description", metavar="TEXT", help="Description."),
            click.option(
                "--interactive-limit",
                metavar="TIME",
                help="Maximum runtime of a workspace, e.g. 8h; none: no limit.",
            ),
            click.option(
                "--training-limit", metavar="TIME", help="Maximum runtime of a training; none: no limit."
            ),
            click.option(
                "--idle-limit",
                metavar="TIME",
                help="Suspend a job after its GPUs were idle for this time, e.g. 30m.",
            ),
        )
    ):
        function = decorate(function)
    return function


def body(given: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a create or update: only the fields that the options name. Raises UsageError."""
    made: dict[str, Any] = {}
    resources = [_entry(text) for text in given["resources"]]
    short = _short(given)
    if short:
        if any(entry["nodePool"]["name"] == DEFAULT_POOL for entry in resources):
            raise click.UsageError(
                "--quota, --limit, --weight, --rank and --resources both set pool `default`; use one."
            )
        resources.insert(0, {"nodePool": {"name": DEFAULT_POOL}, **short})
    if resources:
        made["resources"] = resources
    if given["description"] is not None:
        made["description"] = given["description"]
    rules: dict[str, int | None] = {}
    for flag, fields in (
        ("interactive_limit", ("interactiveJobTimeLimitSeconds",)),
        ("training_limit", ("trainingJobTimeLimitSeconds",)),
        (
            "idle_limit",
            (
                "interactiveJobMaxIdleDurationSeconds",
                "interactiveJobPreemptIdleDurationSeconds",
                "trainingJobMaxIdleDurationSeconds",
            ),
        ),
    ):
        if given[flag] is not None:
            rules |= dict.fromkeys(fields, _limit(given[flag], f"--{flag.replace('_', '-')}"))
    if rules:
        made["schedulingRules"] = rules
    return made


def _short(given: Mapping[str, Any]) -> dict[str, Any]:
    gpu: dict[str, Any] = {}
    if given["quota"] is not None:
        gpu["deserved"] = amount(given["quota"], "--quota")
    if given["limit"] is not None:
        gpu["limit"] = bounded(given["limit"], "--limit")
    if given["weight"] is not None:
        gpu["overQuotaWeight"] = bounded(given["weight"], "--weight")
    _ordered(gpu, "--quota", "--limit")
    entry: dict[str, Any] = {"gpu": gpu} if gpu else {}
    if given["rank"] is not None:
        entry["priority"] = given["rank"]
    for word, field in _RUNTIMES:
        if (text := given[word.replace("-", "_")]) is not None:
            entry[field] = _runtime(text, f"--{word}")
    return entry


def _runtime(text: str, flag: str) -> float | int | None:
    """Seconds; None for "none", which means the value of the level above."""
    return None if text == "none" else whole(duration(text, flag))


def amount(text: str, flag: str) -> float | int:
    return whole(number(text, flag, "2 or 0.5"))


def bounded(text: str, flag: str) -> float | int | None:
    """A number; None (no bound) for -1, none and unlimited."""
    return None if text in _UNBOUNDED else amount(text, flag)


def _cores(text: str, flag: str) -> float | int | None:
    """Millicores: 8000, 8000m; None for no bound."""
    return (
        None
        if text in _UNBOUNDED
        else whole(number(text.removesuffix("m"), flag, "8000, in millicores, which is 8 cores"))
    )


def _megabytes(text: str, flag: str) -> float | int | None:
    """MB: 64000, 64G, 64Gi; None for no bound."""
    if text in _UNBOUNDED:
        return None
    if text.lower().strip("0123456789.") == "":
        return amount(text, flag)
    return whole(memory(text, flag) / 10**6)


_BOUNDS = {"gpu": bounded, "cpu": _cores, "memory": _megabytes}


def _ordered(part: Mapping[str, Any], low: str, high: str) -> None:
    deserved, limit = part.get("deserved"), part.get("limit")
    if deserved is not None and limit is not None and limit < deserved:
        raise click.UsageError(f"{high} {limit} is below {low} {deserved}.")


def _limit(text: str, flag: str) -> int | None:
    if text in ("none", "0"):
        return None
    seconds = round(duration(text, flag))
    if seconds < 1:
        raise click.UsageError(f"{flag} {text}: at least one second.")
    return seconds


def _entry(text: str) -> dict[str, Any]:
    """'nodepool=a,gpu-deserved=2,...' as an entry of `resources`. Raises UsageError."""
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key in values:
            raise click.UsageError(
                f"--resources {text}: {key} is given twice; use one --resources for each node pool."
            )
        if not equals or key not in _KEYS.split(", "):
            raise click.UsageError(
                f"--resources {text}: {part.strip()!r} is invalid; use the fields {_KEYS}."
            )
        values[key] = value
    values.setdefault("nodepool", "default")
    entry: dict[str, Any] = {"nodePool": {"name": values["nodepool"]}}
    for resource in ("gpu", "cpu", "memory"):
        part_of: dict[str, Any] = {}
        if (deserved := values.get(f"{resource}-deserved")) is not None:
            read = amount if resource == "gpu" else _BOUNDS[resource]
            part_of["deserved"] = read(deserved, f"{resource}-deserved")
        if (limit := values.get(f"{resource}-limit")) is not None:
            part_of["limit"] = _BOUNDS[resource](limit, f"{resource}-limit")
        if resource == "gpu" and (weight := values.get("gpu-weight")) is not None:
            part_of["overQuotaWeight"] = bounded(weight, "gpu-weight")
        _ordered(part_of, f"{resource}-deserved", f"{resource}-limit")
        if part_of:
            entry[resource] = part_of | ({"units": "MB"} if resource == "memory" else {})
    if "priority" in values:
        entry["priority"] = values["priority"]
    for word, field in _RUNTIMES:
        if word in values:
            entry[field] = _runtime(values[word], word)
    return entry


def quota(unit: Mapping[str, Any]) -> float:
    """GPU quota of a project or department, summed over all pools."""
    return float(sum(pool["gpu"].get("deserved") or 0.0 for pool in unit.get("resources") or []))


def allocated(unit: Mapping[str, Any]) -> float:
    """Allocated GPUs, summed over all pools."""
    pools: Sequence[Mapping[str, Any]] = (unit.get("status") or {}).get("nodePoolQuotaStatuses") or []
    return float(sum(pool["allocated"]["gpu"] for pool in pools))


def past_hours(unit: Mapping[str, Any]) -> str:
    """GPU hours used in the past, where older use counts less, summed over all pools; '-' for none."""
    pools: Sequence[Mapping[str, Any]] = (unit.get("status") or {}).get("nodePoolQuotaStatuses") or []
    hours = sum(pool.get("pastUseGpuHours") or 0.0 for pool in pools)
    return f"{hours:.2f}h" if hours else "-"


def shown(unit: Any) -> str:
    """Its GPU quota, with the mark OVERPROMISED if that applies."""
    mark = OVERPROMISED if (unit.get("status") or {}).get("overpromised") else ""
    return show_gpus(quota(unit)) + mark


def overpromised(units: Iterable[Any]) -> list[str]:
    """A sentence for each pool and department whose quotas add up to more than there is."""
    found = (it for unit in units for it in (unit.get("status") or {}).get("overpromised") or [])
    return list(dict.fromkeys(map(_sentence, found)))


def _sentence(it: Any) -> str:
    promised, has, pool = counted_gpus(it["promisedGpus"]), counted_gpus(it["gpus"]), it["nodePoolName"]
    if it["departmentName"] is None:
        return f"The quotas of node pool {pool} add up to {promised}; its nodes have {has}."
    return (
        f"The quotas in department {it['departmentName']} add up to {promised} in node pool {pool}; "
        f"the department's quota is {has}."
    )


def footnote(units: Iterable[Any]) -> str:
    """The footnote of a list with marked quotas; "" if none is marked."""
    return "".join(f"\n{OVERPROMISED} {text}" for text in overpromised(units))


def create(session: Session, kind: str, body: Mapping[str, Any]) -> None:
    """Create a unit; `kind` is `project` or `department`."""
    unit = session.client.create_unit(f"{kind}s", body)
    _told(session, unit, f"{kind.capitalize()} {unit['name']} created.")


def update(session: Session, kind: str, name: str, body: Mapping[str, Any]) -> None:
    if not body:
        raise click.UsageError("Specify what to change, for example --quota 3.")
    unit = session.client.update_unit(f"{kind}s", name, body)
    _told(session, unit, f"{kind.capitalize()} {name} updated.")


def delete(session: Session, kind: str, names: Iterable[str]) -> None:
    for name in names:
        session.client.delete_unit(f"{kind}s", name)
        click.echo(f"{kind.capitalize()} {name} deleted.")


def _told(session: Session, unit: Any, done: str) -> None:
    """Print the result, and a note for each pool or department whose quotas add up to more than there is."""
    if not structured(session, unit):
        click.echo(done)
        for text in overpromised([unit]):
            session.note(f"Note: {text}")
