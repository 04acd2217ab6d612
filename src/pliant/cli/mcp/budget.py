"""The budget of an agent's changes. It is not thread-safe: the tools run one at a time."""

from __future__ import annotations

from typing import NamedTuple

from pliant.cli.output.amounts import counted, counted_gpus


class Cost(NamedTuple):
    """Thousandths of GPUs that one change asks for, and that it takes from running workloads."""

    asked: int
    taken: int

    @property
    def gpus(self) -> int:
        return self.asked + self.taken

    def __str__(self) -> str:
        asked, taken = counted_gpus(self.asked / 1000), counted_gpus(self.taken / 1000)
        return f"{counted_gpus(self.gpus / 1000)} ({asked} asked for, {taken} taken from running jobs)"


class Budget:
    """How many changes are left, and how many GPUs in all of them together. It is never refilled."""

    def __init__(self, changes: int, gpus: int) -> None:
        """`gpus` is in thousandths."""
        self._changes = changes  # >= 0
        self._gpus = gpus  # >= 0

    def covers(self, cost: Cost) -> bool:
        return self._changes >= 1 and self._gpus >= cost.gpus

    def spend(self, cost: Cost) -> None:
        """Deduct a change. Call it before the change is sent: a change whose answer is lost may be made.

        Raises ValueError if the budget does not cover it.
        """
        if not self.covers(cost):
            raise ValueError(f"{cost} is over {self}")
        self._changes -= 1
        self._gpus -= cost.gpus

    def give_back(self, cost: Cost) -> None:
        """Return the cost of a change that the server has refused."""
        self._changes += 1
        self._gpus += cost.gpus

    def __str__(self) -> str:
        return f"{counted(self._changes, 'change')} and {counted_gpus(self._gpus / 1000)}"
