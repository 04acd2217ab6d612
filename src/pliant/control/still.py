"""A loop without a thread: each cycle runs when it is called. For the simulator and for tests."""

from collections.abc import Callable
from typing import TypeVar

from pliant.control.loop import SETTLING, Loop
from pliant.control.state.draft import Draft

T = TypeVar("T")


class StillLoop(Loop):
    """Its clock stands still between two cycles."""

    def call(self, run: Callable[[Draft], T], timeout: float = 60) -> T:
        answer = self.submit(run)
        self.settle()
        return answer.result(0)

    def settle(self) -> None:
        """Cycle until nothing changes by itself."""
        for _ in range(2 * SETTLING):
            if self.turn() and not self.due:
                return
        raise AssertionError(f"no rest after {2 * SETTLING} cycles: {self.plan}")

    def turn(self) -> bool:
        """One cycle with what has arrived; True if nothing more has arrived meanwhile."""
        self.cycle(self._wait(0))
        return self._inbox.empty()

    @property
    def wakes(self) -> int | None:
        """When (ms) the next timer is due; None: never."""
        return min((at for at in (self.plan.wake, self._facts.wake) if at is not None), default=None)
