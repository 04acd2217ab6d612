"""Who is next: a walk down the queue tree that always takes the most deprived queue, then its best job."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Workload
from pliant.sched.division import INFINITE, Standing
from pliant.sched.portions import Chunk
from pliant.sched.tally import Tally
from pliant.sched.tree import NOTHING
from pliant.sched.world import World

JobKey = tuple[int, int, int, str]
Row = Sequence[Chunk]
"""Chunks of one project that add the same to their queues, in the order of their keys."""

QueueKey = tuple[bool, bool, int, bool, int, int, int, int, str]
ROOT = ""

Measure = tuple[tuple[int, int], ...]
"""For each resource by what its amount is multiplied and divided to become a ratio: see measure_of()."""


Aged = Callable[[Workload, int], int]
"""A priority with what the workload has won by waiting."""


def job_key(chunk: Chunk, aged: Aged | None = None) -> JobKey:
    """Priority, then below the core before at it before above it, then age."""
    workload = chunk.workload
    priority = chunk.priority if aged is None else aged(workload, chunk.priority)
    return (-priority, chunk.standing, workload.serial, workload.id)


def queue_key(key: str, standing: Standing, tally: Tally, adding: Resources, measure: Measure) -> QueueKey:
    """Smaller goes first. Ratios are exact: integers scaled by 2**64, see dominant()."""
    (gpu, cpu, memory), (more_gpu, more_cpu, more_memory) = (tally.gpu, tally.cpu, tally.memory), adding
    with_gpu, with_cpu, with_memory = gpu + more_gpu, cpu + more_cpu, memory + more_memory
    fair, due, reach = standing.fair, standing.deserved, standing.allocatable
    return (
        gpu > fair[0] and cpu > fair[1] and memory > fair[2],
        with_gpu > due[0] or with_cpu > due[1] or with_memory > due[2],
        -standing.rank,
        (with_gpu > 0 and not reach[0])
        or (with_cpu > 0 and not reach[1])
        or (with_memory > 0 and not reach[2]),
        dominant(with_gpu, with_cpu, with_memory, measure),
        dominant(gpu, cpu, memory, measure),
        reach[0],
        standing.created,
        key,
    )


def measure_of(reach: Resources, total: Resources) -> Measure:
    """By what dominant() divides: unlimited counts as the pool, none as a thousandth."""
    wholes = [all_ if can >= INFINITE else can for can, all_ in zip(reach, total, strict=True)]
    return tuple((1 << 64, whole) if whole > 0 else (GPU << 64, 1) for whole in wholes)


def dominant(gpu: int, cpu: int, memory: int, measure: Measure) -> int:
    """The largest of used / reach over the resources."""
    by_gpu, by_cpu, by_memory = measure
    return max(
        gpu * by_gpu[0] // by_gpu[1], cpu * by_cpu[0] // by_cpu[1], memory * by_memory[0] // by_memory[1]
    )


class Order:
    """The jobs of one pool in fair order. Pop one, try it, then push what it asks for next (or nothing)."""

    def __init__(
        self,
        world: World,
        pool: str,
        standing: Mapping[str, Standing],
        rows: Iterable[tuple[Row, Resources]],
        aged: Aged | None = None,
    ) -> None:
        """`rows`: the jobs, with what each of a row adds to its queues."""
        self._aged = aged
        self._world = world
        self._pool = pool
        self._standing = standing
        total = world.capacity.get(pool, NOTHING)
        self._tallies = {key: world.tally(key, pool) for key in standing}
        self._measures = {key: measure_of(it.allocatable, total) for key, it in standing.items()}
        # project -> heap of rows: the key of the first that is left of it, its place, what each adds
        self._jobs: dict[str, list[tuple[JobKey, int, Row, Resources]]] = {}
        # department or root -> heap of its children that have jobs
        self._heaps: dict[str, list[tuple[QueueKey, str]]] = {ROOT: []}
        # queue -> (the world's version, its key by what its next job asks for)
        self._keys: dict[str, tuple[int, dict[Resources, QueueKey]]] = {}
        self._ups: dict[str, tuple[tuple[str, str], ...]] = {}  # what _links() has answered
        self._tried = ""  # project of the last job; its keys are stale until the next pop
        self._row: Row = ()  # in which that job stood
        self._asked = NOTHING  # what that job asked for
        self._version = -1  # of the world when it was popped
        for row, adding in rows:
            for part in [[chunk] for chunk in row] if aged else [row]:  # with age the order is another
                entry = (job_key(part[0], aged), 0, part, adding)
                self._jobs.setdefault(part[0].workload.project, []).append(entry)
        below: dict[str, dict[str, None]] = {}
        for project, heap in self._jobs.items():
            heapify(heap)
            for child, parent in self._links(project):
                below.setdefault(parent, {})[child] = None
        self._fill(ROOT, below)

    def _fill(self, parent: str, below: Mapping[str, Iterable[str]]) -> None:
        heap = self._heaps.setdefault(parent, [])
        for child in below.get(parent, ()):
            if child not in self._jobs:
                self._fill(child, below)
            heap.append((self._key(child, self._best(child)), child))
        heapify(heap)

    def pop(self) -> tuple[Chunk, Resources] | None:
        """The next job and what it adds to its queues; None when all were looked at."""
        if self._tried and not self._as_before(self._tried):
            self._refresh(self._tried)
        top = self._heaps[ROOT]
        if not top:
            return None
        project = top[0][1]
        while project not in self._jobs:
            project = self._heaps[project][0][1]
        _, at, row, adding = self._jobs[project][0]
        self._advance(project, at + 1)
        self._tried, self._row, self._asked, self._version = project, row, adding, self._world.version
        return row[at], adding

    def following(self) -> Row:
        """All that would be popped next and are alike the last job, if that got nothing: as if popped."""
        heap = self._jobs[self._tried]
        if not heap or heap[0][2] is not self._row or self._version != self._world.version:
            return ()
        _, at, row, _ = heap[0]
        rival = min(heap[1:3], default=None)
        end = len(row) if rival is None else bisect_left(row, rival[0], at, key=job_key)
        self._advance(self._tried, end)
        return row[at:end]

    def _advance(self, project: str, at: int) -> None:
        """Of the row that is first in a project's heap, let what comes before `at` be gone."""
        heap = self._jobs[project]
        _, _, row, adding = heap[0]
        if at < len(row):
            heapreplace(heap, (job_key(row[at], self._aged), at, row, adding))
        else:
            heappop(heap)

    def _as_before(self, project: str) -> bool:
        """True if the last job got nothing and the project's next one asks for the same: no key changes."""
        jobs = self._jobs[project]
        return self._version == self._world.version and bool(jobs) and jobs[0][3] == self._asked

    def push(self, chunk: Chunk, adding: Resources) -> None:
        """Queue what the workload that was popped last asks for next."""
        heappush(self._jobs[chunk.workload.project], (job_key(chunk, self._aged), 0, (chunk,), adding))

    def _refresh(self, project: str) -> None:
        """Give the queues above the last job, each the first of its heap, the keys that they have now."""
        for child, parent in self._links(project):
            heap = self._heaps[parent]
            assert heap[0][1] == child, "only the queue that was popped last changes its place"
            if not (self._jobs[child] if child in self._jobs else self._heaps[child]):
                heappop(heap)
            elif len(heap) > 1:  # the key of one that is alone is never looked at
                key = self._key(child, self._best(child))
                if key != heap[0][0]:
                    heapreplace(heap, (key, child))

    def _best(self, queue: str) -> Resources:
        """What its next job asks for."""
        while queue not in self._jobs:
            queue = self._heaps[queue][0][1]
        return self._jobs[queue][0][3]

    def _key(self, key: str, adding: Resources) -> QueueKey:
        known = self._keys.get(key)
        if known is None or known[0] != self._world.version:
            known = self._keys[key] = self._world.version, {}
        found = known[1].get(adding)
        if found is None:
            tally = self._tallies[key]
            found = queue_key(key, self._standing[key], tally, adding, self._measures[key])
            known[1][adding] = found
        return found

    def _links(self, project: str) -> Iterable[tuple[str, str]]:
        """(child, parent) from the project up to the root."""
        found = self._ups.get(project)
        if found is None:
            path = self._world.path(project)
            found = self._ups[project] = tuple(zip(path, (*path[1:], ROOT), strict=True))
        return found
