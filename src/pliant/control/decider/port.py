"""What the loop and the decider say to each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.rows import Row
from pliant.sched.world.state import World

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class News:
    """A row that was put into the world, or (`gone`) taken out of it."""

    row: Row
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """What happened since the ask before, and the request to decide about it."""

    number: int  # rises by one with every ask of a server
    now: int  # ms since the epoch
    settings: Settings
    news: Sequence[News]  # in the order in which they were recorded
    base: Sequence[Row] | None = None  # the whole world, `news` included; None: as before, with the news


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to an ask."""

    number: int  # of the ask
    plan: Plan | None  # None: the decider that was asked is gone; the next ask must bring the whole world
    took: int = 0  # microseconds of deciding


class Known(Protocol):
    """What a question may look at: the world as it was when the last plan was made."""

    @property
    def world(self) -> World: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def verdicts(self) -> Verdicts:
        """Why workloads wait, by that plan."""


Question = Callable[[Known], T]
"""May change what it is given, which is a copy. It is a function of a module, or a partial of one."""


class Decider(Protocol):
    """Follows the rows that it is fed. One ask at a time: the next one only after the answer to the last."""

    def open(self, wake: Callable[[], None]) -> None:
        """`wake` is called, on any thread, when an answer has arrived."""

    def ask(self, ask: Ask) -> None:
        """Returns at once."""

    def answer(self, timeout: float) -> Decided | None:
        """The answer to the last ask; None if it has not come within `timeout` seconds."""

    def question(self, work: Question[T], after: int, patience: float) -> T:
        """What `work` says once the ask with number `after` is decided. For any thread, and worked on beside
        the decisions. Raises what `work` refuses, and Unavailable after `patience` seconds."""

    @property
    def beside(self) -> bool:
        """True if it works beside the loop, and so takes processor time from what the loop serves."""

    @property
    def trouble(self) -> str:
        """What is wrong with it, for people; empty if it works. For any thread."""

    def close(self) -> None: ...
