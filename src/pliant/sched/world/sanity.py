"""What contradicts itself or the rest, a sentence each. It is set aside; all else is scheduled as ever."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pliant.model.quantity import GPU
from pliant.model.reason import SetAside
from pliant.model.workload import TaskGroup, Workload
from pliant.sched.world.queue_tree import parent_of

if TYPE_CHECKING:
    from pliant.sched.world.nodes import NodeState
    from pliant.sched.world.state import World


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


def faults(world: "World") -> Iterator[str]:
    """All of it, in a fixed order. It looks at every row."""
    for key in world.strays:
        row, claim = world.tasks[key], world.claim_of(key)
        where = next(p for p in (claim, row.carries) if p is not None and not world.knows(p))
        lacks = "a GPU that it does not have" if where.node in world.nodes else "but that node is unknown"
        yield f"task {key[1]} of workload {key[0]} sits on node {where.node}, {lacks}"
    for wid in sorted({key[0] for key in world.tasks} - set(world.workloads)):
        yield f"tasks belong to workload {wid}, which is unknown"
    for wid, workload in sorted(world.workloads.items()):
        if workload.project not in world.projects:
            yield f"workload {wid} belongs to project {workload.project}, which is unknown"
        if isinstance(flaw := world.flaws.get(wid), SetAside):
            yield f"workload {wid} contradicts itself: {flaw.clause}"
    for pid, project in sorted(world.projects.items()):
        if project.department and project.department not in world.departments:
            yield f"project {pid} belongs to department {project.department}, which is unknown"
    for did, department in sorted(world.departments.items()):
        if department.parent in world.departments and parent_of(world.departments, did) is None:
            yield f"department {did} is above itself; it counts as one at the top"
    yield from _device_faults(world)


def _device_faults(world: "World") -> Iterator[str]:
    seen: dict[str, str] = {}  # GPU -> its node
    for name, node in sorted(world.nodes.items()):
        if len(node.devices) < len(node.row.gpus):
            yield f"node {name} names {len(node.row.gpus)} GPUs, of which only {len(node.devices)} differ"
        for uuid in node.devices:
            if seen.setdefault(uuid, name) != name:
                yield f"GPU {uuid} is on node {seen[uuid]} and on node {name}"
        if text := overfull(node):
            yield text


def overfull(node: "NodeState") -> str:
    """A sentence naming what is claimed beyond its size, or ''."""
    for device in node.devices.values():
        if device.overfull:
            return (
                f"GPU {device.gpu.uuid} of node {node.row.name} is over-full: {device.claimed} of {GPU} "
                f"thousandths and {device.claimed_memory} of {device.gpu.memory} bytes are claimed"
            )
    if node.free_cpu < 0:
        used = f"{node.claimed_cpu} of {node.row.cpu} millicores"
        return f"node {node.row.name} is over-full: {used} are claimed"
    if node.free_memory < 0:
        used = f"{node.claimed_memory} of {node.row.memory} bytes"
        return f"node {node.row.name} is over-full: {used} are claimed"
    return ""
