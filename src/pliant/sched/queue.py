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
    return (-workload.priority, chunk.standing, workload.serial, workload.id)


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
        # department or root -> heap of its children
        self._heaps: dict[str, list[tuple[QueueKey, str]]] = {ROOT: []}
        self._keys: dict[tuple[str, Resources, Resources], QueueKey] = {}
        self._tried = ""  # project of the last job; its keys are stale until the next pop
        for chunk, adding in jobs:
            entry = (job_key(chunk), chunk, adding)
            self._jobs.setdefault(chunk.workload.project, []).append(entry)
        for project, heap in self._jobs.items():
            heapify(heap)
            parent = self._parent(project)
            self._heaps.setdefault(parent, []).append((self._key(project, heap[0][2]), project))
        for children in self._heaps.values():
            heapify(children)
        for parent, children in sorted(self._heaps.items()):
            if parent != ROOT:
                heappush(self._heaps[ROOT], (self._key(parent, self._best(children[0][1])), parent))

    def pop(self) -> tuple[Chunk, Resources] | None:
        """The next job and what it adds to its queues; None when all were looked at."""
        if self._tried:
            self._refresh(self._tried)
        top = self._heaps[ROOT]
        if not top:
            return None
        name = top[0][1]
        project = name if name in self._jobs else self._heaps[name][0][1]
        entry = heappop(self._jobs[project])
        self._tried = project
        return entry[1], entry[2]

    def push(self, chunk: Chunk, adding: Resources) -> None:
        """Queue what the workload that was popped last asks for next."""
        entry = (job_key(chunk), chunk, adding)
        heappush(self._jobs[chunk.workload.project], entry)

    def _refresh(self, project: str) -> None:
        parent = self._parent(project)
        self._replace(parent, project, self._jobs[project][0][2] if self._jobs[project] else None)
        if parent != ROOT:
            children = self._heaps[parent]
            self._replace(ROOT, parent, self._best(children[0][1]) if children else None)

    def _replace(self, parent: str, child: str, adding: Resources | None) -> None:
        """Give the first child of a heap the key that it has now; without a job it leaves."""
        heap = self._heaps[parent]
        assert heap[0][1] == child, "only the queue that was popped last changes its place"
        if adding is None:
            heappop(heap)
        elif (key := self._key(child, adding)) != heap[0][0]:
            heapreplace(heap, (key, child))

    def _best(self, project: str) -> Resources:
        return self._jobs[project][0][2]

    def _key(self, key: str, adding: Resources) -> QueueKey:
        claimed = self._world.use(key, self._pool).claimed
        known = self._keys.get((key, claimed, adding))
        if known is None:
            known = queue_key(key, self._standing[key], claimed, adding, self._total)
            self._keys[key, claimed, adding] = known
        return known

    def _parent(self, project: str) -> str:
        path = self._world.path(project)
        return path[1] if len(path) > 1 else ROOT
