"""What would let a workload start: one or several small changes, in words and numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypedDict

from pliant.model.quantity import format_duration, format_gpus
from pliant.model.reason.base import amount
from pliant.model.tenancy import Department, Project
from pliant.sched.explain.trial import Change


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a remedy names: whoever has no rights in its project is not told the name."""

    name: str
    project: str = ""  # id of the project it belongs to; empty: of none
    project_name: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change with which the workload starts, checked; one `unit` less of it does not do.

    kind      what `count` and `before` mean
    end       `whom` end: `count` milli-GPUs get free on `where`
    release   `whom`, which are being stopped, have ended
    quota     of the queues `whom` is raised by `count` from `before`: amounts of `resource`
    limit     likewise
    priority  its own is `before` + `count`
    request   each task asks for `count` less of `resource` than `before`
    tasks     it starts with `count` tasks less than `before`
    elastic, preemptible   it is
    placement it does not insist on `where`: a node type or pools
    open      the node `where` takes work again
    taint     the node `where` has the taints `whom` no longer
    machines  a node with `count` milli-GPUs more in pool `where`, and with `whom`, which no node has today
    wait      `count` ms pass
    resume    its owner resumes it
    """

    kind: str
    count: int = 0
    unit: int = 1
    before: int = 0
    resource: str = "gpu"
    where: str = ""
    whom: tuple[Named, ...] = ()
    change: Change = field(default_factory=Change)  # what was tried, with what is in `after`
    less: tuple[Change, ...] = ()  # what is one unit less, each of it not enough; none: no change
    after: tuple["Remedy", ...] = ()  # what must be done besides, each part as small as it can be

    @property
    def text(self) -> str:
        """One sentence about what has to happen, names included."""
        parts = [remedy._one() for remedy in (*self.after, self)]
        return "; and ".join(parts)

    @property
    def steps(self) -> tuple["Remedy", ...]:
        return (*self.after, self)

    def _one(self) -> str:
        names = ", ".join(
            f"{it.name} of project {it.project_name}" if it.project_name else it.name for it in self.whom
        )
        more = amount(self.resource, self.count)
        match self.kind:
            case "end":
                verb = "ends" if len(self.whom) == 1 else "end"
                return f"{format_gpus(self.count)} GPUs get free on {self.where}: {names} {verb}"
            case "release":
                return f"{names} {'has' if len(self.whom) == 1 else 'have'} ended, which is under way"
            case "quota" | "limit":
                to = amount(self.resource, self.before + self.count)
                return f"the {self.kind} of {names} is raised by {more} to {to}"
            case "priority":
                return f"its priority is {self.before + self.count} instead of {self.before}"
            case "request":
                less = amount(self.resource, self.before - self.count)
                return f"it asks for {less} a task instead of {amount(self.resource, self.before)}"
            case "tasks":
                left = self.before - self.count
                return f"it starts with {left} task{'' if left == 1 else 's'} instead of {self.before}"
            case "elastic":
                return "it is elastic: it starts with fewer GPUs and grows"
            case "preemptible":
                return "it is preemptible: it may run on idle GPUs beyond quotas"
            case "placement":
                return f"it does not insist on {self.where}"
            case "open":
                return f"node {self.where} takes work again"
            case "taint":
                return f"node {self.where} loses the taint{'' if len(self.whom) == 1 else 's'} {names}"
            case "machines":
                gpus = f"{format_gpus(self.count)} GPUs"
                return (
                    f"there is a node more in pool {self.where}, with {f'{gpus}, {names}' if names else gpus}"
                )
            case "wait":
                return f"{format_duration(self.count)} pass"
            case _:
                return "its owner resumes it"


class Tried(TypedDict):
    """Fields of a Remedy."""

    change: Change
    less: tuple[Change, ...]


def sized(change: Callable[[int], Change], count: int) -> Tried:
    """A change of so many units, and of one less."""
    return {"change": change(count), "less": (change(count - 1),) if count > 1 else ()}


def named(queue: Project | Department) -> Named:
    """A queue as a remedy names it."""
    if isinstance(queue, Project):
        return Named(queue.name, queue.id, "")
    return Named(f"department {queue.name}")
