"""The trained objects as one state: model, optimizers, schedulers and the script's others with
state_dict()."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pliant.train.errors import BadCheckpoint, BadSettings
from pliant.train.worker.model import ElasticModel
from pliant.train.worker.precision import Precision

Marks = list[tuple[torch.Tensor, torch.Tensor, int]]  # (parameter, its gradient, the gradient's version)


class Trained:
    """The model, optimizers, schedulers and extras given to `prepare`."""

    def __init__(
        self,
        model: ElasticModel,
        optimizers: Sequence[Any],
        schedulers: Sequence[Any],
        extras: dict[str, Any],
        precision: Precision,
        *,
        per_epoch: bool = False,
        max_grad_norm: float | None = None,
    ) -> None:
        self.model = model
        self.optimizers = list(optimizers)
        self.schedulers = list(schedulers)
        self.extras = extras
        self.precision = precision
        self.grad_norm: torch.Tensor | None = None  # of the last update, before clipping
        saved = frozenset(model.module.state_dict())  # names
        # Found once: walking all modules of a large model in each step takes as long as the sums.
        self._parameters = [p for p in model.module.parameters() if p.requires_grad]
        self._buffers = [  # (module, name in it): a module may replace the tensor
            (module, name)
            for prefix, module in model.module.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and f"{prefix}.{name}".lstrip(".") in saved
        ]
        self._per_epoch = per_epoch
        self._max_grad_norm = max_grad_norm
        self._applying = False
        for thing in (*self.optimizers, *self.schedulers, *extras.values()):
            if isinstance(thing, torch.amp.GradScaler):
                raise BadSettings('Pass precision="fp16" instead of using a GradScaler.')
        for scheduler in self.schedulers:
            if isinstance(scheduler, ReduceLROnPlateau):
                raise BadSettings(
                    "ReduceLROnPlateau needs a number at each step: pass it as extras={'plateau': scheduler} "
                    "and call scheduler.step(value) in the script, where value is the same on all workers."
                )
        for optimizer in self.optimizers:
            if isinstance(optimizer, Optimizer):
                optimizer.register_step_pre_hook(self._only_here)

    def _only_here(self, *_: Any) -> None:
        if not self._applying:
            raise BadSettings(
                "Remove optimizer.step() from the loop: Pliant calls it once per global batch, when the "
                "gradients of all workers are summed. With an own GradScaler, remove that as well and pass "
                'precision="fp16".'
            )

    def parameters(self) -> list[torch.Tensor]:
        """The parameters that require gradients."""
        return self._parameters

    def buffers(self) -> list[torch.Tensor]:
        """The saved buffers, which a forward pass may change; unsaved ones, like a mask, are constants."""
        return [module._buffers[name] for module, name in self._buffers]

    def state(self) -> dict[str, Any]:
        """The whole state."""
        return {
            "model": dict(self.model.module.state_dict()),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "extras": {name: thing.state_dict() for name, thing in self.extras.items()},
            "precision": self.precision.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Load a state in place. Raises BadCheckpoint if it does not fit this script."""
        try:
            self.model.module.load_state_dict(state["model"])
            for kind, mine in (("optimizers", self.optimizers), ("schedulers", self.schedulers)):
                for thing, saved in zip(mine, state[kind], strict=True):
                    thing.load_state_dict(saved)
            for name, thing in self.extras.items():
                thing.load_state_dict(state["extras"][name])
            if "precision" in state:  # a checkpoint of an earlier version has none
                self.precision.load_state_dict(state["precision"])
        except (KeyError, ValueError, RuntimeError) as error:
            raise BadCheckpoint(f"This state belongs to another script: {error}") from error

    def discard(self, buffers: Sequence[torch.Tensor]) -> None:
        """Discard the running step: clear the gradients and restore these buffers."""
        self.zero()
        with torch.no_grad():
            for mine, before in zip(self.buffers(), buffers, strict=True):
                mine.copy_(before)

    def zero(self) -> None:
        """Clear all gradients."""
        for parameter in self._parameters:
            parameter.grad = None
        for optimizer in self.optimizers:
            for group in getattr(optimizer, "param_groups", ()):
                for parameter in group["params"]:
                    parameter.grad = None

    def unscale(self) -> bool:
        """Divide the gradients by the loss scale. True if they have overflowed."""
        gradients = self._gradients()
        if gradients:
            torch._foreach_div_(gradients, self.precision.scale)
        self.grad_norm = get_total_norm(gradients)
        return not bool(torch.isfinite(self.grad_norm))

    def apply(self, *, last_of_epoch: bool, overflow: bool) -> None:
        """Do one update, and a step of the schedulers if one is due. An overflow skips the update and the
        step of a scheduler that steps with each update."""
        if not overflow:
            if self._max_grad_norm is not None:
                if not self.precision.scaled:
                    self.grad_norm = get_total_norm(self._gradients())
                clip_grads_with_norm_(self.parameters(), self._max_grad_norm, self.grad_norm)
            self._applying = True
            try:
                for optimizer in self.optimizers:
                    optimizer.step()
            finally:
                self._applying = False
        self.precision.update(overflow=overflow)
        if last_of_epoch if self._per_epoch else not overflow:
            for scheduler in self.schedulers:
                scheduler.step()
        self.zero()

    def _gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.parameters() if parameter.grad is not None]

    def marks(self) -> Marks:
        """One gradient of each optimizer and its version; `check` finds what the script changes between two
        micro-batches."""
        found: Marks = []
        for optimizer in self.optimizers:
            for group in getattr(optimizer, "param_groups", ()):
                first = next((p for p in group["params"] if p.grad is not None), None)
                if first is not None:
                    found.append((first, first.grad, first.grad._version))
                    break
        return found

    @staticmethod
    def check(marks: Marks) -> None:
        """Raises BadSettings if gradients have changed since `marks`."""
        for parameter, gradient, version in marks:
            if parameter.grad is not gradient or gradient._version != version:
                raise BadSettings(
                    "The gradients were changed between two micro-batches of one global batch. Remove "
                    "optimizer.zero_grad() and clip_grad_norm_() from the loop: Pliant clears them after "
                    "each update, and prepare(max_grad_norm=...) clips them."
                )

    # -- gradients by hand, for logical workers ----------------------------------------------------------

    def flat(self) -> torch.Tensor:
        """All gradients as one vector, zeros where there is none."""
        parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters()]
        return torch.cat([part.detach().reshape(-1) for part in parts])

    def unflatten(self, vector: torch.Tensor) -> None:
        """Set all gradients from one vector."""
        at = 0
        for parameter in self.parameters():
            count = parameter.numel()
            parameter.grad = vector[at : at + count].view_as(parameter).clone()
            at += count

    # -- buffers -----------------------------------------------------------------------------------------

    def packed_buffers(self) -> list[torch.Tensor]:
        """All buffers, as one vector per type."""
        return [torch.cat([b.detach().reshape(-1) for b in same]) for same in by_type(self.buffers())]

    def unpack_buffers(self, vectors: Sequence[torch.Tensor]) -> None:
        """The inverse of `packed_buffers`."""
        for same, together in zip(by_type(self.buffers()), vectors, strict=True):
            at = 0
            with torch.no_grad():
                for buffer in same:
                    buffer.copy_(together[at : at + buffer.numel()].view_as(buffer))
                    at += buffer.numel()


def by_type(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Groups of one dtype, in a stable order."""
    groups: dict[Any, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    yield from groups.values()
