"""Mixed precision: the type that autocast computes in and, for fp16, the loss scale."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pliant.train.errors import BadSettings

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALE, _GROWTH, _BACKOFF, _INTERVAL = 65536.0, 2.0, 0.5, 2000  # as torch.amp.GradScaler has them


class Precision:
    """All ranks see the same overflows, so their scales stay equal without being sent."""

    def __init__(self, name: str | None, device: torch.device) -> None:
        if name is not None and name not in _TYPES:
            raise BadSettings(f"precision is 'bf16', 'fp16' or None, not {name!r}")
        self.name = name
        self.scale = _FIRST_SCALE if name == "fp16" else 1.0  # of the loss, and so of the gradients
        self.skipped = 0  # updates whose gradients overflowed
        self._good = 0  # updates in a row without an overflow
        self._device = device.type

    @property
    def scaled(self) -> bool:
        """True if the loss is scaled."""
        return self.name == "fp16"

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for forward passes."""
        if self.name is None:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(self._device, dtype=_TYPES[self.name])
        return context

    def update(self, *, overflow: bool) -> None:
        """After each update: lowers the scale after an overflow, raises it after 2000 good ones in a row."""
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
        return {"name": self.name, "scale": self.scale, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`. The scale stays as it is if the state has another precision."""
        self.skipped = state["skipped"]
        # A checkpoint of an earlier version has no name; there a scale of 1.0 was taken for none.
        theirs_scaled = state["name"] == "fp16" if "name" in state else state["scale"] != 1.0
        if self.scaled and theirs_scaled:
            self.scale, self._good = state["scale"], state["good"]
