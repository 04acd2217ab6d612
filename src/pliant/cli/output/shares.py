"""Tables of GPU shares: limit and use of each share, and how the limit is enforced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pliant.cli.output.amounts import show_bytes
from pliant.cli.output.tables import table

if TYPE_CHECKING:
    from pliant.wire.workload import GpuShare, WorkloadItem


def shares_table(shares: Sequence[GpuShare], *, headers: bool = True) -> str:
    """One line for each pod and GPU; problems follow below."""
    rows = [
        [
            share["pod"],
            share["gpu"],
            _exact(share["usedBytes"]),
            _exact(share["limitBytes"]),
            _exact(share["requestBytes"]),
            str(share["processes"]),
            str(share["refused"]),
            share["enforcement"],
        ]
        for share in shares
    ]
    header = ("POD", "GPU", "USED", "LIMIT", "REQUEST", "PROCESSES", "REFUSED", "HELD")
    lines = [table(header, rows, headers=headers)]
    lines += dict.fromkeys(f"{share['pod']}: {share['trouble']}" for share in shares if share["trouble"])
    return "\n".join(lines)


def used(item: WorkloadItem) -> str:
    """GPU memory that a workload uses; "" if it is not counted."""
    shares = item.get("gpuShares") or []
    return show_bytes(sum(share["usedBytes"] for share in shares)) if shares else ""


def used_by_gpu(items: Iterable[WorkloadItem]) -> dict[str, int]:
    """Bytes in use by GPU uuid, over all workloads whose use is counted."""
    found: dict[str, int] = {}
    for item in items:
        for share in item.get("gpuShares") or []:
            found[share["gpu"]] = found.get(share["gpu"], 0) + share["usedBytes"]
    return found


def _exact(amount: int) -> str:
    """Whole MiB, as nvidia-smi writes them."""
    return f"{amount >> 20}MiB"
