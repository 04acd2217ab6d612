"""Who gets which records of a global batch: pure arithmetic, exact at every size."""

from collections.abc import Sequence


def share(total: int, parts: int, index: int) -> tuple[int, int]:
    """The range [start, stop) that part `index` of `parts` has of `total`: ⌊total/parts⌋ or one more."""
    least, more = divmod(total, parts)
    start = index * least + min(index, more)
    return start, start + least + (index < more)


def micro_batches(count: int, cap: int) -> list[int]:
    """Sizes of the ⌈count/cap⌉ micro-batches, none over `cap`, none two records smaller than another."""
    parts = -(-count // cap)
    return [stop - start for start, stop in (share(count, parts, i) for i in range(parts))]


def steps_per_epoch(records: int, global_batch: int) -> int:
    """Global batches of one pass; the last one may be short, no record is left out."""
    return -(-records // global_batch)


def positions(step: int, records: int, global_batch: int) -> tuple[int, int, int]:
    """(epoch, start, stop) of step (from 0) in the order of its epoch."""
    epoch, batch = divmod(step, steps_per_epoch(records, global_batch))
    return epoch, batch * global_batch, min((batch + 1) * global_batch, records)


def plan(global_batch: int, max_micro_batch: int, workers: int) -> tuple[int, int]:
    """(micro-batches, records of the largest) of the worker that has most: the smallest count that fits."""
    most = -(-global_batch // workers)
    steps = -(-most // max_micro_batch)
    return steps, -(-most // steps)


def owned(logical: int, size: int, rank: int) -> Sequence[int]:
    """The logical workers that a rank computes, a contiguous range."""
    return range(*share(logical, size, rank))
