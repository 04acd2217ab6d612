"""The job as the training script uses it: prepare, data, epochs, step."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import torch

from pliant.train.data.batches import steps_per_epoch
from pliant.train.data.order import GivenOrder
from pliant.train.data.rows import Rows
from pliant.train.errors import BadData, BadSettings
from pliant.train.master.calls import MasterClient
from pliant.train.rendezvous.runtime import Runtime
from pliant.train.rendezvous.state import digest, fingerprint
from pliant.train.worker.block import Step
from pliant.train.worker.evaluate import Evaluation, Gathered, Measure, Metric
from pliant.train.worker.loop import Loop
from pliant.train.worker.model import ElasticModel
from pliant.train.worker.precision import Precision
from pliant.train.worker.reading import Reader
from pliant.train.worker.script import Values
from pliant.train.worker.snapshot import Keeper
from pliant.train.worker.steps import Batch, default_places
from pliant.train.worker.trained import Trained
from pliant.train.worker.work import work

P = ParamSpec("P")
R = TypeVar("R")


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
            self._runtime.tell_of_errors()

    @property
    def rank(self) -> int:
        """This worker's rank now; it may change after any step."""
        return self._runtime.rank

    @property
    def size(self) -> int:
        """The number of workers now."""
        return self._runtime.size

    @property
    def generation(self) -> int:
        """The number of the current generation, one fixed membership."""
        return self._runtime.number

    @property
    def interrupted(self) -> bool:
        """True once this generation's communicator has failed: a RuntimeError of this step is then dropped,
        and the step is redone."""
        return self._runtime.group.failed()

    @property
    def applied(self) -> int:
        """The number of global steps applied to the weights."""
        return self._loop.applied

    @property
    def is_main(self) -> bool:
        """True if this worker has rank 0 now. The role may move to another worker after any step, so side
        effects must be repeatable. Raises BadSettings before job.epochs()."""
        if not self._runtime.placed:
            raise BadSettings("job.is_main is known inside job.epochs() only: workers have no rank before it")
        return self.rank == 0

    def on_main(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """A decorator: only the worker that is_main calls the function; on the others it returns None."""

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if not self.is_main:
                return None
            group = self._runtime.group
            group.forbidden = "on_main must not contain collective calls."
            try:
                return function(*args, **kwargs)
            finally:
                group.forbidden = None

        return called

    def print(self, *values: Any, **options: Any) -> None:
        """`print` on the worker that is_main; on all workers before job.epochs(), when they have no ranks."""
        if self.rank == 0:
            print(*values, **{"flush": True, **options})

    @property
    def loss(self) -> float | None:
        """The mean loss of the last step over the records of its global batch; the same on all workers."""
        return self._loop.script.loss

    @property
    def evaluations(self) -> dict[int, dict[str, float]]:
        """Results of `evaluation`, by step; the same on all workers."""
        return self._loop.script.evaluations

    @property
    def grad_norm(self) -> float | None:
        """The norm of the last update's gradients before clipping; None without max_grad_norm or fp16."""
        norm = self._loop.parts().grad_norm
        return None if norm is None else float(norm)

    @property
    def skipped_updates(self) -> int:
        """The number of updates skipped because their gradients overflowed in fp16."""
        return self._loop.parts().precision.skipped

    def prepare(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        scheduler: Any = None,
        *,
        extras: dict[str, Any] | None = None,
        scheduler_per: str = "step",
        max_grad_norm: float | None = None,
        precision: str | None = None,
        **ddp: Any,
    ) -> tuple[Any, Any, Any]:
        """Returns (model, optimizer, scheduler) to train with. extras: other objects with state_dict(), by
        name. max_grad_norm: clips the gradients once per update, over the whole global batch. precision:
        "bf16" or "fp16" inside `autocast()`. Further arguments go to DistributedDataParallel."""
        if scheduler_per not in ("step", "epoch"):
            raise BadSettings(f"scheduler_per is 'step' or 'epoch', not {scheduler_per!r}")
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise BadSettings(f"max_grad_norm must be above 0, not {max_grad_norm}")
        wrapped = ElasticModel(model.to(self.device), self._runtime.group, ddp)
        wrapped.summing = not self.settings["logical_workers"]
        self._loop.trained = Trained(
            wrapped,
            _several(optimizer),
            _several(scheduler),
            extras or {},
            Precision(precision, self.device),
            per_epoch=scheduler_per == "epoch",
            max_grad_norm=max_grad_norm,
        )
        self.settings |= {"model": fingerprint(model), "precision": precision}
        return wrapped, optimizer, scheduler

    def unwrap(self, model: Any) -> torch.nn.Module:
        """The script's own module inside the model that `prepare` returned."""
        return model.module if isinstance(model, ElasticModel) else model

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for forward passes, with the precision given to `prepare`."""
        return self._loop.parts().precision.autocast()

    def state(self, **values: Any) -> Any:
        """The script's own plain values and their initial values: `s = job.state(best=0.0)`, then `s.best`.
        New workers and checkpoints get them; a discarded step restores them. They must be equal on all
        workers: compute them from job.loss or job.evaluations."""
        if self._runtime.placed and self._runtime.number:
            raise BadSettings("Call job.state() before job.epochs()")
        view, script = Values(self._loop.script), self._loop.script
        script.values |= values
        for name, value in values.items():
            setattr(view, name, value)
        return view

    def save_checkpoint(self) -> None:
        """Write a checkpoint when this step is over. Call it on all workers; the one that is_main writes."""
        self._loop.checkpoint_wanted = True

    def data(
        self,
        dataset: Any,
        *,
        global_batch: int,
        max_micro_batch: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        order: Callable[[int], Sequence[int]] | None = None,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        prefetch: int = 2,
        pin_memory: bool | None = None,
    ) -> "Job":
        """Returns what to iterate over in each epoch; it yields this rank's micro-batches. One update
        takes `global_batch` records at any number of workers, a micro-batch at most `max_micro_batch`.

        order(epoch): the indices of the epoch's records, as a sampler would give them, instead of a shuffle
        by `seed`. drop_last: leave out the short batch at the end of an epoch. collate: makes a batch from a
        list of records. workers: the number of processes that read ahead, `prefetch` micro-batches each.
        pin_memory: by default True on a GPU."""
        rows = dataset if isinstance(dataset, Rows) else Rows(dataset, collate)
        cap = global_batch if max_micro_batch is None else max_micro_batch
        if global_batch < 1 or cap < 1:
            raise BadSettings(
                f"Batches hold at least one record; got {global_batch} and at most {cap} at a time"
            )
        if workers < 0 or prefetch < 1:
            raise BadSettings(f"workers is at least 0 and prefetch at least 1; got {workers} and {prefetch}")
        if len(rows) == 0:
            raise BadData("The dataset is empty: there is nothing to train on")
        logical = self.settings["logical_workers"]
        if logical and global_batch < logical:
            raise BadSettings(
                f"A global batch of {global_batch} cannot be shared by {logical} logical workers: make the "
                "batch larger or the workers fewer"
            )
        own = None if order is None else GivenOrder(order, len(rows))
        used = len(rows) if own is None else len(own)
        if drop_last:
            used -= used % global_batch
            if used == 0:
                raise BadData(
                    f"drop_last leaves nothing of {len(rows)} records: a global batch has {global_batch}"
                )
        self.settings |= {
            "records": len(rows),
            "epoch_records": used,
            "order": None if own is None else own.fingerprint(),
            "global_batch": global_batch,
            "max_micro_batch": cap,
            "seed": seed,
            "shuffle": shuffle,
            "steps_per_epoch": steps_per_epoch(used, global_batch),
        }
        self._loop.places = default_places(self.settings) if own is None else own.indices
        pin = self.device.type == "cuda" if pin_memory is None else pin_memory
        self._loop.reader = Reader(rows, seed, workers=workers, prefetch=prefetch, pin_memory=pin)
        return self

    def epochs(self, count: int) -> Iterator[int]:
        """Yields the remaining epochs. A new worker begins in the middle of one; at the very end of one it
        still runs the script's code after the loop over the data, as the other workers do."""
        loop, script = self._loop, self._loop.script
        if loop.trained is None or loop.reader is None:
            raise BadSettings("Call prepare() and data() before epochs()")
        if count < 1:
            raise BadSettings(f"A job has at least one epoch, not {count}")
        each = self.settings["steps_per_epoch"]
        self.settings |= {"epochs": count, "steps_total": count * each}
        self._runtime.agree(self.settings)
        before = -1
        while True:
            loop.gather()
            if self._runtime.finished:
                break
            epoch, ended = self.applied // each, self.applied == (script.closed + 1) * each
            if (self.applied >= count * each and not ended) or script.stopping:
                loop.tell()
                loop.due = "done"
                continue
            if self.applied == before and not ended:
                raise BadSettings("An epoch went by without a step: iterate over the data in it")
            before = -1 if ended else self.applied
            script.closed = epoch - ended
            yield script.closed
            loop.end_of_epoch(epoch - ended, each)
        loop.reader.close()

    def __len__(self) -> int:
        """The number of updates per epoch."""
        return int(self.settings["steps_per_epoch"])

    def stop(self) -> None:
        """End the training after this epoch. All workers must call it: decide by job.loss, job.evaluations or
        job.state."""
        self._loop.script.stopping = True

    def __iter__(self) -> Iterator[Batch]:
        loop = self._loop
        self._check_length()
        end = (loop.script.closed + 1) * self.settings["steps_per_epoch"]
        while True:
            loop.gather()
            if self._runtime.finished or self.applied >= end:
                return
            yield from loop.one_step()

    def _check_length(self) -> None:
        reader, known = self._loop.reader, self.settings["records"]
        if reader is not None and len(reader.rows) < known:
            raise BadData(
                f"The dataset has shrunk from {known} to {len(reader.rows)} records since the job began: an "
                "epoch would be another. Put the records back, or begin a new job."
            )

    def step(self, batch: Batch) -> Step:
        """The context that computes one micro-batch; the last one of a global batch steps the optimizers."""
        if self._loop.running is None:
            raise BadSettings("step() takes a batch that the loop over the data has just given")
        return Step(self._loop, self._loop.running, batch)

    def evaluation(
        self,
        dataset: Any,
        function: Measure,
        *,
        every: int | None = None,
        batch: int = 256,
        metric: Metric | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        """Every `every` steps (default: after each epoch) all workers together run function(model, batch) on
        the weights of that step. It returns sums over the batch's records, by name; `evaluations` has the
        means over all records. Its values of `job.gather(x)` go to metric({name: x of all records})."""
        if (every is not None and every < 1) or batch < 1:
            raise BadSettings(
                f"evaluation: every and batch must be at least 1; got every={every}, batch={batch}"
            )
        rows = dataset if isinstance(dataset, Rows) else Rows(dataset, collate)
        self._loop.evaluation = Evaluation(rows, function, every, batch, metric)

    def gather(self, rows: torch.Tensor) -> Gathered:
        """Only inside the function of an evaluation: `rows` has one row per record. The metric gets the rows
        of all workers in the order of the dataset, each once."""
        self._runtime.group.allowed()
        evaluation = self._loop.evaluation
        if evaluation is None or not evaluation.running:
            raise BadSettings("job.gather() works in the function of job.evaluation() only")
        return Gathered(rows)

    def report(self, **values: float | str) -> None:
        """Adds these values to the report in the job's status."""
        self._loop.report |= values

    def work(
        self, name: str, records: int, function: Callable[[range], None], *, size: int, **options: Any
    ) -> int:
        """Free workers call function(range) until all records of [0, records) are done, in shards of `size`.
        Returns the number of skipped records. Options: stride, epochs, seed, shuffle, max_skipped_records."""
        return work(self._client, self._runtime.worker, name, records, function, size=size, **options)

    def digest(self) -> str:
        """A hash of all bits of the weights and buffers; equal on all ranks after each step."""
        return digest(self._loop.parts().model.module)

    def close(self) -> None:
        """Wait for the checkpoint being written, then leave without notice, as if the process had died."""
        if self._loop.reader is not None:
            self._loop.reader.close()
        self._loop.keeper.wait()
        self._runtime.close()


def _several(thing: Any) -> list[Any]:
    return [] if thing is None else list(thing) if isinstance(thing, (list, tuple)) else [thing]
