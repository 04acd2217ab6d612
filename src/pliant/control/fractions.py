"""Shares of GPUs, between engine and devices: how each is enforced, and its use as last observed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from pliant.model.machine import Node
from pliant.model.order import Resize, Start
from pliant.model.workload import AttemptId


class How(StrEnum):
    """How a share is enforced, from the strongest way to none."""

    SHIM = "enforced by shim"
    COOPERATIVE = "cooperative"
    SCHEDULED = "scheduled, not enforced"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """How a task's shares are enforced."""

    how: How
    why: str = ""  # for people: why it is not stronger; '' if it is enforced

    @property
    def text(self) -> str:
        return f"{self.how.value}: {self.why}" if self.why else self.how.value


@dataclass(frozen=True, slots=True)
class HandedOut:
    """What a task is started with so that its shares are enforced."""

    enforcement: Enforcement | None = None  # None: there is nothing to enforce
    env: Mapping[str, str] = field(default_factory=dict)  # variables that replace the task's own
    front: Mapping[str, str] = field(default_factory=dict)  # values to put before those of its variables
    read_only: Path | None = None  # a folder that the task must not change


@dataclass(frozen=True, slots=True)
class PartUse:
    """One task's share of one GPU, in bytes."""

    gpu: str  # uuid
    limit: int
    request: int  # guaranteed; what is between request and limit is lent
    used: int
    processes: int  # how many use it


@dataclass(frozen=True, slots=True)
class TaskUse:
    """What the node last observed of a live task that holds shares."""

    enforcement: Enforcement
    parts: tuple[PartUse, ...]
    refused: int = 0  # allocations beyond a limit
    trouble: str = ""  # what is wrong, for people: an escape, tampering; '': nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition that this machine may meet or not."""

    what: str
    holds: bool
    text: str  # how, or why not


class Sharing(NamedTuple):
    """What is needed to give pods of a cluster parts of GPUs. Each function may raise ValueError."""

    image: str  # of Pliant
    conf: Callable[[Start, Mapping[str, str], Mapping[str, int], str], str]
    """The text of gpu.conf, from a start, UUIDs and bytes by device, and the path of the ledger."""

    limits: Callable[[Mapping[AttemptId, str], str, int], Mapping[AttemptId, str]]
    """The changed texts among those of the attempts that share the GPU of that UUID, which has that many
    bytes for them."""

    lends: Callable[[str], bool]
    """True if a pod with that text may use more than it requested."""

    keeps_to: Callable[[str, str], bool]
    """True if a pod has read that text and uses no more, by what pliant-gpu-used prints in it."""


class Fractions(Protocol):
    """Hands shares of GPUs out and watches them. All methods are safe to call from any thread."""

    def hand_out(self, order: Start, node: Node, folder: Path, writable: str) -> HandedOut:
        """Prepare the shares before the task's program starts; `folder` is the attempt's. `writable`: why the
        task could change files of the node; '': it cannot. Raises ValueError or OSError."""

    evict: Callable[[AttemptId], None]  # stops a task that does not give back what was lent to it

    def adopt(self, attempt: AttemptId, folder: Path, enforcement: Enforcement, node: Node | None) -> None:
        """Take over a live attempt on that node whose shares an earlier server handed out."""

    def sweep(self) -> None:
        """Remove what other attempts left behind; to be called once all live ones are adopted."""

    def resize(self, order: Resize, node: Node, *, keep: bool = False) -> None:
        """Set new limits for a running task; with `keep` it still has the GPUs that it loses. If it raises
        ValueError or OSError, the old limits hold."""

    def fits(self, attempt: AttemptId) -> bool:
        """True if the task now uses no more than its limits."""

    def release(self, attempt: AttemptId) -> None:
        """The attempt is over: end all use of its shares, and return once nothing uses them."""

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        """The last observation, about a second old."""

    def close(self) -> None: ...


class Unheld:
    """Fractions for a machine on which nothing enforces shares."""

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
