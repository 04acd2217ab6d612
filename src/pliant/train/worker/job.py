"""What a script sees: `init`, then prepare, data, epochs, step."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from pliant.train.agent.service import take_over
from pliant.train.data.batches import steps_per_epoch
from pliant.train.data.rows import Rows
from pliant.train.errors import EX_TEMPFAIL, BadData, BadSettings, Refused
from pliant.train.master.calls import MasterClient
from pliant.train.rendezvous.runtime import Runtime
from pliant.train.rendezvous.state import digest, fingerprint
from pliant.train.worker.evaluate import Evaluation
from pliant.train.worker.loop import Loop, Step
from pliant.train.worker.model import ElasticModel, Trained
from pliant.train.worker.snapshot import Keeper
from pliant.train.worker.steps import Batch
from pliant.train.worker.work import work


def init(
    *,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 0,
    keep_checkpoints: int = 3,
    logical_workers: int = 0,
    max_skipped_records: int = 0,
    device: str | torch.device | None = None,
    on_applied: Callable[[int, Sequence[int]], None] | None = None,
) -> "Job":
    """This process's part of the job that its environment names; without one, a world of one.

    checkpoint_dir: default PLIANT_CHECKPOINT_DIR; checkpoint_every: in steps, 0 for none but the last.
    logical_workers: results are bit for bit those of so many workers, whatever the number of real ones.
    on_applied(step, record_ids): on each rank, after each of its updates, with its own records.
    """
    take_over()
    return Job(
        MasterClient.from_environment(),
        Keeper(checkpoint_dir or os.environ.get("PLIANT_CHECKPOINT_DIR"), checkpoint_every, keep_checkpoints),
        {"logical_workers": logical_workers, "max_skipped_records": max_skipped_records},
        torch.device(device or _device()),
        on_applied,
    )


class Job:
    """One elastic training job, seen from one worker."""

    def __init__(
        self,
        client: MasterClient | None,
        keeper: Keeper,
        settings: dict[str, Any],
        device: torch.device,
        on_applied: Callable[[int, Sequence[int]], None] | None,
    ) -> None:
        self.device = device
        self.settings = settings
        self._client = client
        self._loop = Loop(settings, lambda hooks: Runtime(client, device, hooks), keeper, on_applied)
        self._runtime = self._loop.runtime
        if self._runtime.line is not None:
            self._runtime.line.on_sigterm()
            _tell_of_errors(self._runtime)

    @property
    def rank(self) -> int:
        """Place in the world of now; it may change at any step."""
        return self._runtime.rank

    @property
    def size(self) -> int:
        """Workers in the world of now."""
        return self._runtime.size

    @property
    def generation(self) -> int:
        """Number of the membership of now."""
        return self._runtime.number

    @property
    def interrupted(self) -> bool:
        """True once the communicator of now has failed: this step is redone, whatever error it raises."""
        return self._runtime.group.failed()

    @property
    def applied(self) -> int:
        """Global steps that are in the weights."""
        return self._loop.applied

    @property
    def loss(self) -> float | None:
        """Of the last step: the mean over all of its records, on all workers."""
        return self._loop.loss

    @property
    def evaluations(self) -> dict[int, dict[str, float]]:
        """Results of `evaluation`, by step; a newcomer knows those since it joined."""
        return self._loop.evaluation.results if self._loop.evaluation else {}

    def prepare(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        scheduler: Any = None,
        *,
        extras: dict[str, Any] | None = None,
        scheduler_per: str = "step",
        max_grad_norm: float | None = None,
        **ddp: Any,
    ) -> tuple[Any, Any, Any]:
        """(model, optimizer, scheduler) to train with. `extras`: other things with state_dict(), by name.
        Further arguments go to DistributedDataParallel."""
        if scheduler_per not in ("step", "epoch"):
            raise BadSettings(f"scheduler_per is 'step' or 'epoch', not {scheduler_per!r}")
        wrapped = ElasticModel(model.to(self.device), self._runtime.group, ddp)
        wrapped.summing = not self.settings["logical_workers"]
        self._loop.trained = Trained(
            wrapped,
            _several(optimizer),
            _several(scheduler),
            extras or {},
            per_epoch=scheduler_per == "epoch",
            max_grad_norm=max_grad_norm,
        )
        self.settings["model"] = fingerprint(model)
        return wrapped, optimizer, scheduler

    def data(
        self,
        dataset: Any,
        *,
        global_batch: int,
        max_micro_batch: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
    ) -> "Job":
        """What to iterate over in each epoch: micro-batches of this rank. `global_batch` records make one
        update at every size of the world; a worker takes at most `max_micro_batch` of them at a time."""
        rows = dataset if isinstance(dataset, Rows) else Rows(dataset)
        cap = global_batch if max_micro_batch is None else max_micro_batch
        if global_batch < 1 or cap < 1:
            raise BadSettings(
                f"Batches hold at least one record; got {global_batch} and at most {cap} at a time"
            )
        if len(rows) == 0:
            raise BadData("The dataset is empty: there is nothing to train on")
        logical = self.settings["logical_workers"]
        if logical and global_batch < logical:
            raise BadSettings(
                f"A global batch of {global_batch} cannot be shared by {logical} logical workers: make "
                f"the batch "
                "larger or the workers fewer"
            )
        self._loop.rows = rows
        self.settings |= {
            "records": len(rows),
            "global_batch": global_batch,
            "max_micro_batch": cap,
            "seed": seed,
            "shuffle": shuffle,
            "steps_per_epoch": steps_per_epoch(len(rows), global_batch),
        }
        return self

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left, from where the job stands; a newcomer begins in the middle of one."""
        loop = self._loop
        if loop.trained is None or loop.rows is None:
            raise BadSettings("Call prepare() and data() before epochs()")
        if count < 1:
            raise BadSettings(f"A job has at least one epoch, not {count}")
        each = self.settings["steps_per_epoch"]
        self.settings |= {"epochs": count, "steps_total": count * each}
        self._runtime.settle(self.settings)
        before = -1
        while True:
            loop.gather()
            if self._runtime.finished:
                break
            if self.applied >= count * each:
                loop.tell()
                loop.due = "done"
                continue
            if self.applied == before:
                raise BadSettings("An epoch went by without a step: iterate over the data in it")
            before = self.applied
            yield self.applied // each

    def __iter__(self) -> Iterator[Batch]:
        each, loop = self.settings["steps_per_epoch"], self._loop
        self._check_length()
        end = (self.applied // each + 1) * each
        while True:
            loop.gather()
            if self._runtime.finished or self.applied >= end:
                return
            yield from loop.one_step()

    def _check_length(self) -> None:
        rows, known = self._loop.rows, self.settings["records"]
        if rows is not None and len(rows) < known:
            raise BadData(
                f"The dataset has shrunk from {known} to {len(rows)} records since the job began: what "
                f"an epoch is "
                "would change under it. Put the records back, or begin a new job."
            )

    def step(self, batch: Batch) -> Step:
        """The block in which a micro-batch is computed; the optimizers step at the end of the last one's."""
        if self._loop.running is None:
            raise BadSettings("step() takes a batch that the loop over the data has just given")
        return Step(self._loop, self._loop.running, batch)

    def evaluation(
        self, dataset: Any, function: Callable[[Any, Any], dict[str, Any]], *, every: int, batch: int = 256
    ) -> None:
        """Every so many steps all workers together run function(model, batch) -> sums over its records, by
        name, on the weights of that very step. Means over all records are in `evaluations`."""
        if every < 1 or batch < 1:
            raise BadSettings(
                f"An evaluation is due every so many steps, in batches of at least 1; not {every}, {batch}"
            )
        rows = dataset if isinstance(dataset, Rows) else Rows(dataset)
        self._loop.evaluation = Evaluation(rows, function, every, batch)

    def report(self, **values: float | str) -> None:
        """Values for the people who watch the job."""
        self._loop.report |= values

    def work(
        self, name: str, records: int, function: Callable[[range], None], *, size: int, **options: Any
    ) -> int:
        """Have function(range) called for every record of [0, records), in shards of `size`, by whichever
        worker is free; returns how many were skipped. Options: stride, epochs, seed, shuffle,
        max_skipped_records."""
        return work(self._client, self._runtime.worker, name, records, function, size=size, **options)

    def digest(self) -> str:
        """Of all bits of the weights: equal on all ranks after each step."""
        return digest(self._loop.parts().model.module)

    def close(self) -> None:
        """Leave the job now, as if the process had died."""
        self._loop.keeper.settle()
        self._runtime.close()


def _device() -> str:
    # The drivers of simulated cards count memory and compute nothing: asking torch would only make it warn.
    return "cuda" if "PLIANT_SIM_CARDS" not in os.environ and torch.cuda.is_available() else "cpu"


def _several(thing: Any) -> list[Any]:
    return [] if thing is None else list(thing) if isinstance(thing, (list, tuple)) else [thing]


def _tell_of_errors(runtime: Runtime) -> None:
    """An exception that ends the script reaches the master before the process is gone."""
    before = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if isinstance(error, Refused):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EX_TEMPFAIL)  # the job goes on without this worker
        runtime.failed(error)

    sys.excepthook = told
