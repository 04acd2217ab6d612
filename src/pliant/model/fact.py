"""Facts: what engines and devices observed. The only things besides user requests that change the world."""

from dataclasses import dataclass

from pliant.model.machine import Node, Share
from pliant.model.workload import AttemptId, Exit, Workload


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
    """A live attempt now occupies exactly these shares."""

    attempt: AttemptId
    shares: tuple[Share, ...]
    at: int
    cpu: int | None = None  # millicores that it takes now; None: as before
    memory: int | None = None  # bytes, likewise


@dataclass(frozen=True, slots=True)
class ResizeDenied:
    """A live attempt does not have the cores and memory that were ordered for it."""

    attempt: AttemptId
    said: str  # why, for people
    later: bool  # it gets them as soon as its node can give them


@dataclass(frozen=True, slots=True)
class WorkFound:
    """Work that was given to an engine directly, such as a pod made with kubectl, as it is now."""

    workload: Workload  # with an origin; its project by name; what only the server knows is empty


@dataclass(frozen=True, slots=True)
class WorkGone:
    """The engine has nothing of that work any more: its owner has deleted it."""

    workload: str  # id


@dataclass(frozen=True, slots=True)
class WorkListed:
    """All such work that an engine has when it is opened; other work that came from it is gone."""

    engine: str
    workloads: frozenset[str]  # ids


Fact = (
    NodeSeen
    | NodeLost
    | AttemptStarted
    | AttemptEnded
    | AttemptResized
    | ResizeDenied
    | WorkFound
    | WorkGone
    | WorkListed
)
