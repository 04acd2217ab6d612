"""The order of queues and of jobs: named comparators, of which the first that differs decides."""

from collections.abc import Callable

from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Workload
from pliant.sched.shares.fair_share import INFINITE, Standing
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.membership import JobKey
from pliant.sched.world.queue_tree import NOTHING
from pliant.sched.world.tally import Tally

ROOT = ""
NOBODY = Standing(NOTHING, NOTHING, NOTHING, 0, 0, NOTHING)
"""The standing of the root, which has no siblings."""


class Measure:
    """Turns what a queue uses into one number: the largest of used / reach over the resources.

    It is exact: an integer, scaled by 2**64. An unlimited reach counts as the pool, a reach of 0 as a
    thousandth of a unit.
    """

    __slots__ = ("_amounts", "_ratios", "_share")

    def __init__(self, reach: Resources, total: Resources) -> None:
        gpu, cpu, memory = [all_ if can >= INFINITE else can for can, all_ in zip(reach, total, strict=True)]
        self._ratios = (*_by(gpu), *_by(cpu), *_by(memory))
        self._amounts = 0, 0, 0  # of the last call: after a placement the same are asked for
        self._share = 0  # the answer of the last call

    def share(self, gpu: int, cpu: int, memory: int) -> int:
        """The share of these amounts, in milli-GPUs, millicores and bytes."""
        known = self._amounts
        if known[0] == gpu and known[1] == cpu and known[2] == memory:
            return self._share
        by_gpu, of, by_cpu, of_cpu, by_memory, of_memory = self._ratios
        largest = gpu * by_gpu
        if cpu and (other := cpu * by_cpu) * of > largest * of_cpu:
            largest, of = other, of_cpu
        if memory and (other := memory * by_memory) * of > largest * of_memory:
            largest, of = other, of_memory
        self._amounts = gpu, cpu, memory
        self._share = found = (largest << 64) // of
        return found


def _by(whole: int) -> tuple[int, int]:
    """(factor, divisor) for an amount."""
    return (1, whole) if whole > 0 else (GPU, 1)


Aged = Callable[[Workload, int], int]
"""A priority plus the steps that the workload gained by waiting."""


QueueOrder = tuple[object, ...]
"""The comparators of sibling queues, in order, as queue_order() names them: the smaller comes first.

It is no NamedTuple: two are made for each job, and that constructor is interpreted even in compiled code.
Its types are not named for the reason given at JobKey.
"""


def job_key(chunk: Chunk, aged: Aged | None = None) -> JobKey:
    """Higher priority first; then workloads below their core, at it, above it; then the oldest."""
    workload = chunk.workload
    priority = chunk.priority if aged is None else aged(workload, chunk.priority)
    return (-priority, chunk.reached, workload.serial, workload.id)


def queue_order(
    key: str,
    standing: Standing,
    tally: Tally,
    adding: Resources,
    measure: Measure,
    share_left: int | None = None,
) -> QueueOrder:
    """The sort key of a queue among its siblings. It has no loops: it is called for each job and level.

    `share_left`: compared instead of the share that includes the request.
    """
    gpu, cpu, memory = tally.gpu, tally.cpu, tally.memory
    with_gpu, with_cpu, with_memory = gpu + adding[0], cpu + adding[1], memory + adding[2]
    due, fair, reach = standing.deserved, standing.fair, standing.allocatable
    share = measure.share(gpu, cpu, memory)
    share_with = measure.share(with_gpu, with_cpu, with_memory) if share_left is None else share_left
    # It has more of every resource than its fair share; with its request more of some than its quota.
    above_fair_share = gpu > fair[0] and cpu > fair[1] and memory > fair[2]
    above_quota = with_gpu > due[0] or with_cpu > due[1] or with_memory > due[2]
    beyond_reach = (  # it holds or asks for a resource of which it may have none
        (with_gpu > 0 and not reach[0])
        or (with_cpu > 0 and not reach[1])
        or (with_memory > 0 and not reach[2])
    )
    return (
        above_fair_share,
        above_quota,
        -standing.rank,  # the higher rank first
        beyond_reach,
        share_with,
        share,
        reach[0],
        standing.created,
        key,
    )
