"""Evaluation by all workers together, on the weights of one step."""

from collections.abc import Callable
from typing import Any

import torch

from pliant.train.data.batches import share
from pliant.train.data.rows import Rows, to_device
from pliant.train.errors import BadData, BadSettings
from pliant.train.rendezvous.group import ElasticGroup
from pliant.train.rendezvous.runtime import Runtime

Measure = Callable[[Any, Any], dict[str, Any]]  # (model, batch) -> sums over its records, by name
Metric = Callable[[dict[str, torch.Tensor]], dict[str, Any]]  # gathered values -> results


class Gathered:
    """The result of `job.gather(x)`: one row per record, to be joined with those of the other workers."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows


class Evaluation:
    """`measure(model, batch)` returns sums over a batch's records. The results are their means over `rows`,
    and what `metric` computes from the gathered values."""

    def __init__(
        self, rows: Rows, measure: Measure, every: int | None, batch: int, metric: Metric | None
    ) -> None:
        if len(rows) == 0:
            raise BadData("The dataset of the evaluation is empty")
        self._rows = rows
        self._measure = measure
        self._every = every  # None: once per epoch
        self._batch = batch
        self._metric = metric
        self.running = False

    def is_due(self, step: int, met: bool, known: bool, steps_per_epoch: int) -> bool:
        """True if an evaluation is due. After a meeting (`met`) all repeat it: some may lack the result."""
        return step > 0 and step % (self._every or steps_per_epoch) == 0 and (met or not known)

    def run(self, model: torch.nn.Module, runtime: Runtime) -> dict[str, float]:
        """Evaluate this rank's share and sum over all ranks. Raises GenerationOver."""
        self.running = True
        try:
            return self._run(model, runtime)
        finally:
            self.running = False

    def _run(self, model: torch.nn.Module, runtime: Runtime) -> dict[str, float]:
        total, device = len(self._rows), runtime.device
        start, stop = share(total, runtime.size, runtime.rank)
        places = range(start, stop) if start < stop else range(1)  # no own records: one, for the names
        sums, columns = measured(model, self._rows, places, self._measure, self._batch, device)
        if start == stop:
            sums = dict.fromkeys(sums, 0.0)
            columns = {name: column[:0] for name, column in columns.items()}
        names = sorted(sums)
        vector = torch.tensor([sums[name] for name in names], dtype=torch.float64, device=device)
        runtime.group.sum(vector)
        found = {name: value / total for name, value in zip(names, vector.tolist(), strict=True)}
        if columns:
            whole = {
                name: _together(runtime.group, columns[name], total, start, device)
                for name in sorted(columns)
            }
            if self._metric is None:
                raise BadSettings(
                    "job.gather() brings values together for a metric: evaluation(..., metric=f)"
                )
            found |= {name: float(value) for name, value in self._metric(whole).items()}
        runtime.group.all_ended()
        return found


def _together(
    group: ElasticGroup, own: torch.Tensor, total: int, start: int, device: torch.device
) -> torch.Tensor:
    """The rows of all ranks in the order of the dataset, each once: each record belongs to one rank."""
    exact = own.dtype if own.dtype in (torch.float32, torch.float64, torch.int32, torch.int64) else None
    carried = exact or (torch.float32 if own.is_floating_point() else torch.int64)
    whole = torch.zeros((total, *own.shape[1:]), dtype=carried, device=device)
    whole[start : start + len(own)] = own.to(carried)
    group.sum(whole)  # the others have zeros there
    return whole.to(own.dtype)


def measured(
    model: torch.nn.Module, rows: Rows, places: range, measure: Measure, batch: int, device: torch.device
) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """(sums, gathered values) over the records at `places`, without gradients and in evaluation mode."""
    sums: dict[str, float] = {}
    columns: dict[str, list[torch.Tensor]] = {}
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for start in range(places.start, places.stop, batch):
                ids = list(range(start, min(start + batch, places.stop)))
                for name, value in measure(model, to_device(rows.take(ids), device)).items():
                    if isinstance(value, Gathered):
                        if value.rows.shape[:1] != (len(ids),):
                            raise BadSettings(
                                f"job.gather() takes one row for each record: {name} has the shape "
                                f"{tuple(value.rows.shape)} for {len(ids)} records"
                            )
                        columns.setdefault(name, []).append(value.rows.detach())
                    else:
                        sums[name] = sums.get(name, 0.0) + float(value)
    finally:
        model.train(training)
    return sums, {name: torch.cat(parts) for name, parts in columns.items()}
