"""By what queues and jobs are ordered: comparators by name, the first that differs decides."""

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
"""Of the root, which has no siblings."""

Measure = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""For each resource by what its amount is multiplied and divided to become a ratio: see measure_of()."""


Aged = Callable[[Workload, int], int]
"""A priority with what the workload has won by waiting."""


QueueOrder = tuple[bool, bool, int, bool, int, int, int, int, str]
"""The comparators of queues beside one another, in order, as queue_order() names them: the smaller first.

No named tuple: two are made for each job, and its constructor is interpreted even where all is compiled.
"""


def job_key(chunk: Chunk, aged: Aged | None = None) -> JobKey:
    """Priority, then below the core before at it before above it, then age."""
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
    """Where a queue stands. Its share is the largest of used / reach over the resources, see measure_of().

    Ratios are exact: integers scaled by 2**64. Said without loops: it is asked once for each job and level.
    `share_left`: compared instead of its share with what it asks for.
    """
    gpu, cpu, memory = tally.gpu, tally.cpu, tally.memory
    with_gpu, with_cpu, with_memory = gpu + adding[0], cpu + adding[1], memory + adding[2]
    due, fair, reach = standing.deserved, standing.fair, standing.allocatable
    (by_gpu, of_gpu), (by_cpu, of_cpu), (by_memory, of_memory) = measure
    share, share_with = gpu * by_gpu // of_gpu, with_gpu * by_gpu // of_gpu
    if with_cpu or cpu:
        if (other := cpu * by_cpu // of_cpu) > share:
            share = other
        if (other := with_cpu * by_cpu // of_cpu) > share_with:
            share_with = other
    if with_memory or memory:
        if (other := memory * by_memory // of_memory) > share:
            share = other
        if (other := with_memory * by_memory // of_memory) > share_with:
            share_with = other
    # More of every resource than its fair share; with what it asks for more of some than its quota.
    above_fair_share = gpu > fair[0] and cpu > fair[1] and memory > fair[2]
    above_quota = with_gpu > due[0] or with_cpu > due[1] or with_memory > due[2]
    beyond_reach = (  # it asks for something of which it may have nothing
        (with_gpu > 0 and not reach[0])
        or (with_cpu > 0 and not reach[1])
        or (with_memory > 0 and not reach[2])
    )
    return (
        above_fair_share,
        above_quota,
        -standing.rank,  # the higher rank first
        beyond_reach,
        share_with if share_left is None else share_left,
        share,
        reach[0],
        standing.created,
        key,
    )


def measure_of(reach: Resources, total: Resources) -> Measure:
    """By what a share is multiplied and divided: unlimited counts as the pool, none as a thousandth."""
    gpu, cpu, memory = [all_ if can >= INFINITE else can for can, all_ in zip(reach, total, strict=True)]
    return _by(gpu), _by(cpu), _by(memory)


def _by(whole: int) -> tuple[int, int]:
    return (1 << 64, whole) if whole > 0 else (GPU << 64, 1)


def dominant(gpu: int, cpu: int, memory: int, measure: Measure) -> int:
    """The largest of used / reach over the resources."""
    by_gpu, by_cpu, by_memory = measure
    return max(
        gpu * by_gpu[0] // by_gpu[1], cpu * by_cpu[0] // by_cpu[1], memory * by_memory[0] // by_memory[1]
    )
