"""Allocate: place what fits on unclaimed capacity, in fair order. Evicts none."""

from collections.abc import Sequence

from pliant.model.quantity import Resources
from pliant.model.reason import Placed
from pliant.sched.actions.context import Block, Cycle
from pliant.sched.actions.reservation import Reserving
from pliant.sched.placement.eligibility import Equivalence
from pliant.sched.placement.series import Series, chain_of
from pliant.sched.plan import PLACE, Decision
from pliant.sched.shares.admission import Refusal
from pliant.sched.shares.job_order import Batch, Order
from pliant.sched.world.chunks import Chunk, Step
from pliant.sched.world.tally import Tally


def allocate(cycle: Cycle, reserving: Reserving) -> None:
    world = cycle.world
    hopeless: dict[Equivalence, Refusal | None] = {}  # claims only grow here: what failed once fails again
    begun = world.version
    for choice, rows in cycle.waiting().items():
        pool = choice[1]
        asking = rows if world.version == begun else [list(filter(cycle.world.asks, row)) for row in rows]
        order = cycle.order(pool, asking)
        seen: dict[int, Row] = {}  # by id() of the batch, which the row keeps alive
        failed: list[Row] = []  # rows of which a job got no place, in order
        while (job := _next(cycle, order, pool, seen, hopeless)) is not None:
            chunk, adding = job
            wid = chunk.workload.id
            row = seen[id(order.row)]
            equivalence = row.equivalence
            if equivalence not in hopeless:
                before = 0 if chunk.alone or not world.need(wid).holds else world.gpu_of(wid)
                fits = cycle.try_place(chunk, pool, adding, equivalence)
                if fits or reserving.backfilled(chunk, pool, adding):
                    cycle.placed(chunk, pool, "allocate", before)
                    more = None if chunk.alone else world.need(wid).chunk
                    if more is not None and not cycle.rests(more):
                        order.push(more, cycle.adding(more, pool))
                    continue
                hopeless[equivalence] = cycle.shares.refuse(chunk, pool, adding)
                reserving.consider(chunk, pool, adding, hopeless[equivalence])
            row.block = Block(chunk, pool, adding, hopeless[equivalence], equivalence)
            failed.append(row)
            _refuse(cycle, order, row, row.block, chunk)
        for row in failed:
            cycle.failed(choice, row.equivalence, row.refused)


def _refuse(cycle: Cycle, order: Order, row: "Row", block: Block, chunk: Chunk) -> None:
    """Record that this job and the alike jobs right after it got no place."""
    row.refused.append(chunk)
    row.kept = cycle.block_one(block, chunk, row.kept)
    which = order.following()
    if following := order.row[which]:
        row.refused += following
        cycle.block(block, following, cycle.world.ids_of(order.row)[which])


class Row:
    """What the jobs of a batch have in common."""

    __slots__ = (
        "batch", "block", "bounded", "chain", "equivalence", "gpu", "kept", "named", "quota", "refused",
        "series", "tally",
    )  # fmt: skip

    def __init__(self, cycle: Cycle, batch: Batch, chunk: Chunk, pool: str) -> None:
        self.batch = batch
        self.block: Block | None = None  # why they get no place, once one of them got none
        self.kept: Block | None = None  # see Cycle.block_one()
        self.refused: list[Chunk] = []  # the jobs that got no place
        project = chunk.workload.project
        self.equivalence = cycle.equivalence(chunk, pool)
        self.bounded = cycle.shares.bounded(chunk, pool)
        self.chain: Sequence[Tally] | None = chain_of(cycle.world, chunk, pool)
        self.series: Series | None = None  # set if they can be placed in one step
        if chunk.step is Step.CORE and cycle.books is None:
            series = cycle.series_for(chunk, pool, self.equivalence)
            self.series = series if series is not None and series.whole else None
        if self.series is not None:
            self.named, self.quota = cycle.named(project), cycle.quota(project, pool)
            self.tally = cycle.world.tally(project, pool)
            self.gpu = chunk.resources.gpu


def _next(
    cycle: Cycle,
    order: Order,
    pool: str,
    seen: dict[int, Row],
    hopeless: dict[Equivalence, Refusal | None],
) -> tuple[Chunk, Resources] | None:
    """The next job that has to be looked at by itself; None at the end.

    The jobs before it are placed in a series, or refused like an earlier job of their batch.

    A series places single tasks that had no place and whose node depends only on the room there. Each gets
    the place that it would get alone, but its node is updated when the next node is chosen or a job of
    another kind follows.
    """
    tasks, looked, series = cycle.world.tasks, cycle.looked, None
    names = ("",)  # of the last job's task: most have the same name
    try:
        while (job := order.pop()) is not None:
            chunk, adding = job
            workload = chunk.workload
            wid, batch = workload.id, order.row
            known = looked.setdefault(wid)
            row = seen.get(id(batch))
            if row is None:
                row = seen[id(batch)] = Row(cycle, batch, chunk, pool)
            if row.block is not None:
                _refuse(cycle, order, row, row.block, chunk)
                continue
            if row.series is not series:
                if series is not None:
                    series.tell_node()
                series = row.series
                if series is not None and cycle.unfit(series):
                    return job
            key = chunk.parts[0].task
            task = tasks[key]
            if (
                series is None
                or not chunk.alone
                or task.claims is not None
                or task.carries is not None
                or row.equivalence in hopeless
                or (row.bounded and cycle.shares.refuse(chunk, pool, adding) is not None)
                or not series.ready()
            ):
                return job
            where, gpu = series.take(chunk, row.chain).node, row.gpu
            placed = Placed(where, gpu, row.named, row.tally.gpu, row.quota)
            if names[0] != key[1]:
                names = (key[1],)
            cycle.record(Decision(PLACE, "allocate", wid, names, 0, gpu, placed))
            if known is not None:
                looked[wid] = None
    finally:
        if series is not None:
            series.tell_node()
    return None
