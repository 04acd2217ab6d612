"""The report of a simulation as one document: the same trace, policy and seed give the same bytes."""

from collections.abc import Iterable, Sequence
from typing import Any

from pliant.model.quantity import GPU
from pliant.sim.meter import Meter, Usage, Waited
from pliant.sim.simulation import Progress
from pliant.sim.trace import Trace

HOUR = 3_600_000
SIZES = ((GPU, "up to 1 GPU"), (4 * GPU, "2 to 4 GPUs"), (8 * GPU, "5 to 8 GPUs"))
LARGER = "more than 8 GPUs"

Document = dict[str, Any]


def size_of(gpus: int) -> str:
    return next((name for most, name in SIZES if gpus <= most), LARGER)


def report(trace: Trace, progress: Progress, inputs: Document) -> Document:
    """Times are in seconds, GPUs and GPU-hours have three decimals, shares are in percent."""
    meter = progress.meter
    jobs = list(meter.jobs.values())
    return {
        "trace": trace.name,
        "inputs": inputs,
        "warnings": list(trace.warnings),
        "jobs": len(jobs),
        "started": sum(1 for job in jobs if job.started is not None),
        "ended": sum(1 for job in jobs if job.ended is not None),
        "seconds": (meter.now - meter.began) // 1000,
        "allocation": {
            "gpus": _thousandths(meter.capacity),
            "meanPercent": _percent(meter.allocated_time, meter.capacity_time),
            "ofWhatWasAskedPercent": _percent(min(meter.allocated_time, meter.asked_time), meter.asked_time),
            "brokenPercent": _percent(sum(it.broken for it in meter.samples), _capacity(meter)),
            "strandedPercent": _percent(sum(it.stranded for it in meter.samples), _capacity(meter)),
        },
        "waiting": {
            "all": _waits(jobs),
            "projects": {name: _waits(of) for name, of in _grouped(jobs, lambda job: job.project)},
            "sizes": {name: _waits(of) for name, of in _grouped(jobs, lambda job: size_of(job.gpus))},
        },
        "fairness": {
            "jainMean": _mean([index for _, index in meter.jain], 1_000_000),
            "jainLowest": min((index for _, index in meter.jain), default=1_000_000) / 1_000_000,
            "windows": len(meter.jain),
            "projects": {name: _usage(it) for name, it in sorted(meter.usages.items())},
        },
        "disruption": {
            "decisions": dict(sorted(meter.verbs.items())),
            "gpusTaken": {name: _thousandths(gpus) for name, gpus in sorted(meter.taken.items())},
            "gpuHoursLost": _thousandths(meter.lost_time // HOUR),
        },
        "samples": [
            {
                "second": (it.at - meter.began) // 1000,
                "gpus": _thousandths(it.capacity),
                "allocated": _thousandths(it.allocated),
                "asked": _thousandths(it.asked),
                "broken": _thousandths(it.broken),
                "stranded": _thousandths(it.stranded),
                "waiting": it.waiting,
            }
            for it in meter.samples
        ],
        "jain": [
            {"second": (at - meter.began) // 1000, "index": index / 1_000_000} for at, index in meter.jain
        ],
    }


def _usage(it: Usage) -> Document:
    return {
        "quota": "unlimited" if it.quota < 0 else _thousandths(it.quota),
        "gpuHours": _thousandths(it.had // HOUR),
        "entitledGpuHours": _thousandths(it.entitled // HOUR),
        "belowQuotaSeconds": it.below // 1000,
        "timesBelow": len(it.given_back),
        "longestBelowSeconds": max(it.given_back, default=0) // 1000,
    }


def _waits(jobs: Sequence[Waited]) -> Document:
    """Waiting times of the jobs that started, and the number of jobs that never started."""
    times = sorted(job.started - job.submitted for job in jobs if job.started is not None)
    if not times:
        return {
            "jobs": len(jobs),
            "neverStarted": len(jobs),
            "mean": None,
            "p50": None,
            "p95": None,
            "max": None,
        }
    return {
        "jobs": len(jobs),
        "neverStarted": len(jobs) - len(times),
        "mean": _seconds(sum(times) // len(times)),
        "p50": _seconds(times[(len(times) - 1) // 2]),
        "p95": _seconds(times[(len(times) - 1) * 95 // 100]),
        "max": _seconds(times[-1]),
    }


def _grouped(jobs: Sequence[Waited], key: Any) -> Iterable[tuple[str, list[Waited]]]:
    found: dict[str, list[Waited]] = {}
    for job in jobs:
        found.setdefault(key(job), []).append(job)
    return sorted(found.items())


def _capacity(meter: Meter) -> int:
    return sum(it.capacity for it in meter.samples)


def _percent(part: int, whole: int) -> float:
    return round(part * 100 / whole, 3) if whole else 0.0


def _thousandths(milli: int) -> float:
    return milli / 1000


def _seconds(ms: int) -> float:
    return ms / 1000


def _mean(numbers: Sequence[int], whole: int) -> float:
    return round(sum(numbers) / len(numbers) / whole, 6) if numbers else 1.0
