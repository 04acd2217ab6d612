"""Gradient accumulation: `Optimizer(optimizer, steps)` and `SGD(..., steps=4)` update every `steps` steps."""

from collections.abc import Callable
from typing import Any

import torch

from runai.elastic.torch import BatchSampler


class Optimizer(torch.optim.Optimizer):  # type: ignore[misc]  # torch is not read by the type checker
    """Adds up gradients and steps with their mean over the records of an update.

    With `batches` (a runai.elastic.torch.BatchSampler) an update ends where that sampler's update ends, and
    its batch sizes are the weights. Without, an update ends after `steps` calls of equal weight. `flush` ends
    it early. The loss of a batch must be the mean over its records. Learning-rate schedulers accept it as any
    optimizer; step them once per update (see `stepped`) or per epoch.
    """

    def __init__(self, optimizer: Any, steps: int = 1, *, batches: BatchSampler | None = None) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, not {steps}")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.optimizer = optimizer
        self.param_groups, self.state = optimizer.param_groups, optimizer.state  # shared with schedulers
        self.steps, self.stepped = steps, False  # stepped: the last call of step() was an update
        self._sizes = [[1] * steps] if batches is None else batches.updates()
        self._update = self._calls = self._records = 0  # index of the update; calls and records so far in it
        self._sums: dict[Any, Any] = {}  # parameter -> sum of gradient x records of the batch

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the last batch; the accumulated sums stay."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Adds the gradients of one batch; updates the model if the batch is the last one of its update."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        sizes = self._sizes[self._update]
        self._take(sizes[self._calls])
        self._calls += 1
        self.stepped = self._calls == len(sizes)
        if self.stepped:
            self.flush()
        return result

    def flush(self) -> None:
        """Updates with the gradients so far, if any; for the end of an epoch that `steps` does not divide."""
        if self._calls:
            for parameter, total in self._sums.items():
                parameter.grad = total / self._records
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self._sums.clear()
            self._calls = self._records = 0
            self._update = (self._update + 1) % len(self._sizes)
            self.stepped = True

    def _take(self, records: int) -> None:
        self._records += records
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    part = parameter.grad.detach() * records
                    known = self._sums.get(parameter)
                    self._sums[parameter] = part if known is None else known.add_(part)
        self.optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> Any:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Loads a checkpoint that was made after an update; drops the gradients added since then."""
        self.optimizer.load_state_dict(state_dict)
        self.param_groups, self.state = self.optimizer.param_groups, self.optimizer.state
        self._sums.clear()
        self._calls = self._records = 0


def __getattr__(name: str) -> Callable[..., Optimizer]:
    """A torch optimizer by its name, which also takes `steps` or `batches`."""
    kind = getattr(torch.optim, name, None)
    if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def make(*args: Any, steps: int = 1, batches: BatchSampler | None = None, **more: Any) -> Optimizer:
        return Optimizer(kind(*args, **more), steps, batches=batches)

    return make
