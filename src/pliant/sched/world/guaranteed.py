"""The guaranteed part of a semi-preemptible workload: the tasks that make up its core."""

from collections.abc import Iterable, Mapping

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.workload import Task, TaskKey, TaskPhase, Workload


def guaranteed(workload: Workload, held: Mapping[TaskKey, Placement], tasks: Iterable[Task]) -> Resources:
    """The sum of the first claims of each group up to its minimum; one device of an elastic task."""
    done = {group.name: 0 for group in workload.groups}
    mine: dict[str, list[tuple[int, Placement]]] = {group.name: [] for group in workload.groups}
    for task in tasks:
        if task.phase is TaskPhase.SUCCEEDED:
            done[task.group] += 1
        elif (claim := held.get(task.key)) is not None:
            mine[task.group].append((task.index, claim))
    total = Resources()
    for group in workload.groups:
        for _, claim in sorted(mine[group.name], key=_index)[: max(0, group.min - done[group.name])]:
            gpu = claim.shares[0].portion if group.elastic else claim.gpu
            total = total.plus(Resources(gpu, claim.cpu, claim.memory))
    return total


def _index(seat: tuple[int, Placement]) -> int:
    return seat[0]
