"""The script's state beside model and optimizer: job.state, losses, evaluations, epochs ended."""

import copy
from typing import Any

import torch

from pliant.train.errors import BadSettings
from pliant.train.rendezvous.state import pack


class ScriptState:
    """Part of each checkpoint and of the state that a new worker receives."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}  # of job.state, by name
        self.loss: float | None = None  # of the last step
        self.evaluations: dict[int, dict[str, float]] = {}  # by step
        self.closed = 0  # epochs whose code in the script has ended
        self.stopping = False  # the script wants no further epoch

    def state_dict(self) -> dict[str, Any]:
        """A deep copy. Raises BadSettings for a value that is not plain."""
        for name, value in self.values.items():
            _plain(name, value)
        return {
            "values": copy.deepcopy(self.values),
            "loss": self.loss,
            "evaluations": copy.deepcopy(self.evaluations),
            "closed": self.closed,
            "stopping": self.stopping,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`. A value that the state does not have stays as it is."""
        self.values |= {name: value for name, value in state["values"].items() if name in self.values}
        self.loss, self.evaluations = state["loss"], dict(state["evaluations"])
        self.closed, self.stopping = state["closed"], state["stopping"]

    def differences(self, others: dict[str, Any], theirs: str, mine: str) -> list[str]:
        """One warning for each of the script's values that differs between the two workers."""
        return [
            f"job.state.{name} differs between {theirs} ({others[name]!r}) and {mine} ({value!r}); using "
            f"{theirs}. Compute it from job.loss or job.evaluations."
            for name, value in self.values.items()
            if name in others and repr(others[name]) != repr(value)
        ]


class Values:
    """What `job.state(best=0.0)` returns: its values are attributes."""

    def __init__(self, script: ScriptState) -> None:
        object.__setattr__(self, "_script", script)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._script.values[name]
        except KeyError:
            raise AttributeError(
                f"job.state has no value {name!r}: name it in job.state({name}=...)"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._script.values:
            raise AttributeError(f"job.state has no value {name!r}: name it in job.state({name}=...)")
        _plain(name, value)
        self._script.values[name] = value

    def __repr__(self) -> str:
        return f"job.state({', '.join(f'{name}={value!r}' for name, value in self._script.values.items())})"


def _plain(name: str, value: Any) -> None:
    tensors: list[torch.Tensor] = []
    pack(value, tensors, f"job.state.{name}")
    if tensors:
        raise BadSettings(
            f"job.state.{name} holds a tensor: store numbers (tensor.item()), strings, lists and dicts; "
            "tensors belong into prepare(extras=...)."
        )
