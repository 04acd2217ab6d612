"""The tables of workloads: eleven columns in the first edition, six or seven in the second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

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
    """The items sorted by project, name and time of creation."""
    return sorted(items, key=lambda item: (item["projectName"], item["name"], item["createdAt"]))


def collapsed(items: Sequence[WorkloadItem]) -> list[WorkloadItem]:
    """The items with one entry for all jobs of an array, at the position of its first job."""
    found: list[WorkloadItem] = []
    arrays: dict[str, list[WorkloadItem]] = {}
    for item in items:
        place = item.get("array")
        if place is None:
            found.append(item)
            continue
        if place["id"] not in arrays:
            found.append(item)
        arrays.setdefault(place["id"], []).append(item)
    return [
        _array(arrays[place["id"]]) if (place := item.get("array")) is not None else item for item in found
    ]


def _array(items: list[WorkloadItem]) -> WorkloadItem:
    """One entry for all jobs of an array; amounts are summed."""
    first = items[0]
    if len(items) == 1 or (place := first["array"]) is None:
        return first
    states = Counter(item["status"].lower() for item in items)
    nodes = sorted({item["node"] for item in items if item["node"]})
    gpus = sum(allocated(item) for item in items)
    asked = dict(first["workloadRequestedResources"])
    if (gpu := first["workloadRequestedResources"]["gpu"]) is not None:
        each = [item["workloadRequestedResources"]["gpu"] for item in items]
        asked["gpu"] = {**gpu, "request": sum((it or gpu)["request"] or 0 for it in each)}
    whole: Any = {
        **first,
        "name": place["name"],
        "status": ", ".join(f"{count} {state}" for state, count in states.items()),
        "phase": first["phase"] if len({item["phase"] for item in items}) == 1 else "Running",
        "node": nodes[0] if len(nodes) == 1 else "<multiple>" if nodes else "",
        "runningPods": sum(item["runningPods"] for item in items),
        "pendingPods": sum(item["pendingPods"] for item in items),
        "allocatedResources": {**first["allocatedResources"], "gpu": gpus},
        "workloadRequestedResources": asked,
        "reason": None,
    }
    return cast("WorkloadItem", whole)


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
        preemptible(item).capitalize(),
        pods(item),
        show_gpus(allocated(item)),
    ]


def preemptible(item: WorkloadItem) -> str:
    """Whether other workloads may take from it: yes, partly (down to its minimum) or no."""
    if item.get("preemptible"):
        return "yes"
    return "partly" if item.get("preemptibility") == "semi-preemptible" else "no"


def all_row(item: WorkloadItem) -> list[str]:
    row = typed_row(item)
    return [*row[:4], *row[5:]]


WIDE = ("Priority", "Node Pools", "Node", "Reason")


def wide(item: WorkloadItem) -> list[str]:
    """The cells that -o wide adds to each row, in the order of WIDE."""
    reason = item.get("reason")
    pools = item.get("currentNodePools") or item.get("requestedNodePools") or []
    return [
        item.get("priorityClassName") or str(item.get("priority", "")),
        ",".join(pools),
        item.get("node") or "",
        reason["message"] if reason else "",
    ]


def workers(item: WorkloadItem) -> str:
    """The number of workers that its job reports; "" if it reports none or does not run."""
    said = item["progress"]
    return str(said["world"]) if said is not None and item["runningPods"] else ""


def allocated(item: WorkloadItem) -> float:
    """GPUs that its tasks occupy now."""
    return item["allocatedResources"]["gpu"]


def requested(item: WorkloadItem) -> str:
    """What it requested: GPUs, or GPU memory as it was typed."""
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
    """`running/requested`: 1/1, or 2/1-3 if the number may vary."""
    wanted = item["requestedPods"]
    bounds = f"{wanted['min']}-{wanted['max']}" if wanted["min"] != wanted["max"] else wanted["number"]
    return f"{item['runningPods']}/{bounds}"
