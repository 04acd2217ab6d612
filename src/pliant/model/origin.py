"""The owner of a workload, and what it was made from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a workload; it never changes."""

    subject: str  # as pliant.model.identity.subject_of
    uid: int  # of the machine's account that its tasks run as
    name: str  # of that account


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a workload that was not submitted here: only its maker may change it."""

    engine: str
    kind: str  # of the object, e.g. Job
    namespace: str
    name: str
    ready: tuple[tuple[str, int], ...] = ()  # by group: how many more of its tasks can start now
    makes: bool = True  # True: it makes its tasks, too; else the engine does
    over: bool = False  # it makes no more tasks
    failure: str = ""  # why it is over; empty: it succeeded
    past: int = 0  # the highest attempt number of a task that its maker removed

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
