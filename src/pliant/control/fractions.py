"""Shares of GPUs between engine and devices: how each is held, and what the node saw of it last."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from pliant.model.machine import Node
from pliant.model.order import Resize, Start
from pliant.model.workload import AttemptId


class How(StrEnum):
    """From the strongest hold on a share to none."""

    SHIM = "enforced by shim"
    COOPERATIVE = "cooperative"
    SCHEDULED = "scheduled, not enforced"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """How a task is held to its shares."""

    how: How
    why: str = ""  # for people: why it is no better; empty where it is enforced

    @property
    def text(self) -> str:
        return f"{self.how.value}: {self.why}" if self.why else self.how.value


@dataclass(frozen=True, slots=True)
class HandedOut:
    """What a task is started with so that it is held to its shares."""

    enforcement: Enforcement | None = None  # None: there is nothing to hold it to
    env: Mapping[str, str] = field(default_factory=dict)  # replaces
    front: Mapping[str, str] = field(default_factory=dict)  # stands before what it holds
    read_only: Path | None = None  # a folder that the task must not change


@dataclass(frozen=True, slots=True)
class PartUse:
    """One task's share of one GPU, in bytes."""

    gpu: str  # uuid
    limit: int
    request: int  # always there; what is between is lent
    used: int
    processes: int  # that use it


@dataclass(frozen=True, slots=True)
class TaskUse:
    """What the node saw last of a living task that holds shares."""

    enforcement: Enforcement
    parts: tuple[PartUse, ...]
    refused: int = 0  # allocations beyond a limit
    trouble: str = ""  # what is wrong, for people: who escaped, what was tampered with; empty: nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that may hold on this machine or not."""

    what: str
    holds: bool
    text: str  # how, or why not


class Sharing(NamedTuple):
    """What it takes to give pods of a cluster parts of GPUs. Each may raise ValueError."""

    image: str  # of Pliant
    conf: Callable[[Start, Mapping[str, str], Mapping[str, int], str], str]
    """The text of gpu.conf: of a start, UUIDs and bytes by device, path of the ledger."""

    limits: Callable[[Mapping[AttemptId, str], str, int], Mapping[AttemptId, str]]
    """New texts of those that share the GPU of that UUID, which has so many bytes for them; those alone that
    change."""

    lends: Callable[[str], bool]
    """Whether with that text a pod may have more than it asked for."""

    keeps_to: Callable[[str, str], bool]
    """Whether a pod has heard of that text and uses no more, by what pliant-gpu-used prints in it."""


class Fractions(Protocol):
    """Hands shares of GPUs out and watches them. All methods are safe to call from any thread."""

    def hand_out(self, order: Start, node: Node, folder: Path, writable: str) -> HandedOut:
        """Complete before the task's program starts; `folder` is the attempt's. `writable` says why the task
        could change files of the node; empty: it cannot. Raises ValueError or OSError: what is wrong."""

    evict: Callable[[AttemptId], None]  # stops a task that does not give back what was lent to it

    def adopt(self, attempt: AttemptId, folder: Path, enforcement: Enforcement, node: Node | None) -> None:
        """An attempt that an earlier server handed out lives, on that node."""

    def sweep(self) -> None:
        """All that lives was adopted: what else is there was left behind."""

    def resize(self, order: Resize, node: Node, *, keep: bool = False) -> None:
        """New limits for a running task; with `keep` it goes on having the GPUs that it loses. Raises
        ValueError or OSError: then those of before hold."""

    def fits(self, attempt: AttemptId) -> bool:
        """Whether the task now uses no more than its limits."""

    def release(self, attempt: AttemptId) -> None:
        """Nothing of the attempt is to live any more: returns once nothing uses its shares."""

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        """The last look, about a second old."""

    def close(self) -> None: ...


class Unheld:
    """Where nothing enforces shares."""

    def __init__(self, why: str) -> None:
        self._why = why
        self.evict: Callable[[AttemptId], None] = lambda attempt: None

    def hand_out(self, order: Start, node: Node, folder: Path, writable: str) -> HandedOut:
        return HandedOut(Enforcement(How.SCHEDULED, self._why))

    def adopt(
        self, attempt: AttemptId, folder: Path, enforcement: Enforcement, node: Node | None
    ) -> None: ...

    def sweep(self) -> None: ...

    def resize(self, order: Resize, node: Node, *, keep: bool = False) -> None: ...

    def fits(self, attempt: AttemptId) -> bool:
        return True

    def release(self, attempt: AttemptId) -> None: ...

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        return {}

    def close(self) -> None: ...
