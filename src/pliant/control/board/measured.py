"""Samples of everything that is measured over time, from the board and the loads of the nodes.

What cannot be measured has no number; it is not 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pliant.control.board.view import Board, NodeView, PoolUse, QueueView, WorkloadView
from pliant.control.fractions import TaskUse
from pliant.control.ports import GpuLoad, Load, TaskLoad
from pliant.model.machine import Gpu
from pliant.model.quantity import GPU
from pliant.model.sample import MINUTE, Number, Sample
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import AttemptId, Phase, Task
from pliant.sched.world.queue_tree import NOTHING

BUSY = ((25, "0-25"), (50, "25-50"), (75, "50-75"), (101, "75-100"))
"""Parts of GPU_UTILIZATION_DISTRIBUTION: percent of the time."""

Uses = Mapping[AttemptId, TaskUse]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One look at everything."""

    board: Board
    load: Load
    uses: Uses
    now: int  # ms
    on: dict[str, list[Task]] = field(default_factory=dict)  # tasks that hold something, by node
    running: list[WorkloadView] = field(default_factory=list)

    def of(self, task: Task) -> TaskLoad | None:
        return self.load.tasks.get(AttemptId(task.workload, task.name, task.attempt))


def measured(board: Board, load: Load, uses: Uses, now: int) -> list[Sample]:
    """A sample for the cluster and each pool, node, project, department and workload that holds something."""
    seen = _Seen(board, load, uses, now)
    waiting: dict[str, list[int]] = {"": []}
    for view in board.workloads.values():
        held = [task for task in view.tasks if task.carries is not None]
        for task in held:
            if task.carries is not None:
                seen.on.setdefault(task.carries.node, []).append(task)
        if held:
            seen.running.append(view)
        elif view.workload.phase is Phase.PENDING:
            waiting[""].append(now - view.workload.phase_since)
    found = {"cluster": [*_machines(seen, board.nodes, None), *_queue(seen, waiting[""])]}
    for pool in board.pools:
        nodes = [view for view in board.nodes if view.pool == pool.name]
        found[f"pool:{pool.name}"] = [*_machines(seen, nodes, pool.name)]
    for node in board.nodes:
        found[f"node:{node.node.name}"] = [*_node(seen, node)]
    for unit in board.departments.values():
        inside = [it for it in seen.running if it.project.department == unit.queue.id]
        found[f"department:{unit.queue.id}"] = [*_unit(seen, unit, inside)]
    for unit in board.projects.values():
        inside = [it for it in seen.running if it.project.id == unit.queue.id]
        found[f"project:{unit.queue.id}"] = [*_unit(seen, unit, inside)]
    for view in seen.running:
        found[f"workload:{view.workload.id}"] = [*_workload(seen, view)]
    return [Sample(subject, MINUTE, now, tuple(numbers)) for subject, numbers in found.items()]


def averaged(samples: Sequence[Sample], step: int, at: int) -> list[Sample]:
    """One sample for each subject; each number is the mean over the samples that have it."""
    found: dict[str, dict[tuple[str, str], list[int]]] = {}
    for sample in samples:
        numbers = found.setdefault(sample.subject, {})
        for name, part, value in sample.numbers:
            numbers.setdefault((name, part), []).append(value)
    return [
        Sample(
            subject,
            step,
            at,
            tuple(Number(*key, sum(values) // len(values)) for key, values in numbers.items()),
        )
        for subject, numbers in found.items()
    ]


def _all(name: str, value: int) -> Number:
    return Number(name, "", value)


def _share(part: int, whole: int) -> int:
    """Percent, in thousandths."""
    return part * 100_000 // whole


# -- machines ---------------------------------------------------------------------------------------


def _machines(seen: _Seen, nodes: Sequence[NodeView], pool: str | None) -> Iterator[Number]:
    """Numbers of these nodes: those of one pool, or all."""
    total = sum(len(view.gpus) for view in nodes) * GPU
    held = sum(view.used.gpu for view in nodes)
    yield _all("TOTAL_GPU", total)
    yield _all("TOTAL_GPU_NODES", sum(bool(view.gpus) for view in nodes) * 1000)
    yield _all("ALLOCATED_GPU", held)
    yield _all("UNALLOCATED_GPU", total - held)
    uses = (use for view in seen.board.projects.values() for use in view.uses)
    yield _all("GPU_QUOTA", sum(use.quota for use in uses if pool in (None, use.pool)))
    cards = [(gpu, seen.load.gpus[gpu.uuid]) for view in nodes for gpu in view.node.gpus if _has(seen, gpu)]
    yield from _cards(cards)
    if cards:
        for most, part in BUSY:
            least = most - (26 if most == 101 else 25)
            count = sum(least <= load.busy < most for _, load in cards)
            yield Number("GPU_UTILIZATION_DISTRIBUTION", part, count * 1000)
    tasks = [task for view in nodes for task in seen.on.get(view.node.name, ())]
    cpu, memory = _processes(seen, tasks)
    if cpu is not None and (cores := sum(view.node.cpu for view in nodes)):
        yield _all("CPU_UTILIZATION", _share(cpu, cores))
    if memory is not None and (size := sum(view.node.memory for view in nodes)):
        yield _all("CPU_MEMORY_UTILIZATION", _share(memory, size))
    if pool is not None:
        yield _all("WORKLOADS_COUNT", sum(view.pool == pool for view in seen.running) * 1000)


def _queue(seen: _Seen, waited: Sequence[int]) -> Iterator[Number]:
    """The number of workloads that run or wait, and the mean of `waited` (ms)."""
    yield _all("WORKLOADS_COUNT", (len(seen.running) + len(waited)) * 1000)
    yield _all("AVG_WORKLOAD_WAIT_TIME", sum(waited) // len(waited) if waited else 0)


def _node(seen: _Seen, view: NodeView) -> Iterator[Number]:
    cards = [(gpu, seen.load.gpus[gpu.uuid]) for gpu in view.node.gpus if _has(seen, gpu)]
    yield from _cards(cards)
    for gpu, load in cards:
        yield Number("GPU_UTILIZATION_PER_GPU", gpu.uuid, load.busy * 1000)
        yield Number("GPU_MEMORY_USAGE_BYTES_PER_GPU", gpu.uuid, load.memory * 1000)
        yield Number("GPU_MEMORY_UTILIZATION_PER_GPU", gpu.uuid, _share(load.memory, gpu.memory))
    if cards:
        yield _all("GPU_MEMORY_USAGE_BYTES", sum(load.memory for _, load in cards) * 1000)
    for device in view.gpus:
        yield Number("GPU_ALLOCATION_PER_GPU", device.uuid, device.carried)
    cpu, memory = _processes(seen, seen.on.get(view.node.name, ()))
    if cpu is not None:
        yield _all("CPU_USAGE_CORES", cpu)
        if view.node.cpu:
            yield _all("CPU_UTILIZATION", _share(cpu, view.node.cpu))
    if memory is not None:
        yield _all("CPU_MEMORY_USAGE_BYTES", memory * 1000)
        if view.node.memory:
            yield _all("CPU_MEMORY_UTILIZATION", _share(memory, view.node.memory))


def _has(seen: _Seen, gpu: Gpu) -> bool:
    return gpu.uuid in seen.load.gpus and gpu.memory > 0


def _cards(cards: Sequence[tuple[Gpu, GpuLoad]]) -> Iterator[Number]:
    if cards:
        yield _all("GPU_UTILIZATION", sum(load.busy for _, load in cards) * 1000 // len(cards))
        used, size = sum(load.memory for _, load in cards), sum(gpu.memory for gpu, _ in cards)
        yield _all("GPU_MEMORY_UTILIZATION", _share(used, size))


def _processes(seen: _Seen, tasks: Iterable[Task]) -> tuple[int | None, int | None]:
    """(millicores, bytes) of what Pliant's tasks use; None: none of them could be measured."""
    loads = [seen.of(task) for task in tasks]
    known = [load for load in loads if load is not None]
    if loads and not known:
        return None, None
    cores = [load.cpu for load in known if load.cpu is not None]
    return (sum(cores) if cores or not known else None), sum(load.memory for load in known)


# -- projects and departments -----------------------------------------------------------------------


def _unit(seen: _Seen, view: QueueView, inside: Sequence[WorkloadView]) -> Iterator[Number]:
    """Numbers for each pool, whose name is the part, and for all of them."""
    uses: Sequence[PoolUse] = view.uses
    for use in uses:
        yield from _held(view, [use], use.pool)
    yield from _held(view, uses, "")
    cards = [card for it in inside for task in it.tasks for card in _own(seen, task)]
    sizes = {gpu.uuid: gpu.memory for node in seen.board.nodes for gpu in node.node.gpus}
    if size := sum(sizes.get(uuid, 0) for uuid, _ in cards):
        yield _all("GPU_MEMORY_UTILIZATION", _share(sum(load.memory for _, load in cards), size))
        yield _all("GPU_UTILIZATION", sum(load.busy for _, load in cards) * 1000 // len(cards))


def _held(view: QueueView, uses: Sequence[PoolUse], part: str) -> Iterator[Number]:
    """Quota and allocation in one pool, or in all of them."""
    given = NOTHING
    for use in uses:
        given = given.plus(use.allocated)
    quotas = [view.queue.quota(use.pool) for use in uses]
    cpu = sum(it.cpu for it in quotas if it.cpu != UNLIMITED)
    memory = sum(it.memory for it in quotas if it.memory != UNLIMITED)
    yield Number("GPU_QUOTA", part, sum(use.quota for use in uses))
    yield Number("CPU_QUOTA_MILLICORES", part, cpu * 1000)
    yield Number("CPU_MEMORY_QUOTA_MB", part, memory // 1000)
    yield Number("GPU_ALLOCATION", part, given.gpu)
    yield Number("CPU_ALLOCATION_MILLICORES", part, given.cpu * 1000)
    yield Number("CPU_MEMORY_ALLOCATION_MB", part, given.memory // 1000)


def _own(seen: _Seen, task: Task) -> Iterator[tuple[str, GpuLoad]]:
    """The GPUs that a task has to itself; the use of a shared GPU cannot be assigned to one task."""
    for share in task.carries.shares if task.carries is not None else ():
        if share.portion == GPU and share.gpu in seen.load.gpus:
            yield share.gpu, seen.load.gpus[share.gpu]


# -- workloads --------------------------------------------------------------------------------------


def _workload(seen: _Seen, view: WorkloadView) -> Iterator[Number]:
    """Numbers of all of its tasks and of each: the part is the task's name, for a GPU `<task> <uuid>`."""
    yield _all("POD_COUNT", (view.running + view.waiting) * 1000)
    yield _all("RUNNING_POD_COUNT", view.running * 1000)
    yield _all("GPU_ALLOCATION", view.gpu)
    held = [task for task in view.tasks if task.carries is not None]
    yield from _requests(view, held)
    sums: dict[str, int] = {}
    busy: list[int] = []
    for task in held:
        numbers = dict(_task(seen, task, busy))
        for (name, part), value in numbers.items():
            yield Number(name, f"{task.name} {part}".rstrip(), value)
            if not part and name != "GPU_UTILIZATION":
                sums[name] = sums.get(name, 0) + value
    for name, value in sums.items():
        yield _all(name, value)
    if busy:
        yield _all("GPU_UTILIZATION", sum(busy) * 1000 // len(busy))


def _requests(view: WorkloadView, held: Sequence[Task]) -> Iterator[Number]:
    """The requests, summed over the tasks that hold something."""
    groups = {group.name: group for group in view.workload.groups}
    asked = [groups[task.group].request for task in held if task.group in groups]
    yield _all("CPU_REQUEST_CORES", sum(it.cpu for it in asked))
    yield _all("CPU_MEMORY_REQUEST_BYTES", sum(it.memory for it in asked) * 1000)
    parts = [share.memory for task in held if task.carries is not None for share in task.carries.shares]
    yield _all("GPU_MEMORY_REQUEST_BYTES", sum(parts) * 1000)


def _task(seen: _Seen, task: Task, busy: list[int]) -> Iterator[tuple[tuple[str, str], int]]:
    """((name, uuid of a GPU or ''), value); appends to `busy` the percent of each of its own GPUs."""
    load = seen.of(task)
    if load is not None and load.cpu is not None:
        yield ("CPU_USAGE_CORES", ""), load.cpu
    if load is not None:
        yield ("CPU_MEMORY_USAGE_BYTES", ""), load.memory * 1000
    cards = [*_own(seen, task)]
    use = seen.uses.get(AttemptId(task.workload, task.name, task.attempt))
    memory = {uuid: card.memory for uuid, card in cards} | {
        part.gpu: part.used for part in (use.parts if use is not None else ())
    }
    for uuid, card in cards:
        busy.append(card.busy)
        yield ("GPU_UTILIZATION_PER_GPU", uuid), card.busy * 1000
    if cards:
        yield ("GPU_UTILIZATION", ""), sum(card.busy for _, card in cards) * 1000 // len(cards)
    for uuid, used in memory.items():
        yield ("GPU_MEMORY_USAGE_BYTES_PER_GPU", uuid), used * 1000
    if memory:
        yield ("GPU_MEMORY_USAGE_BYTES", ""), sum(memory.values()) * 1000
