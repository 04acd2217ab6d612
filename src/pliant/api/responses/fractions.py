"""Renders GPU fractions: how each is enforced, what it may use and what it uses."""

from collections.abc import Mapping
from typing import Any

from pliant.control.board.view import WorkloadView
from pliant.control.fractions import How, TaskUse
from pliant.model.workload import AttemptId
from pliant.wire.workload import GpuShare

Item = dict[str, Any]
Uses = Mapping[AttemptId, TaskUse]


def shares_of(view: WorkloadView, uses: Uses) -> list[GpuShare]:
    """The GPU fractions of a workload's live tasks, as the node saw them last."""
    return [
        {
            "workload": view.workload.name,
            "pod": f"{view.workload.name}-{task.name}",
            "gpu": part.gpu,
            "limitBytes": part.limit,
            "requestBytes": part.request,
            "usedBytes": part.used,
            "processes": part.processes,
            "refused": use.refused,
            "enforcement": use.enforcement.how.value,
            "why": use.enforcement.why,
            "trouble": use.trouble,
        }
        for task in view.tasks
        if (use := uses.get(AttemptId(task.workload, task.name, task.attempt))) is not None
        for part in use.parts
    ]


def fraction_of(view: WorkloadView, uses: Uses) -> str | None:
    """How its fractions are enforced; None if it has none or holds none. The weakest enforcement counts."""
    if not any(group.request.shared for group in view.workload.groups):
        return None
    found = [
        use
        for task in view.tasks
        if (use := uses.get(AttemptId(task.workload, task.name, task.attempt))) is not None
    ]
    if not found:
        return How.SCHEDULED.value if view.occupied else None
    order = list(How)
    weakest = max(found, key=lambda use: order.index(use.enforcement.how))
    troubles = dict.fromkeys(use.trouble for use in found if use.trouble)
    return "; ".join((weakest.enforcement.text, *troubles))
