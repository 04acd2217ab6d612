"""Mixed precision: what autocast computes in, and for fp16 the scale of the loss."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pliant.train.errors import BadSettings

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALE, _GROWTH, _BACKOFF, _INTERVAL = 65536.0, 2.0, 0.5, 2000  # as torch.amp.GradScaler has them


class Precision:
    """Every rank sees the same overflows, so that all scales stay equal without being sent."""

    def __init__(self, name: str | None, device: torch.device) -> None:
        if name is not None and name not in _TYPES:
            raise BadSettings(f"precision is 'bf16', 'fp16' or None, not {name!r}")
        self.name = name
        self.scale = _FIRST_SCALE if name == "fp16" else 1.0  # of the loss, and so of the gradients
        self.skipped = 0  # updates whose gradients had overflowed
        self._good = 0  # updates in a row without an overflow
        self._device = device.type

    @property
    def scaled(self) -> bool:
        """Whether the loss is scaled."""
        return self.name == "fp16"

    def autocast(self) -> AbstractContextManager[Any]:
        """What forward passes are to run in."""
        if self.name is None:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(self._device, dtype=_TYPES[self.name])
        return context

    def update(self, *, overflow: bool) -> None:
        """After each update: a smaller scale after an overflow, a larger one after many good updates."""
        if not self.scaled:
            return
        if overflow:
            self.scale *= _BACKOFF
            self.skipped += 1
            self._good = 0
        else:
            self._good += 1
            if self._good == _INTERVAL:
                self.scale *= _GROWTH
                self._good = 0

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints and newcomers."""
        return {"scale": self.scale, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse. Another precision than that of the state begins with its own scale."""
        self.skipped = state["skipped"]
        if self.scaled and state["scale"] != 1.0:
            self.scale, self._good = state["scale"], state["good"]
