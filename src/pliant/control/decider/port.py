"""The protocol between the loop and the decider: asks, plans and questions."""

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
    """A row that was put into the world, or (`gone`) dropped from it."""

    row: Row
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """The changes since the previous ask, and the request for a plan."""

    number: int  # rises by one with every ask of a server
    now: int  # ms since the epoch
    settings: Settings
    news: Sequence[News]  # in the order in which they were recorded
    base: Sequence[Row] | None = None  # the whole world with `news`; None: the previous one plus `news`


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to an ask."""

    number: int  # of the ask
    plan: Plan | None  # None: the decider has ended; the next ask must carry the whole world
    took: int = 0  # microseconds of deciding


class Known(Protocol):
    """What a question may read: the world of the last plan."""

    @property
    def world(self) -> World: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def verdicts(self) -> Verdicts:
        """Why workloads wait, as of that plan."""


Question = Callable[[Known], T]
"""Gets a copy, which it may change. It must be a module-level function, or a partial of one."""


class Decider(Protocol):
    """Follows the rows of each ask. The next ask comes after the answer to the last, or after the loop
    dropped that ask."""

    def open(self, wake: Callable[[], None]) -> None:
        """Start; it calls `wake`, on any thread, when an answer has arrived."""

    def ask(self, ask: Ask) -> None:
        """Returns at once."""

    def answer(self, timeout: float) -> Decided | None:
        """The next answer; None if none comes within `timeout` seconds."""

    def question(self, work: Question[T], after: int, patience: float) -> T:
        """The result of `work` once the ask with number `after` is decided. For any thread; runs beside the
        decisions. Raises the Refused that `work` raises, and Unavailable after `patience` seconds."""

    @property
    def beside(self) -> bool:
        """True if it runs in parallel with the loop, and so takes processor time from it."""

    @property
    def trouble(self) -> str:
        """What is wrong with it, for people; empty if it works. For any thread."""

    def close(self) -> None: ...
