"""The division of a global batch among the workers: pure arithmetic, exact at every size."""

from collections.abc import Sequence


def share(total: int, parts: int, index: int) -> tuple[int, int]:
    """The range [start, stop) of part `index` of `parts` of `total`: ⌊total/parts⌋ records or one more."""
    least, more = divmod(total, parts)
    start = index * least + min(index, more)
    return start, start + least + (index < more)


def micro_batches(count: int, cap: int) -> list[int]:
    """The sizes of ⌈count/cap⌉ micro-batches: at most `cap`, and they differ by at most one record."""
    parts = -(-count // cap)
    return [stop - start for start, stop in (share(count, parts, i) for i in range(parts))]


def steps_per_epoch(records: int, global_batch: int) -> int:
    """The number of global batches in an epoch; the last one may be short, no record is left out."""
    return -(-records // global_batch)


def positions(step: int, records: int, global_batch: int) -> tuple[int, int, int]:
    """(epoch, start, stop) of step (from 0) in the order of its epoch."""
    epoch, batch = divmod(step, steps_per_epoch(records, global_batch))
    return epoch, batch * global_batch, min((batch + 1) * global_batch, records)


def plan(global_batch: int, max_micro_batch: int, workers: int) -> tuple[int, int]:
    """(micro-batches, records of the largest) of the worker with the most records; as few as fit the cap."""
    most = -(-global_batch // workers)
    steps = -(-most // max_micro_batch)
    return steps, -(-most // steps)


def owned(logical: int, size: int, rank: int) -> Sequence[int]:
    """The contiguous range of logical workers that a rank computes."""
    return range(*share(logical, size, rank))
