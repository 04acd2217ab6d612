"""Orders: instructions to an engine. Each names an attempt, its cause and the epoch of its leader."""

from dataclasses import dataclass

from pliant.model.machine import Placement
from pliant.model.workload import AttemptId, Workload


@dataclass(frozen=True, slots=True)
class Start:
    """Start this attempt once. Repeating the order changes nothing."""

    attempt: AttemptId
    placement: Placement
    workload: Workload
    cause: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End this attempt: SIGTERM, `grace` ms, SIGKILL. Repeating the order changes nothing."""

    attempt: AttemptId
    node: str
    grace: int
    cause: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Change a live attempt that supports it to this placement; its deadline is `grace` ms from now."""

    attempt: AttemptId
    placement: Placement
    grace: int
    cause: str
    epoch: int


Order = Start | Stop | Resize
