"""Finds rows that contradict others, a sentence each. They are set aside; all else is scheduled as usual."""

from collections.abc import Iterator, Sequence

from pliant.model.reason.waiting import SetAside
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.queue_tree import parent_of
from pliant.sched.world.sanity import overfull
from pliant.sched.world.state import World


def faults(world: World, of_devices: Sequence[str] | None = None) -> Iterator[str]:
    """All faults, in a fixed order; `of_devices`: the known faults of devices. It reads every row."""
    for key in world.strays:
        row, claim = world.tasks[key], world.claim_of(key)
        where = next(p for p in (claim, row.carries) if p is not None and not world.knows(p))
        lacks = "a GPU that it does not have" if where.node in world.nodes else "but that node is unknown"
        yield f"task {key[1]} of workload {key[0]} sits on node {where.node}, {lacks}"
    for wid in sorted({key[0] for key in world.tasks} - set(world.workloads)):
        yield f"tasks belong to workload {wid}, which is unknown"
    lost = {wid for wid, workload in world.workloads.items() if workload.project not in world.projects}
    odd = {wid: flaw for wid, flaw in world.flaws.items() if isinstance(flaw, SetAside)}
    for wid in sorted({*lost, *odd}):
        if wid in lost:
            yield f"workload {wid} belongs to project {world.workloads[wid].project}, which is unknown"
        if wid in odd:
            yield f"workload {wid} contradicts itself: {odd[wid].clause}"
    for pid, project in sorted(world.projects.items()):
        if project.department and project.department not in world.departments:
            yield f"project {pid} belongs to department {project.department}, which is unknown"
    for did, department in sorted(world.departments.items()):
        if department.parent in world.departments and parent_of(world.departments, did) is None:
            yield f"department {did} is above itself; it counts as one at the top"
    yield from DeviceFaults().look(world) if of_devices is None else of_devices


class DeviceFaults:
    """Finds contradictions of nodes and devices; a node that has not changed is not checked again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeState, int]] = {}  # with its stamp when it was looked at
        self._overfull: dict[str, str] = {}  # node -> a sentence
        self._named: dict[str, list[str]] = {}  # node -> what is wrong with the names of its devices

    def look(self, world: World) -> list[str]:
        """The faults, in the order of the names of nodes."""
        known, others = self._known, len(self._known) != len(world.nodes)
        for name, node in world.nodes.items():
            before = known.get(name)
            if before is not None and before[0] is node and before[1] == node.stamp:
                continue
            others = others or before is None or before[0] is not node
            known[name] = node, node.stamp
            self._overfull[name] = overfull(node)
        if others:  # nodes came, went or changed
            for gone in known.keys() - world.nodes.keys():
                del known[gone], self._overfull[gone]
            self._named = _named(world)
        wrong = sorted({*self._named, *(name for name, text in self._overfull.items() if text)})
        return [text for name in wrong for text in (*self._named.get(name, ()), self._overfull[name]) if text]


def _named(world: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    seen: dict[str, str] = {}  # GPU -> its node
    for name, node in sorted(world.nodes.items()):
        if len(node.devices) < len(node.row.gpus):
            count, differ = len(node.row.gpus), len(node.devices)
            found.setdefault(name, []).append(
                f"node {name} names {count} GPUs, of which only {differ} differ"
            )
        for uuid in node.devices:
            if (first := seen.setdefault(uuid, name)) != name:
                found.setdefault(name, []).append(f"GPU {uuid} is on node {first} and on node {name}")
    return found
