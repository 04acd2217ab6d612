"""The user's model inside DistributedDataParallel, which is created again at each generation."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pliant.train.rendezvous.group import ElasticGroup


class ElasticModel(nn.Module):  # type: ignore[misc]
    """The user's module; `forward` goes through the DistributedDataParallel of this generation.

    Each generation creates a new DDP (milliseconds), so that new and old workers agree on its buckets and
    nothing of a discarded step is left in it. To the script it is the module itself: attributes, parameter
    names and state_dict() are the module's.
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
        self._ddp: list[Any] = []  # a list hides it from nn.Module, which would count all parameters twice
        self.summing = True  # False: gradients stay on this rank

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inside = self._ddp[0] if self._ddp and self.summing else self.module
        return inside(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Also loads a state that DistributedDataParallel saved, with `module.` before each name."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            own = self.module.state_dict()
            if not all(name in own for name in state_dict):
                state_dict = {name.removeprefix("module."): value for name, value in state_dict.items()}
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.named_buffers(*args, **kwargs)

    def accumulate(self) -> AbstractContextManager[None]:
        """Within it, backward adds to the gradients of this rank only."""
        return self._ddp[0].no_sync() if self._ddp and self.summing else nullcontext()

    def release(self) -> None:
        """Drop DDP and all gradients."""
        for ddp in self._ddp:
            ddp._remove_autograd_hooks()
        self._ddp.clear()
        for parameter in self.module.parameters():
            parameter.grad = None

    def renew(self) -> None:
        """Create the DDP of a new generation; none in a world of one or if gradients stay on this rank."""
        self.release()
        if self.summing and self._group.size_now > 1:
            with warnings.catch_warnings():  # the new option does something else, as the warning says
                warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)
                ddp = DistributedDataParallel(self.module, process_group=self._group, **self._options)
            self._ddp.append(ddp)
