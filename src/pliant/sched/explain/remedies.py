"""Cures that the core has checked, and which kinds fit which reason."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from pliant.model.reason import Cure
from pliant.sched.explain.trial import Change


@dataclass(frozen=True, slots=True)
class Remedy:
    """A cure with which the workload starts, as tried with the core; one `unit` less of it is not enough."""

    cure: Cure
    change: Change = field(default_factory=Change)  # what was tried, with what is in `after`
    less: tuple[Change, ...] = ()  # changes of one unit less, none of them enough; (): no change
    after: tuple["Remedy", ...] = ()  # what must be done besides, each part as small as possible

    @property
    def kind(self) -> str:
        return self.cure.kind

    @property
    def steps(self) -> tuple[Cure, ...]:
        """All that must be done."""
        return (*(step.cure for step in self.after), self.cure)


class Tried(TypedDict):
    """Fields of a Remedy."""

    change: Change
    less: tuple[Change, ...]


def sized(change: Callable[[int], Change], count: int) -> Tried:
    """The change of `count` units, and that of one less."""
    return {"change": change(count), "less": (change(count - 1),) if count > 1 else ()}


OF_ITS_OWNER = ("node-type", "node-pool", "node-affinity", "topology", "elastic", "tasks", "request")
OF_NODES = ("uncordon", "node-ready", "taint", "machines")
ANYWAY = ("wait", "resume", "release", "end", "priority", *OF_ITS_OWNER, *OF_NODES)

BOUNDS: Mapping[str, tuple[str, ...]] = {
    "not-entitled": ("fair-share",),
    "non-preemptible-over-quota": ("quota", "preemptible"),
    "over-limit": ("limit",),
}
"""Code of a reason -> what can cure it besides ANYWAY. With any other reason no bound of a queue is in the
way, so raising one is not offered: the reason and the cures of `why` cannot contradict each other. (If no
single change is enough, several.py raises all that is in the way at once.)"""


def cures(code: str) -> frozenset[str]:
    """Kinds of cure that fit a reason."""
    return frozenset((*ANYWAY, *BOUNDS.get(code, ())))
