"""The append-only history of a workload: who did what, why and when."""

from dataclasses import dataclass
from enum import StrEnum

from pliant.model.reason import Named


class EventKind(StrEnum):
    SUBMITTED = "Submitted"
    PENDING = "Pending"
    STARTED = "Started"
    RUNNING = "Running"
    GROWN = "Grown"
    SHRUNK = "Shrunk"
    RESIZED = "Resized"  # confirmed: a running job has done what was decided
    MOVED = "Moved"
    RECLAIMED = "Reclaimed"
    PREEMPTED = "Preempted"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    CANCELLED = "Cancelled"
    EXITED = "Exited"
    LOST = "Lost"
    RETRYING = "Retrying"
    COMPLETED = "Completed"
    FAILED = "Failed"
    DELETED = "Deleted"
    UPDATED = "Updated"
    WARNING = "Warning"
    IDLE = "Idle"  # its GPUs do nothing


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history. Never changed once recorded."""

    subject: str  # workload id, or `project/<id>`, `node/<name>`, `server`
    at: int  # ms since the epoch
    who: str  # user, `scheduler`, `engine`, `server`
    kind: EventKind
    message: str
    reason: str = ""  # code of the typed reason
    numbers: tuple[tuple[str, int | str], ...] = ()  # the reason's numbers
    decision: str = ""  # id of the decision behind it
    attempt: str = ""
    names: tuple[tuple[str, Named], ...] = ()  # what the reason names, by field of the reason
