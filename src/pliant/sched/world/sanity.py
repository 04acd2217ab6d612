"""Checks what a workload asks for (if it makes no sense, it is set aside) and what is claimed of a node."""

from pliant.model.quantity import GPU
from pliant.model.reason import SetAside
from pliant.model.workload import TaskGroup, Workload
from pliant.sched.world.nodes import NodeState


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
    if request.devices < 0 or request.gpu_memory < 0 or request.cpu < 0 or request.memory < 0:
        for what in ("devices", "gpu_memory", "cpu", "memory"):
            if getattr(request, what) < 0:
                return SetAside("negative-request", group.name, what, getattr(request, what))
    if request.devices and not request.gpu_memory and not 0 < request.portion <= GPU:
        return SetAside("portion", group.name, value=request.portion)
    return None


def overfull(node: NodeState) -> str:
    """A sentence naming what is claimed beyond its size or by several owners, or ''."""
    name = node.row.name
    for device in node.devices.values():
        if device.claimed > GPU or device.claimed_memory > device.gpu.memory:
            return (
                f"GPU {device.gpu.uuid} of node {name} is over-full: {device.claimed} of {GPU} "
                f"thousandths and {device.claimed_memory} of {device.gpu.memory} bytes are claimed"
            )
        if len(device.claimed_by) > 1:
            return f"GPU {device.gpu.uuid} of node {name} is claimed by several owners"
    if node.free_cpu < 0:
        used = f"{node.claimed_cpu} of {node.row.cpu} millicores"
        return f"node {name} is over-full: {used} are claimed"
    if node.free_memory < 0:
        used = f"{node.claimed_memory} of {node.row.memory} bytes"
        return f"node {name} is over-full: {used} are claimed"
    return ""
