"""What is trained: the user's model inside DistributedDataParallel, its optimizers and schedulers, as one
state."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pliant.train.errors import BadCheckpoint
from pliant.train.rendezvous.group import ElasticGroup


class ElasticModel(nn.Module):  # type: ignore[misc]
    """The user's module; `forward` goes through the DistributedDataParallel of this generation.

    DDP is made anew at each generation (milliseconds): a newcomer's and a survivor's then agree on their
    buckets, and what a discarded step left behind in it is gone.
    """

    def __init__(self, module: nn.Module, group: ElasticGroup, options: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._options = {
            "broadcast_buffers": False,
            "init_sync": False,
            "gradient_as_bucket_view": True,
            **options,
        }
        self._group = group
        self._ddp: list[Any] = []  # in a list: a second registration would double all parameters
        self.summing = True  # False: gradients stay on this rank

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inside = self._ddp[0] if self._ddp and self.summing else self.module
        return inside(*args, **kwargs)

    def accumulate(self) -> AbstractContextManager[None]:
        """Within it, backward adds to the gradients of this rank only."""
        return self._ddp[0].no_sync() if self._ddp and self.summing else nullcontext()

    def release(self) -> None:
        """Give up DDP; gradients go with it."""
        for ddp in self._ddp:
            ddp._remove_autograd_hooks()
        self._ddp.clear()
        for parameter in self.module.parameters():
            parameter.grad = None

    def renew(self) -> None:
        """A DDP for a new generation; none for a world of one or where nothing is to be summed."""
        self.release()
        if self.summing and self._group.size_now > 1:
            with warnings.catch_warnings():  # its newer name does something else, as the warning itself says
                warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)
                ddp = DistributedDataParallel(self.module, process_group=self._group, **self._options)
            self._ddp.append(ddp)


class Trained:
    """Model, optimizers, schedulers and whatever else has state_dict(): one state that moves as a whole."""

    def __init__(
        self,
        model: ElasticModel,
        optimizers: Sequence[Any],
        schedulers: Sequence[Any],
        extras: dict[str, Any],
        *,
        per_epoch: bool = False,
        max_grad_norm: float | None = None,
    ) -> None:
        self.model = model
        self.optimizers = list(optimizers)
        self.schedulers = list(schedulers)
        self.extras = extras
        self._saved = frozenset(model.module.state_dict())  # names
        self._per_epoch = per_epoch
        self._max_grad_norm = max_grad_norm

    def parameters(self) -> list[torch.Tensor]:
        """Those that are trained."""
        return [parameter for parameter in self.model.module.parameters() if parameter.requires_grad]

    def buffers(self) -> list[torch.Tensor]:
        """Those that a forward pass may change: what is not saved, like a mask, is a constant."""
        return [buffer for name, buffer in self.model.module.named_buffers() if name in self._saved]

    def state(self) -> dict[str, Any]:
        """Everything."""
        return {
            "model": dict(self.model.module.state_dict()),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "extras": {name: thing.state_dict() for name, thing in self.extras.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a state, in place. Raises BadCheckpoint if it is not one of this script."""
        try:
            self.model.module.load_state_dict(state["model"])
            for kind, mine in (("optimizers", self.optimizers), ("schedulers", self.schedulers)):
                for thing, saved in zip(mine, state[kind], strict=True):
                    thing.load_state_dict(saved)
            for name, thing in self.extras.items():
                thing.load_state_dict(state["extras"][name])
        except (KeyError, ValueError, RuntimeError) as error:
            raise BadCheckpoint(f"This state belongs to another script: {error}") from error

    def discard(self, buffers: Sequence[torch.Tensor]) -> None:
        """Forget the step that was begun: no gradients, buffers as they were."""
        self.zero()
        with torch.no_grad():
            for mine, before in zip(self.buffers(), buffers, strict=True):
                mine.copy_(before)

    def zero(self) -> None:
        """No gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        for parameter in self.parameters():
            parameter.grad = None

    def apply(self, last_of_epoch: bool) -> None:
        """One step of the optimizers, and of the schedulers where one is due."""
        if self._max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters(), self._max_grad_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        if last_of_epoch or not self._per_epoch:
            for scheduler in self.schedulers:
                scheduler.step()
        self.zero()

    # -- gradients by hand, for logical workers --------------------------------------------------------

    def flat(self) -> torch.Tensor:
        """All gradients as one vector, zeros where there is none."""
        parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters()]
        return torch.cat([part.detach().reshape(-1) for part in parts])

    def unflatten(self, vector: torch.Tensor) -> None:
        """Gradients from one vector."""
        at = 0
        for parameter in self.parameters():
            count = parameter.numel()
            parameter.grad = vector[at : at + count].view_as(parameter).clone()
            at += count

    def share_buffers(self, group: ElasticGroup, source: int) -> None:
        """The source's buffers on all ranks, as one message per type."""
        for same in by_type(self.buffers()):
            together = torch.cat([buffer.detach().reshape(-1) for buffer in same])
            group.send(together, source)
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
