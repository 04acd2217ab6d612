"""Named priorities: those of all product eras, and Kubernetes' PriorityClass."""

from dataclasses import dataclass

PREEMPTIBLE_BELOW = 100
"""Unless set otherwise, a Run:ai workload of this priority or above is non-preemptible."""

PRIORITIES = {
    "very-low": 25,
    "low": 40,
    "train": 50,
    "medium-low": 65,
    "interactive-preemptible": 75,
    "medium": 80,
    "medium-high": 90,
    "build": 100,
    "inference": 125,
    "high": 125,
    "very-high": 150,
}
"""Names of priorities, of all product eras, and their values."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A name for a priority. Work keeps the value that the name had when it was submitted."""

    name: str
    value: int
    description: str = ""
    created: int = 0  # ms since the epoch
