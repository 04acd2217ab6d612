"""The figures of a result that users compare, with their names and units."""

from typing import Any


def facts_of(found: dict[str, Any]) -> list[tuple[str, str]]:
    of, waits = found["allocation"], found["waiting"]["all"]
    fair, took = found["fairness"], found["disruption"]
    below = sum(it["belowQuotaSeconds"] for it in fair["projects"].values())
    longest = max((it["longestBelowSeconds"] for it in fair["projects"].values()), default=0)
    verbs = took["decisions"]
    return [
        ("Jobs", f"{found['jobs']}, {found['started']} started, {found['ended']} ended"),
        ("Time", f"{found['seconds'] / 3600:.2f} h"),
        ("GPUs", f"{of['gpus']:g}"),
        ("Allocated, mean", f"{of['meanPercent']:.2f} %"),
        ("Allocated of what was asked for", f"{of['ofWhatWasAskedPercent']:.2f} %"),
        ("Idle on nodes in part use", f"{of['brokenPercent']:.2f} %"),
        ("Idle without cores or memory", f"{of['strandedPercent']:.2f} %"),
        ("Waiting, mean", _time(waits["mean"])),
        ("Waiting, median", _time(waits["p50"])),
        ("Waiting, 95 %", _time(waits["p95"])),
        ("Waiting, longest", _time(waits["max"])),
        ("Jain's index, mean", f"{fair['jainMean']:.4f}"),
        ("Jain's index, lowest", f"{fair['jainLowest']:.4f}"),
        ("Projects below quota", f"{below} s in all, {longest} s at most"),
        ("Evictions", str(verbs.get("evict", 0))),
        ("Shrinks", str(verbs.get("shrink", 0))),
        ("Moves", str(verbs.get("move", 0))),
        ("Lost to restarts", f"{took['gpuHoursLost']:.2f} GPU-hours"),
    ]


def _time(seconds: float | None) -> str:
    return "no start" if seconds is None else f"{seconds:.1f} s"
