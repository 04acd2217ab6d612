"""The tables of workloads: eleven columns of the first edition, six and seven of the second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant.cli.output.amounts import show_age, show_gpus

if TYPE_CHECKING:
    from pliant.wire.workload import WorkloadItem

JOBS = (
    "NAME",
    "STATUS",
    "AGE",
    "NODE",
    "IMAGE",
    "TYPE",
    "PROJECT",
    "USER",
    "GPUs Allocated (Requested)",
    "PODs Running (Pending)",
    "SERVICE URL(S)",
)
TYPED = (
    "Workload",
    "Type",
    "Status",
    "Project",
    "Preemptible",
    "Running/Requested Pods",
    "GPU Allocation",
)
ALL = ("Workload", "Type", "Status", "Project", "Running/Req. Pods", "GPU Alloc.")


def ordered(items: Sequence[WorkloadItem]) -> list[WorkloadItem]:
    """By project, then name."""
    return sorted(items, key=lambda item: (item["projectName"], item["name"], item["createdAt"]))


def job_row(item: WorkloadItem, now: float | None = None) -> list[str]:
    return [
        item["name"],
        item["status"],
        show_age(item["createdAt"], time.time() if now is None else now),
        item.get("node") or "",
        ", ".join(item.get("images") or ["-"]),
        item.get("jobType") or "",
        item["projectName"],
        item.get("submittedBy") or "",
        gpus(item),
        f"{item.get('runningPods', 0)} ({item.get('pendingPods', 0)})",
        ", ".join(item.get("urls") or []),
    ]


def typed_row(item: WorkloadItem) -> list[str]:
    return [
        item["name"],
        item["type"],
        item["phase"],
        item["projectName"],
        "Yes" if item.get("preemptible") else "No",
        pods(item),
        show_gpus(allocated(item)),
    ]


def all_row(item: WorkloadItem) -> list[str]:
    row = typed_row(item)
    return [*row[:4], *row[5:]]


WIDE = ("Priority", "Node Pools", "Node", "Reason")


def wide(item: WorkloadItem) -> list[str]:
    """What -o wide adds to each row."""
    reason = item.get("reason")
    pools = item.get("currentNodePools") or item.get("requestedNodePools") or []
    return [
        item.get("priorityClassName") or str(item.get("priority", "")),
        ",".join(pools),
        item.get("node") or "",
        reason["message"] if reason else "",
    ]


def allocated(item: WorkloadItem) -> float:
    """GPUs that its tasks really occupy now."""
    return item["allocatedResources"]["gpu"]


def requested(item: WorkloadItem) -> str:
    """What it asked for: GPUs, or memory of a GPU as it was written."""
    resources = item["workloadRequestedResources"]
    gpu, memory = resources["gpu"], resources["gpuMemory"]
    if resources["gpuRequestType"] == "memory" and memory is not None:
        return str(memory["request"])
    return show_gpus(gpu["request"] if gpu is not None else None)


def gpus(item: WorkloadItem) -> str:
    """`allocated (requested)`; `-` once it has ended and holds nothing."""
    if item["phase"] in ("Completed", "Failed") and not allocated(item):
        return "-"
    return f"{show_gpus(allocated(item))} ({requested(item)})"


def pods(item: WorkloadItem) -> str:
    """`running/requested`, as 1/1, or 2/1-3 where the number may vary."""
    wanted = item["requestedPods"]
    bounds = f"{wanted['min']}-{wanted['max']}" if wanted["min"] != wanted["max"] else wanted["number"]
    return f"{item['runningPods']}/{bounds}"
