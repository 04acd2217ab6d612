"""Rows that contradict the rest, a sentence each. They are set aside; all else is scheduled as ever."""

from collections.abc import Iterator

from pliant.model.reason.waiting import SetAside
from pliant.sched.world.queue_tree import parent_of
from pliant.sched.world.sanity import overfull
from pliant.sched.world.state import World


def faults(world: World) -> Iterator[str]:
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


def _device_faults(world: World) -> Iterator[str]:
    seen: dict[str, str] = {}  # GPU -> its node
    for name, node in sorted(world.nodes.items()):
        if len(node.devices) < len(node.row.gpus):
            yield f"node {name} names {len(node.row.gpus)} GPUs, of which only {len(node.devices)} differ"
        for uuid in node.devices:
            if seen.setdefault(uuid, name) != name:
                yield f"GPU {uuid} is on node {seen[uuid]} and on node {name}"
        if text := overfull(node):
            yield text
