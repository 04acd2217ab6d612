"""Whether what a workload asks for makes sense. One that does not is set aside."""

from pliant.model.quantity import GPU
from pliant.model.reason import SetAside
from pliant.model.workload import TaskGroup, Workload


def flaw(workload: Workload) -> SetAside | None:
    """Why what a workload asks for makes no sense; None if it does."""
    if not workload.groups:
        return SetAside("no-groups")
    if len(workload.groups) == 1:
        return _group_flaw(workload.groups[0])
    names = {group.name for group in workload.groups}
    if len(names) < len(workload.groups):
        return SetAside("same-names")
    return next((found for group in workload.groups if (found := _group_flaw(group))), None)


def _group_flaw(group: TaskGroup) -> SetAside | None:
    if group.min < 0 or group.wanted < 0:
        return SetAside("negative-tasks", group.name, value=min(group.min, group.wanted))
    if group.min > group.max:
        return SetAside("task-counts", group.name, value=group.min, most=group.max)
    request = group.request
    if min(request.devices, request.gpu_memory, request.cpu, request.memory) < 0:
        for what in ("devices", "gpu_memory", "cpu", "memory"):
            if getattr(request, what) < 0:
                return SetAside("negative-request", group.name, what, getattr(request, what))
    if request.devices and not request.gpu_memory and not 0 < request.portion <= GPU:
        return SetAside("portion", group.name, value=request.portion)
    return None
