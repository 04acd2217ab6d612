"""What is known of workloads after their end: GET /api/v1/history."""

from typing import NotRequired, TypedDict

from pliant.wire.shapes import Stamp
from pliant.wire.workload import Outcome


class AttemptEntry(TypedDict):
    """One run of a task, in the order of tasks and numbers."""

    task: str
    attempt: int  # from 1
    node: str
    startedAt: Stamp | None
    endedAt: Stamp | None
    gpus: float  # held last
    gpuHours: float
    exitCode: int | None  # None until it has ended, and where it was lost
    signal: int | None
    stopped: bool  # the scheduler or a user ended it: neither success nor failure
    outOfMemory: bool
    maxRssBytes: int | None
    message: str  # why it could not be started, or was lost


class HistoryEntry(TypedDict):
    """An entry of GET /api/v1/history: one workload, also when it is deleted."""

    number: int  # order of submission
    id: str
    name: str
    projectName: str
    submittedBy: str
    submittedAt: Stamp
    completedAt: Stamp | None
    waitedSeconds: int
    gpus: float  # held by the last attempts of its tasks
    attempts: int
    outcome: Outcome
    tries: NotRequired[list[AttemptEntry]]  # with ?attempts=true


class History(TypedDict):
    entries: list[HistoryEntry]
