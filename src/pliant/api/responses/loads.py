"""What workloads use now, where it can be measured."""

from collections.abc import Iterable, Mapping

from pliant.api.responses.fractions import Uses, shares_of
from pliant.control.board.view import WorkloadView
from pliant.control.ports import GpuLoad, Load
from pliant.model.workload import AttemptId
from pliant.wire.workload import WorkloadLoad

WHOLE = 1000  # thousandths of a GPU


def load_of(view: WorkloadView, load: Load, uses: Uses) -> WorkloadLoad:
    """Summed over its tasks; null where none of them could be measured."""
    mine = [
        found
        for task in view.tasks
        if (found := load.tasks.get(AttemptId(task.workload, task.name, task.attempt))) is not None
    ]
    cards = list(_cards(view, load.gpus))
    shares = shares_of(view, uses)
    if shares:
        gpu_memory = sum(share["usedBytes"] for share in shares)
    else:
        gpu_memory = sum(card.memory for card in cards)
    cores = [it.cpu for it in mine if it.cpu is not None]
    return {
        "id": view.workload.id,
        "cpuCores": sum(cores) / 1000 if cores else None,
        "memoryBytes": sum(it.memory for it in mine) if mine else None,
        "gpuPercent": sum(card.busy for card in cards) / len(cards) if cards else None,
        "gpuMemoryBytes": gpu_memory if shares or cards else None,
    }


def _cards(view: WorkloadView, gpus: Mapping[str, GpuLoad]) -> Iterable[GpuLoad]:
    """Loads of the GPUs that it has alone: the use of a shared GPU cannot be assigned to one task."""
    for task in view.tasks:
        for share in task.carries.shares if task.carries is not None else ():
            if share.portion == WHOLE and share.gpu in gpus:
                yield gpus[share.gpu]
