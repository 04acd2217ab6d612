"""Small values to store."""

from typing import Any

from pliant.control.ports import Batch
from pliant.model.event import Event, EventKind
from pliant.model.machine import Placement, Share
from pliant.model.quantity import GPU
from pliant.model.workload import (
    Attempt,
    AttemptId,
    Exit,
    Kind,
    Launch,
    Request,
    Task,
    TaskGroup,
    TaskPhase,
    Workload,
)

HERE = Placement("node-0", (Share("GPU-0", GPU, 16 * 2**30),), cpu=1000, memory=2**30)


def workload(number: int, **changes: Any) -> Workload:
    fields: dict[str, Any] = {
        "id": f"w-{number}",
        "name": f"job-{number}",
        "project": "p",
        "kind": Kind.TRAINING,
        "launch": Launch("ubuntu", ("sleep",), ("infinity",), variables=("KEÜ",)),
        "groups": (TaskGroup("main", Request(1)),),
        "serial": number,
    }
    return Workload(**{**fields, **changes})


def task(number: int, **changes: Any) -> Task:
    return Task(**{"workload": f"w-{number}", "name": "main-0", "group": "main", "index": 0, **changes})


def attempt(number: int, count: int = 1, ended: int | None = None, task: str = "main-0") -> Attempt:
    exit = None if ended is None else Exit(ended, code=0)
    return Attempt(AttemptId(f"w-{number}", task, count), HERE, 1, "d-1", 10, exit=exit)


def event(subject: str, at: int = 1, message: str = "said") -> Event:
    return Event(subject, at, "scheduler", EventKind.STARTED, message, "Quota", (("gpus", 2), ("why", "x")))


def running(number: int, count: int = 1) -> Batch:
    """The batch that a plan writes to start a workload."""
    return Batch(
        put=(
            workload(number),
            task(number, phase=TaskPhase.ORDERED, claims=HERE, carries=HERE, attempt=count),
            attempt(number, count),
        ),
        events=(event(f"w-{number}", count),),
        settings={"last": str(number)},
    )
