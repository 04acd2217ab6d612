"""`init` plans a global batch for the present GPUs; `BatchSampler` makes batches of exactly that size."""

import os
import sys
from collections.abc import Iterator

import runai.elastic as plan
from pliant.train.data.batches import plan as fitted
from pliant.train.data.batches import share


def init(global_batch_size: int, max_gpu_batch_size: int, gpus: int | None = None) -> None:
    """Publish `steps`, `batch_size`, `gpus`, `global_batch_size` and `master` in runai.elastic.

    steps is the smallest number of micro-batches such that none exceeds max_gpu_batch_size on any GPU. If
    steps x batch_size x gpus is not the global batch, a line on stderr says so; BatchSampler still makes
    exactly the global batch. Raises ValueError.
    """
    count = visible_gpus() if gpus is None else gpus
    for name, value in (
        ("global_batch_size", global_batch_size),
        ("max_gpu_batch_size", max_gpu_batch_size),
        ("gpus", count),
    ):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if global_batch_size < count:
        raise ValueError(
            f"A global batch of {global_batch_size} cannot be shared by {count} GPUs: make the batch larger"
        )
    plan.global_batch_size, plan.gpus, plan.master = global_batch_size, count, True
    plan.steps, plan.batch_size = fitted(global_batch_size, max_gpu_batch_size, count)
    made = plan.steps * plan.batch_size * count
    if made != global_batch_size:
        print(
            f"runai.elastic: {plan.steps} steps x {plan.batch_size} records x {count} GPUs make {made} "
            f"records per update, not {global_batch_size}: give the loader batch_sampler=runai.elastic.torch."
            "BatchSampler(len(dataset)), which is exact, or choose a batch that divides",
            file=sys.stderr,
        )


def visible_gpus() -> int:
    """Number of GPUs that this process may use; 1 if there is none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return max(1, len([name for name in visible.split(",") if name.strip() and not name.startswith("-")]))
    import torch

    return max(1, int(torch.cuda.device_count()))


class BatchSampler:
    """Yields the indices of each step's batch over all GPUs, for `DataLoader(batch_sampler=...)`.

    Every `steps` batches make an update of exactly the global batch. The last update of an epoch has the
    remaining records, so none is left out. The order of an epoch depends on seed and epoch only.
    """

    def __init__(self, records: int, *, shuffle: bool = True, seed: int = 0) -> None:
        if not plan.global_batch_size:
            raise RuntimeError("Call runai.elastic.torch.init first: the plan decides about the batches")
        if records < 1:
            raise ValueError("The dataset is empty: there is nothing to train on")
        self.records, self.shuffle, self.seed, self.epoch = records, shuffle, seed, 0

    def updates(self) -> list[list[int]]:
        """Sizes of the batches of each update of an epoch."""
        whole, rest = divmod(self.records, plan.global_batch_size)
        found = [_parts(plan.global_batch_size)] * whole
        return [*found, _parts(rest)] if rest else found

    def __len__(self) -> int:
        return sum(len(sizes) for sizes in self.updates())

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        self.epoch += 1
        at = 0
        for sizes in self.updates():
            for size in sizes:
                yield order[at : at + size]
                at += size

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self.records))
        import torch

        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return [int(index) for index in torch.randperm(self.records, generator=chance)]


def _parts(total: int) -> list[int]:
    """Sizes of the batches of an update of `total` records: `plan.steps` batches, but at most `total`."""
    count = min(plan.steps, total)
    return [stop - start for start, stop in (share(total, count, index) for index in range(count))]
