"""What the loop receives: requests, questions, facts, and bells that only wake it."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.fact import Fact


@dataclass(slots=True)
class Command:
    """A request that changes something. It writes into a draft, or raises Refused and changes nothing.

    It cannot be cancelled: it runs even if the caller no longer waits for its answer.
    """

    run: Callable[[Draft], Any]
    answer: "Future[Any]" = field(default_factory=Future, init=False)

    def __post_init__(self) -> None:
        self.answer.set_running_or_notify_cancel()


@dataclass(slots=True)
class Look:
    """A question that is answered between two cycles and makes no cycle due."""

    run: Callable[[State], Any]
    answer: "Future[Any]"

    def show(self, state: State) -> None:
        try:
            self.answer.set_result(self.run(state))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self.answer.set_exception(error)


class Bell(Enum):
    """Wakes the loop and brings no news."""

    CYCLE = auto()
    ANSWERED = auto()  # by the decider; a cycle may have taken that answer already


News = Command | Fact
