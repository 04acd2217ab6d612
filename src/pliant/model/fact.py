"""Facts: what engines and devices observed. The only things besides user requests that change the world."""

from dataclasses import dataclass

from pliant.model.machine import Node, Share
from pliant.model.workload import AttemptId, Exit


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node with its devices as they are now."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node that is gone or no longer answers; nothing on it lives."""

    name: str


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    attempt: AttemptId
    at: int  # ms since the epoch


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """Nothing of the attempt lives any more."""

    attempt: AttemptId
    exit: Exit


@dataclass(frozen=True, slots=True)
class AttemptResized:
    """A live attempt now occupies just these shares."""

    attempt: AttemptId
    shares: tuple[Share, ...]
    at: int


Fact = NodeSeen | NodeLost | AttemptStarted | AttemptEnded | AttemptResized
