"""Whose a workload is, and what it was made from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a workload is, for good."""

    subject: str  # as pliant.model.identity.subject_of
    uid: int  # of the account of the machine whose processes its tasks are
    name: str  # of that account


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a workload comes from that was not submitted here: its maker alone may change it."""

    engine: str
    kind: str  # of the object, e.g. Job
    namespace: str
    name: str
    ready: tuple[tuple[str, int], ...] = ()  # by group: so many more of its tasks can be started now
    makes: bool = True  # its tasks too; else the engine makes them
    over: bool = False  # it makes no more tasks
    failure: str = ""  # why it is over; empty: it did what it is for
    past: int = 0  # the highest number of an attempt of a task that its maker took away

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
