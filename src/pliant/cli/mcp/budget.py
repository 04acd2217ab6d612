"""What an agent may still change. Not for several threads at once: the tools take turns."""

from __future__ import annotations

from typing import NamedTuple

from pliant.cli.output.amounts import counted, counted_gpus


class Cost(NamedTuple):
    """GPUs in thousandths of what one change asks for, and of what it takes from workloads that run."""

    asked: int
    taken: int

    @property
    def gpus(self) -> int:
        return self.asked + self.taken

    def __str__(self) -> str:
        asked, taken = counted_gpus(self.asked / 1000), counted_gpus(self.taken / 1000)
        return f"{counted_gpus(self.gpus / 1000)} ({asked} asked for, {taken} taken from running jobs)"


class Budget:
    """So many changes, and so many GPUs in all of them together. It is never filled up again."""

    def __init__(self, changes: int, gpus: int) -> None:
        """`gpus` in thousandths."""
        self._changes = changes  # >= 0
        self._gpus = gpus  # >= 0

    def covers(self, cost: Cost) -> bool:
        return self._changes >= 1 and self._gpus >= cost.gpus

    def spend(self, cost: Cost) -> None:
        """Before the change is sent, for one whose answer is lost may have been made.

        Raises ValueError if the budget does not cover it.
        """
        if not self.covers(cost):
            raise ValueError(f"{cost} is over {self}")
        self._changes -= 1
        self._gpus -= cost.gpus

    def give_back(self, cost: Cost) -> None:
        """Of a change that the server has refused."""
        self._changes += 1
        self._gpus += cost.gpus

    def __str__(self) -> str:
        return f"{counted(self._changes, 'change')} and {counted_gpus(self._gpus / 1000)}"
