"""Who is next: a walk down the queue tree that always takes the most deprived queue, then its best job."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from pliant.model.quantity import GPU, Resources
from pliant.sched.division import INFINITE, Standing
from pliant.sched.portions import Chunk
from pliant.sched.tree import NOTHING
from pliant.sched.world import World

JobKey = tuple[int, int, int, str]
QueueKey = tuple[bool, bool, int, bool, int, int, int, int, str]
ROOT = ""


def job_key(chunk: Chunk) -> JobKey:
    """Priority, then below the core before at it before above it, then age."""
    workload = chunk.workload
    return (-chunk.priority, chunk.standing, workload.serial, workload.id)


def queue_key(
    key: str, standing: Standing, claimed: Resources, adding: Resources, total: Resources
) -> QueueKey:
    """Smaller goes first. Ratios are exact: integers scaled by 2**64, see dominant()."""
    with_job = claimed.plus(adding)
    reach = standing.allocatable
    return (
        all(have > fair for have, fair in zip(claimed, standing.fair, strict=True)),
        not with_job.fits(standing.deserved),
        -standing.rank,
        any(need > 0 and can == 0 for need, can in zip(with_job, reach, strict=True)),
        dominant(with_job, reach, total),
        dominant(claimed, reach, total),
        reach.gpu,
        standing.created,
        key,
    )


def dominant(used: Resources, reach: Resources, total: Resources) -> int:
    """The largest of used / reach over the resources; unlimited counts as the pool, none as a thousandth."""
    largest = 0
    for have, can, all_ in zip(used, reach, total, strict=True):
        if have:
            whole = all_ if can >= INFINITE else can
            largest = max(largest, (have << 64) // whole if whole > 0 else (have * GPU) << 64)
    return largest


class Order:
    """The jobs of one pool in fair order. Pop one, try it, then push what it asks for next (or nothing)."""

    def __init__(
        self,
        world: World,
        pool: str,
        standing: Mapping[str, Standing],
        jobs: Iterable[tuple[Chunk, Resources]],
    ) -> None:
        self._world = world
        self._pool = pool
        self._standing = standing
        self._total = world.capacity.get(pool, NOTHING)
        self._jobs: dict[str, list[tuple[JobKey, Chunk, Resources]]] = {}  # project -> heap
        # department or root -> heap of its children that have jobs
        self._heaps: dict[str, list[tuple[QueueKey, str]]] = {ROOT: []}
        self._keys: dict[tuple[str, Resources, Resources], QueueKey] = {}
        self._tried = ""  # project of the last job; its keys are stale until the next pop
        for chunk, adding in jobs:
            entry = (job_key(chunk), chunk, adding)
            self._jobs.setdefault(chunk.workload.project, []).append(entry)
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
        if self._tried:
            self._refresh(self._tried)
        top = self._heaps[ROOT]
        if not top:
            return None
        project = top[0][1]
        while project not in self._jobs:
            project = self._heaps[project][0][1]
        entry = heappop(self._jobs[project])
        self._tried = project
        return entry[1], entry[2]

    def push(self, chunk: Chunk, adding: Resources) -> None:
        """Queue what the workload that was popped last asks for next."""
        entry = (job_key(chunk), chunk, adding)
        heappush(self._jobs[chunk.workload.project], entry)

    def _refresh(self, project: str) -> None:
        for child, parent in self._links(project):
            empty = not (self._jobs[child] if child in self._jobs else self._heaps[child])
            self._replace(parent, child, None if empty else self._best(child))

    def _replace(self, parent: str, child: str, adding: Resources | None) -> None:
        """Give the first child of a heap the key that it has now; without a job it leaves."""
        heap = self._heaps[parent]
        assert heap[0][1] == child, "only the queue that was popped last changes its place"
        if adding is None:
            heappop(heap)
        elif (key := self._key(child, adding)) != heap[0][0]:
            heapreplace(heap, (key, child))

    def _best(self, queue: str) -> Resources:
        """What its next job asks for."""
        while queue not in self._jobs:
            queue = self._heaps[queue][0][1]
        return self._jobs[queue][0][2]

    def _key(self, key: str, adding: Resources) -> QueueKey:
        claimed = self._world.use(key, self._pool).claimed
        known = self._keys.get((key, claimed, adding))
        if known is None:
            known = queue_key(key, self._standing[key], claimed, adding, self._total)
            self._keys[key, claimed, adding] = known
        return known

    def _links(self, project: str) -> Iterable[tuple[str, str]]:
        """(child, parent) from the project up to the root."""
        path = self._world.path(project)
        return zip(path, (*path[1:], ROOT), strict=True)
