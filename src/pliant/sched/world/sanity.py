"""Whether what a workload asks for makes sense. One that does not is set aside."""

from pliant.model.quantity import GPU
from pliant.model.workload import Request, TaskGroup, Workload


def flaw(workload: Workload) -> str:
    """Why what a workload asks for makes no sense; '' if it does."""
    if not workload.groups:
        return "it has no task group"
    if len(workload.groups) == 1:
        return _group_flaw(workload.groups[0])
    names = {group.name for group in workload.groups}
    if len(names) < len(workload.groups):
        return "two of its task groups have the same name"
    return next((text for group in workload.groups if (text := _group_flaw(group))), "")


def _group_flaw(group: TaskGroup) -> str:
    if group.min < 0 or group.wanted < 0:
        return f"its task group {group.name} is to have less than no tasks"
    if group.min > group.max:
        return f"its task group {group.name} needs {group.min} tasks and may have {group.max}"
    text = _request_flaw(group.request)
    return f"each task of {group.name} asks for {text}" if text else ""


def _request_flaw(request: Request) -> str:
    if min(request.devices, request.gpu_memory, request.cpu, request.memory) < 0:
        for what in ("devices", "gpu_memory", "cpu", "memory"):
            if getattr(request, what) < 0:
                return f"{getattr(request, what)} of {what.replace('_', ' ')}"
    if request.devices and not request.gpu_memory and not 0 < request.portion <= GPU:
        return f"{request.portion} thousandths of a GPU"
    return ""
