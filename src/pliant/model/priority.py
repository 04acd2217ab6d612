"""Priorities that people name: Kubernetes' PriorityClass."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A name for a priority. Work keeps the value that the name had when it was submitted."""

    name: str
    value: int
    description: str = ""
    created: int = 0  # ms since the epoch
