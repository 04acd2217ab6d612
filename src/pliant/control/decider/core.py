"""The decider's own world: follows the rows of each ask and decides; the same code in every process."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pliant.control.decider.port import Ask, Decided, Question
from pliant.control.errors import Unavailable
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.state import World

T = TypeVar("T")


class Core:
    """Belongs to one thread."""

    def __init__(self) -> None:
        self.world = World()
        self.settings = Settings()
        self.verdicts = Verdicts()  # of the last plan
        self.number = 0  # of the last ask

    def follow(self, ask: Ask) -> None:
        """Apply the rows and settings of an ask."""
        if ask.base is not None:
            self.world, self.verdicts = World(), Verdicts()
            for row in ask.base:
                self.world.put(row)
        else:
            for it in ask.news:
                (self.world.drop if it.gone else self.world.put)(it.row)
        self.number, self.settings = ask.number, ask.settings

    def decide(self, now: int) -> Decided:
        began = time.perf_counter_ns()
        plan = decide(self.world, now, self.settings)
        took = (time.perf_counter_ns() - began) // 1000
        self.verdicts = plan.verdicts
        return Decided(self.number, plan, took)

    def copy(self) -> "Core":
        """An independent copy with the same world, settings and verdicts."""
        other = Core()
        other.world, other.settings = self.world.fresh(), self.settings
        other.verdicts, other.number = self.verdicts, self.number
        return other


class Inline:
    """A Decider on the caller's thread: for tests, the simulator and benchmarks in virtual time."""

    trouble = ""
    beside = False

    def __init__(self) -> None:
        self.core = Core()
        self._decided: Decided | None = None
        self._turn = threading.Condition()  # guards the core: questions come on other threads

    def open(self, wake: Callable[[], None]) -> None:
        """Does nothing: answers are there at once."""

    def ask(self, ask: Ask) -> None:
        with self._turn:
            self.core.follow(ask)
            self._decided = self.core.decide(ask.now)
            self._turn.notify_all()

    def answer(self, timeout: float) -> Decided | None:
        decided, self._decided = self._decided, None
        return decided

    def question(self, work: Question[T], after: int, patience: float) -> T:
        with self._turn:
            if not self._turn.wait_for(lambda: self.core.number >= after, patience):
                raise Unavailable(f"Nothing was decided within {patience:g} s.", "Ask again later.")
            copy = self.core.copy()
        return work(copy)

    def close(self) -> None:
        """Does nothing."""
