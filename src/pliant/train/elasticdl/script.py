"""The program of one worker process: trains, evaluates or predicts with a model file."""

import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import pliant.train
from pliant.train.data.rows import Rows, to_device
from pliant.train.elasticdl.feed import rows_of
from pliant.train.elasticdl.flags import EVALUATION, MODES, TRAINING, Flags
from pliant.train.elasticdl.modelfile import ModelFile, forward
from pliant.train.elasticdl.results import Parts, blocks
from pliant.train.errors import BadCheckpoint, BadData, BadSettings, TrainError
from pliant.train.rendezvous.state import fingerprint
from pliant.train.worker.evaluate import measured
from pliant.train.worker.job import Job
from pliant.train.worker.snapshot import weights

Compute = Callable[[Any, Rows, range, int], Any]  # (model, rows, places, minibatch) -> what is written
SAY_EVERY = 100  # steps between two lines printed by rank 0


def run(flags: Flags) -> None:
    """Run the job by its flags. Raises TrainError; the job's exception hook reports it to the master."""
    if "OMP_NUM_THREADS" not in os.environ:  # workers on one machine share its cores, with others
        torch.set_num_threads(max((os.cpu_count() or 1) // (flags.workers + 1), 1))
    hooks: list[Callable[[int, list[int]], None]] = []  # known once the file is read

    def tell(step: int, ids: Sequence[int]) -> None:
        for hook in hooks:
            hook(step, list(ids))

    job = pliant.train.init(
        checkpoint_dir=flags.checkpoint_dir or None,
        checkpoint_every=flags.checkpoint_steps,
        keep_checkpoints=flags.keep_checkpoints,
        on_applied=tell,
    )
    torch.manual_seed(flags.seed)
    folder = os.environ.get("PLIANT_TRAIN_DIR")
    file = ModelFile(flags.model_file, flags.mode, flags.names, Path(folder) if folder else None)
    if flags.mode == "train":
        if file.has("on_applied"):
            hooks.append(lambda step, ids: file.call("on_applied", step, ids))
        _train(flags, file, job)
    elif flags.mode == "evaluate":
        _by_blocks(flags, file, job, _measured(file, job))
    else:
        _by_blocks(flags, file, job, _predicted(file, job))


def _train(flags: Flags, file: ModelFile, job: Job) -> None:
    model = file.model()
    optimizer, scheduler = file.optimizer(model)
    network, _, _ = job.prepare(model, optimizer, scheduler)
    rows = rows_of(file, flags, TRAINING)
    data = job.data(rows, global_batch=flags.global_batch, max_micro_batch=flags.minibatch, seed=flags.seed)
    loss, told = file.loss(), Told(file, job)
    if flags.validation_data:
        steps = flags.epochs * -(-len(rows) // flags.global_batch)
        every = flags.evaluation_steps or steps
        validation = rows_of(file, flags, EVALUATION)
        job.evaluation(validation, sums_of(file), every=every, batch=flags.minibatch)
    for epoch in job.epochs(flags.epochs):
        for batch in data:
            with job.step(batch) as step:
                with file.blamed("model", unless=lambda: job.size > 1 or job.interrupted):
                    output = forward(model, network, batch.x)
                step.backward(loss(output, batch.y))
            told.step()
        told.epoch(epoch)
    told.end()


class Told:
    """Prints rank 0's progress and calls the model file's callbacks, on rank 0 only."""

    def __init__(self, file: ModelFile, job: Job) -> None:
        self._file, self._job = file, job
        self._callbacks = file.callbacks()
        self._step, self._evaluated = -1, -1

    def step(self) -> None:
        """Call it after each micro-batch; it reports once per step."""
        job = self._job
        if job.rank != 0 or job.applied == self._step:
            return
        self._evaluation()
        if self._step >= 0:  # the first look may be in the middle of a step
            self._tell("on_train_batch_end", job.applied, {"loss": job.loss})
        self._step = job.applied
        if job.applied % SAY_EVERY == 0 and job.loss is not None:
            total = job.settings["steps_total"]
            workers = f"{job.size} worker{'' if job.size == 1 else 's'}"
            _say(f"step {job.applied} of {total}: loss {job.loss:.6f}, {workers}")

    def epoch(self, epoch: int) -> None:
        """Call it after each epoch."""
        if self._job.rank == 0 and self._job.loss is not None:
            _say(f"epoch {epoch + 1}: loss {self._job.loss:.6f}")
            self._tell("on_epoch_end", epoch, {"loss": self._job.loss})

    def end(self) -> None:
        """Call it after the training."""
        if self._job.rank == 0:
            self._evaluation()
            self._tell("on_train_end", {"loss": self._job.loss})

    def _evaluation(self) -> None:
        fresh = max(self._job.evaluations, default=-1)
        if fresh > self._evaluated:
            self._evaluated, found = fresh, self._job.evaluations[fresh]
            _say(f"step {fresh}: evaluated, " + ", ".join(f"{n} {v:.6g}" for n, v in sorted(found.items())))
            self._tell("on_test_end", found)

    def _tell(self, name: str, *values: Any) -> None:
        for callback in self._callbacks:
            if hasattr(callback, name):
                with self._file.blamed("callbacks"):
                    getattr(callback, name)(*values)


def sums_of(file: ModelFile) -> Callable[[Any, Any], dict[str, Any]]:
    """function(model, batch) -> sums of the loss and the metrics over the batch's records. A metric returns a
    value per record, or their mean."""
    loss, metrics = file.loss(), file.metrics()

    def sums(model: torch.nn.Module, batch: Any) -> dict[str, Any]:
        features, labels = batch
        with file.blamed("model"):
            output = forward(model, model, features)
        count = _length(features)
        found: dict[str, Any] = {"loss": loss(output, labels) * count}
        for name, function in metrics.items():
            with file.blamed("eval_metrics_fn"):
                value = torch.as_tensor(function(output, labels)).double()
            found[name] = value.mean() * count  # the same for one number and for a value of each record
        return found

    return sums


def _length(features: Any) -> int:
    if isinstance(features, torch.Tensor):
        return len(features)
    return _length(next(iter(features.values() if isinstance(features, dict) else features)))


# -- evaluation and prediction: independent blocks of records, by any free worker ----------------------------


def _by_blocks(flags: Flags, file: ModelFile, job: Job, compute: Compute) -> None:
    folder = os.environ.get("PLIANT_TRAIN_DIR")
    if folder is None:
        raise BadSettings("Only a worker of a job can do this: run `python -m pliant.train.elasticdl local`")
    model = file.model().to(job.device)
    load_weights(model, flags.checkpoint_dir or os.environ.get("PLIANT_CHECKPOINT_DIR", ""))
    rows = rows_of(file, flags, MODES[flags.mode])
    parts = Parts(Path(folder), flags.mode)
    errors: list[str] = []  # of the blocks that could not be computed here
    total = blocks(len(rows), flags.records_per_task)

    def block(numbers: range) -> None:
        for number in numbers:
            start = number * flags.records_per_task
            places = range(start, min(start + flags.records_per_task, len(rows)))
            try:
                parts.write(number, compute(model, rows, places, flags.minibatch))
            except Exception as error:
                shown = traceback.format_exception(error)
                errors.append(str(error) if isinstance(error, TrainError) else "".join(shown))
                raise

    try:
        job.work(flags.mode, total, block, size=1)
    except BadData as error:
        why = f"\n{errors[0]}" if errors else ""
        raise BadData(f"{error} A record here is a block of {flags.records_per_task}.{why}") from error


def _measured(file: ModelFile, job: Job) -> Compute:
    sums = sums_of(file)

    def compute(model: Any, rows: Rows, places: range, minibatch: int) -> Any:
        return {"records": len(places), **measured(model, rows, places, sums, minibatch, job.device)[0]}

    return compute


def _predicted(file: ModelFile, job: Job) -> Compute:
    def compute(model: Any, rows: Rows, places: range, minibatch: int) -> Any:
        model.eval()
        found: list[tuple[int, dict[str, list[Any]]]] = []
        with torch.no_grad():
            for start in range(places.start, places.stop, minibatch):
                ids = list(range(start, min(start + minibatch, places.stop)))
                features = to_device(rows.take(ids), job.device)[0]
                with file.blamed("model"):
                    output = forward(model, model, features)
                named = output if isinstance(output, dict) else {"output": output}
                columns = {n: v.detach().cpu().reshape(len(ids), -1).tolist() for n, v in named.items()}
                found += [(i, {n: v[at] for n, v in columns.items()}) for at, i in enumerate(ids)]
        return found

    return compute


def load_weights(model: torch.nn.Module, folder: str) -> None:
    """Load a job's final weights from its checkpoint folder, else those of its newest checkpoint. Raises
    BadCheckpoint; BadSettings without a folder."""
    if not folder:
        raise BadSettings("Name the weights to use: --checkpoint_dir=FOLDER of the job that trained them")
    tensors, manifest = weights(folder)
    if manifest.get("model") != fingerprint(model):
        raise BadCheckpoint(f"{folder} holds another model than this file's: check --checkpoint_dir")
    model.load_state_dict(tensors)


def _say(text: str) -> None:
    print(text, flush=True)
