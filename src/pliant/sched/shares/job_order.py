"""The jobs of a pool in fair order: down the queue tree to the most deprived queue, then its best job."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from pliant.model.quantity import Resources
from pliant.sched.shares.fair_share import Standing
from pliant.sched.shares.queue_order import (
    NOBODY,
    ROOT,
    Aged,
    Measure,
    QueueOrder,
    job_key,
    queue_order,
)
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.membership import JobKey
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.state import World
from pliant.sched.world.tally import Tally

Batch = Sequence[Chunk]
"""Chunks of one project that add the same to their queues, in the order of their keys."""

Job = tuple[JobKey, int, Batch, Resources]
"""(key of a batch's first chunk that is left, its place, the batch, what each chunk adds to its queues)."""


class Queue:
    """A project with its jobs, or a department (or the root) with the queues below it that have any."""

    __slots__ = (
        "asked", "below", "jobs", "key", "known", "measure", "others", "parent", "standing", "tally",
        "version",
    )  # fmt: skip

    def __init__(
        self, key: str, standing: Standing, tally: Tally, measure: Measure, parent: "Queue | None"
    ) -> None:
        self.key = key
        self.standing = standing
        self.tally = tally
        self.measure = measure
        self.parent = parent  # None: it is the root
        self.jobs: list[Job] = []  # a heap; empty of all but projects
        self.below: list[tuple[QueueOrder, Queue]] = []  # a heap; empty of projects
        self.version = -1  # of the world for which `known` holds
        self.asked = NOTHING  # by its next job when `known` was calculated
        self.known: QueueOrder = ()  # its last key
        self.others: dict[Resources, QueueOrder] = {}  # its keys with other jobs, in that version

    def next(self) -> Resources:
        """What its next job asks for."""
        queue = self
        while queue.below:
            queue = queue.below[0][1]
        return queue.jobs[0][3]

    def key_at(self, version: int) -> QueueOrder:
        """Its key among its siblings, as the world is now."""
        adding = self.jobs[0][3] if self.jobs else self.next()
        if self.version != version:
            self.version = version
            self.others.clear()
        elif self.asked == adding:
            return self.known
        elif (found := self.others.get(adding)) is not None:
            return found
        else:
            self.others[self.asked] = self.known
        self.asked = adding
        self.known = queue_order(self.key, self.standing, self.tally, adding, self.measure)
        return self.known


class Order:
    """The jobs of one pool in fair order. Pop one, try it, then push what it asks for next (or nothing)."""

    def __init__(
        self,
        world: World,
        pool: str,
        standing: Mapping[str, Standing],
        rows: Iterable[tuple[Batch, Resources]],
        aged: Aged | None = None,
    ) -> None:
        """`rows`: the jobs, and what each job of a row adds to its queues."""
        self._aged = aged
        self._world = world
        self._pool = pool
        self._standing = standing
        self._total = world.capacity.get(pool, NOTHING)
        self._root = Queue(ROOT, NOBODY, Tally(), Measure(NOTHING, self._total), None)
        self._queues: dict[str, Queue] = {ROOT: self._root}
        self._tried: Queue | None = None  # of the last job; its keys are stale until the next pop
        self.row: Batch = ()  # the batch of that job
        self._asked = NOTHING  # what that job asked for
        self._version = -1  # of the world when it was popped
        for row, adding in rows:
            for part in [[chunk] for chunk in row] if aged else [row]:  # ageing changes the order
                project = self._queue(world.path(part[0].workload.project))
                project.jobs.append((job_key(part[0], aged), 0, part, adding))
        for queue in reversed(self._queues.values()):  # those below come before those above
            heapify(queue.jobs)
            heapify(queue.below)
            if queue.parent is not None:
                queue.parent.below.append((queue.key_at(world.version), queue))

    def _queue(self, path: tuple[str, ...]) -> Queue:
        """The queue at the beginning of a path to the root; those above it are made first."""
        found = self._queues.get(path[0])
        if found is None:
            key, above = path[0], self._queue(path[1:] or (ROOT,))
            standing = self._standing[key]
            measure = Measure(standing.allocatable, self._total)
            found = Queue(key, standing, self._world.tally(key, self._pool), measure, above)
            self._queues[key] = found
        return found

    def pop(self) -> tuple[Chunk, Resources] | None:
        """The next job and what it adds to its queues; None when all were looked at."""
        version = self._world.version
        tried = self._tried
        if tried is not None and (version != self._version or not self._as_before(tried)):
            self._refresh(tried, version)
        queue = self._root
        if not queue.below:
            return None
        while queue.below:
            queue = queue.below[0][1]
        jobs = queue.jobs
        key, at, row, adding = jobs[0]
        if len(jobs) == 1 and at + 1 < len(row):
            jobs[0] = key, at + 1, row, adding  # as _advance() does
        else:
            self._advance(queue, at + 1)
        self._tried, self.row, self._asked, self._version = queue, row, adding, version
        return row[at], adding

    def following(self) -> slice:
        """The jobs of `row` that come right after the last one, which got nothing; they count as popped."""
        queue = self._tried
        if queue is None or not queue.jobs or queue.jobs[0][2] is not self.row:
            return slice(0)
        if self._version != self._world.version:
            return slice(0)
        _, at, row, _ = queue.jobs[0]
        rival = min(queue.jobs[1:3], default=None)
        end = len(row) if rival is None else bisect_left(row, rival[0], at, key=job_key)
        self._advance(queue, end)
        return slice(at, end)

    def _advance(self, project: Queue, at: int) -> None:
        """Remove the jobs before `at` from the first row of a project's heap."""
        heap = project.jobs
        key, _, row, adding = heap[0]
        if at >= len(row):
            heappop(heap)
        elif len(heap) == 1:  # the key of a single row is used only beside another: see push()
            heap[0] = key, at, row, adding
        else:
            heapreplace(heap, (job_key(row[at], self._aged), at, row, adding))

    def _as_before(self, project: Queue) -> bool:
        """True if no key changes after a job that got nothing: the project's next job asks for the same."""
        return bool(project.jobs) and project.jobs[0][3] == self._asked

    def push(self, chunk: Chunk, adding: Resources) -> None:
        """Queue the next chunk of the workload that was popped last."""
        project = self._queues[chunk.workload.project]
        if len(project.jobs) == 1:
            _, at, row, asked = project.jobs[0]
            project.jobs[0] = job_key(row[at], self._aged), at, row, asked
        heappush(project.jobs, (job_key(chunk, self._aged), 0, (chunk,), adding))

    @staticmethod
    def _refresh(project: Queue, version: int) -> None:
        """Recalculate the keys of the queues above the last job; each is the first of its heap."""
        queue, above = project, project.parent
        while above is not None:
            heap = above.below
            assert heap[0][1] is queue, "only the queue that was popped last changes its place"
            if not (queue.jobs or queue.below):
                heappop(heap)
            elif len(heap) > 1:  # the key of a single queue is never used
                key = queue.key_at(version)
                if key is not heap[0][0]:
                    heapreplace(heap, (key, queue))
            queue, above = above, above.parent
