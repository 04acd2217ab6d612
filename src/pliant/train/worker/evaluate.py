"""Evaluation by all workers together, on the weights of one step."""

from collections.abc import Callable
from typing import Any

import torch

from pliant.train.data.batches import share
from pliant.train.data.rows import Rows, to_device
from pliant.train.errors import BadData
from pliant.train.rendezvous.runtime import Runtime


class Evaluation:
    """`function(model, batch)` gives sums over the records of a batch; their means over `rows` are the
    results."""

    def __init__(
        self, rows: Rows, function: Callable[[Any, Any], dict[str, Any]], every: int, batch: int
    ) -> None:
        if len(rows) == 0:
            raise BadData("The dataset for the evaluation is empty")
        self.results: dict[int, dict[str, float]] = {}  # by step
        self._rows = rows
        self._function = function
        self._every = every
        self._batch = batch

    def is_due(self, step: int, met: bool) -> bool:
        """After each meeting at such a step all repeat it: a newcomer does not know that it was done
        before."""
        return step > 0 and step % self._every == 0 and (met or step not in self.results)

    def run(self, model: torch.nn.Module, runtime: Runtime, step: int) -> None:
        """Compute this rank's share and add all up. Raises GenerationOver."""
        start, stop = share(len(self._rows), runtime.size, runtime.rank)
        sums = sums_over(model, self._rows, range(start, stop), self._function, self._batch, runtime.device)
        if not sums:  # a rank without records: it learns the names by computing one that does not count
            sample = sums_over(model, self._rows, range(1), self._function, 1, runtime.device)
            sums = dict.fromkeys(sample, 0.0)
        names = sorted(sums)
        vector = torch.tensor([sums[name] for name in names], dtype=torch.float64, device=runtime.device)
        runtime.group.sum(vector)
        runtime.group.settled()
        self.results[step] = {
            name: total / len(self._rows) for name, total in zip(names, vector.tolist(), strict=True)
        }


def sums_over(
    model: torch.nn.Module,
    rows: Rows,
    places: range,
    function: Callable[[Any, Any], dict[str, Any]],
    batch: int,
    device: torch.device,
) -> dict[str, float]:
    """Sums over the records at `places`, without gradients and in evaluation mode."""
    sums: dict[str, float] = {}
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for start in range(places.start, places.stop, batch):
                ids = list(range(start, min(start + batch, places.stop)))
                for name, value in function(model, to_device(rows.take(ids), device)).items():
                    sums[name] = sums.get(name, 0.0) + float(value)
    finally:
        model.train(training)
    return sums
