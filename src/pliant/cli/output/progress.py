"""The progress that a training job reports, for `describe` and for watched lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.cli.output.amounts import show_age

if TYPE_CHECKING:
    from pliant.wire.workload import Progress, WorkloadItem

WIDTH = 20
"""Characters inside a bar."""


def share(said: Progress) -> float | None:
    """Fraction of the steps that is done, 0 to 1; None if the total is unknown."""
    return min(said["step"] / said["stepsTotal"], 1.0) if said["stepsTotal"] else None


def bar(item: WorkloadItem) -> str:
    """`[########------------]  41 %  1930/4690  loss 0.312`; empty without a report."""
    said = item.get("progress")
    if said is None:
        return ""
    done = share(said)
    parts = [f"step {said['step']}"]
    if done is not None:
        full = int(done * WIDTH)
        parts = [f"[{'#' * full}{'-' * (WIDTH - full)}]", f"{int(done * 100):3d} %"]
        parts.append(f"{said['step']}/{said['stepsTotal']}")
    if said["loss"] is not None:
        parts.append(f"loss {said['loss']:.4g}")
    return "  ".join(parts)


def labels(said: Progress) -> list[tuple[str, str]]:
    """The labelled values that `describe` shows."""
    done = share(said)
    steps = f"{said['step']}" if done is None else f"{said['step']} of {said['stepsTotal']} ({done:.0%})"
    found = [
        ("STATE", f"{said['state'] or 'unknown'}, reported {show_age(said['at'])} ago"),
        ("STEPS", steps),
    ]
    if said["epochs"]:
        found.append(("EPOCH", f"{said['epoch'] + 1} of {said['epochs']}"))
    found += [("WORKERS", str(said["world"])), ("RECORDS", str(said["records"]))]
    if said["skipped"]:
        found.append(("RECORDS SET ASIDE", str(said["skipped"])))
    if said["loss"] is not None:
        found.append(("LOSS", f"{said['loss']:.6g}"))
    found.append(("GOODPUT", f"{said['goodput']:.1f} records/s"))
    times = sorted(said["stepMsBySize"].items(), key=lambda pair: int(pair[0]))
    if times:
        text = ", ".join(f"{size} worker{'' if size == '1' else 's'} {ms:.1f} ms" for size, ms in times)
        found.append(("STEP TIME", text))
    return found
