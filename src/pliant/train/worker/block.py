"""`with job.step(batch) as step:`, the block that computes a micro-batch."""

from contextlib import AbstractContextManager
from types import TracebackType

import torch

from pliant.train.errors import BadSettings, GenerationOver
from pliant.train.worker.loop import Loop
from pliant.train.worker.steps import Batch, Running, random_seed, seed_all


class Step:
    """An error of the communicator ends the block silently: the loop goes on with the first micro-batch of
    the same step, which the next generation divides among its workers."""

    def __init__(self, loop: Loop, running: Running, batch: Batch) -> None:
        self._loop = loop
        self._running = running
        self._batch = batch
        self._scope: AbstractContextManager[None] | None = None

    @property
    def applied(self) -> bool:
        """After the block: True if it was the last one of a global batch and the update is applied."""
        return self._running.applied

    def __enter__(self) -> "Step":
        part, running, trained = self._batch.part, self._running, self._loop.parts()
        running.backward = False
        trained.check(running.marks)
        running.marks = []
        if part.first:
            seed_all(random_seed(self._loop.settings["seed"], running.plan.step, part.lane))
        if not part.last:
            self._scope = trained.model.accumulate()
            self._scope.__enter__()
        return self

    def backward(self, loss: torch.Tensor, *, reduction: str = "mean") -> None:
        """Add this micro-batch's gradients. `loss` is the mean over its records (or their sum:
        reduction="sum")."""
        if not isinstance(loss, torch.Tensor):
            raise BadSettings(
                f"backward() needs the loss tensor, not {type(loss).__name__}: pass loss, not loss.item()."
            )
        if reduction not in ("mean", "sum"):
            raise BadSettings(f"reduction is 'mean' or 'sum', not {reduction!r}")
        if loss.dim() != 0:
            raise BadSettings(f"backward() takes one number, the loss has the shape {tuple(loss.shape)}")
        if not loss.requires_grad:
            raise BadSettings("The loss has no gradient; was it computed under torch.no_grad()?")
        running, batch = self._running, self._batch
        if running.backward:
            raise BadSettings(
                "backward() was called twice for one micro-batch: add the losses and call it once."
            )
        own = len(batch.ids)
        records = (batch.size if reduction == "mean" else 1) if own else 0
        lane = batch.part.lane
        value = loss.detach().to(torch.float64) * records
        running.losses[lane] = running.losses[lane] + value if lane in running.losses else value
        running.counted += own
        running.backward = True
        if batch.part is running.plan.parts[-1]:
            self._loop.begin_agreement(running)
        scale = self._loop.parts().precision.scale
        (loss * (scale * records / running.plan.count)).backward()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
        if kind is None and not self._running.backward:
            raise BadSettings("A micro-batch went by without step.backward(loss)")
        if isinstance(error, GenerationOver) or (
            isinstance(error, RuntimeError) and self._loop.runtime.group.failed()
        ):
            self._loop.discard()
            return True
        if error is not None:
            return False
        return self._loop.part_done(self._batch.part)
