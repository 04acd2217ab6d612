"""Tasks and their claims: all that decides what a workload has and what it lacks."""

from collections.abc import Sequence
from typing import Protocol

from pliant.model.machine import Placement
from pliant.model.quantity import Resources
from pliant.model.workload import Request, Task, TaskKey, TaskPhase, Workload


class Guard(Protocol):
    """Keeps places with room from being claimed within a cycle: implemented by bookings."""

    def admits(self, key: TaskKey, place: Placement) -> bool:
        """True if the task may claim a place that has room for it."""

    def fills(self, key: TaskKey, project: str) -> bool:
        """True if the task uses what is booked for its project: a chunk of another may not take it."""

    def sort(self, workload: Workload) -> tuple[object, ...]:
        """Equal for workloads that may claim the same places."""


class Holdings:
    """Rows of workloads and tasks, with the claims as they are now, hypotheses included."""

    def __init__(self) -> None:
        self.workloads: dict[str, Workload] = {}
        self.tasks: dict[TaskKey, Task] = {}
        self._members: dict[
            str, list[TaskKey]
        ] = {}  # by workload, in the order of its groups and their index
        self._claims: dict[TaskKey, Placement] = {}
        self._shapes: dict[tuple[object, ...], int] = {}
        self._amounts: dict[int, Resources] = {}  # of requests for one task, by shape: equal ones share it

    def tasks_of(self, workload: str) -> list[Task]:
        """Its tasks in the order of its groups and their index."""
        return [self.tasks[key] for key in self._members.get(workload, ())]

    def keys_of(self, workload: str) -> list[TaskKey]:
        return self._members.get(workload, [])

    def claim_of(self, key: TaskKey) -> Placement | None:
        """What the task claims now, hypotheses included."""
        return self._claims.get(key)

    def _assign(self, key: TaskKey, claim: Placement | None) -> None:
        """Replace the claim of a task without an update of sums."""
        if claim is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = claim

    def have(self, workload: str) -> dict[str, int]:
        """Tasks of each of its groups that have a claim or have succeeded."""
        found: dict[str, int] = {}
        for task in self.tasks_of(workload):
            if task.phase is TaskPhase.SUCCEEDED or self.claim_of(task.key) is not None:
                found[task.group] = found.get(task.group, 0) + 1
        return found

    def gpu_of(self, workload: str) -> int:
        """Milli-GPUs that it claims now."""
        total = 0
        for key in self._members.get(workload, ()):
            claim = self._claims.get(key)
            if claim is not None:
                total += claim.gpu
        return total

    def shape_of(self, requests: tuple[object, ...]) -> int:
        """A number for what a chunk asks for: equal for equal requests."""
        return self._shapes.setdefault(requests, len(self._shapes))

    def amount_of(self, shape: int, request: Request) -> Resources:
        """What a chunk of this shape asks for, if this is its only request."""
        found = self._amounts.get(shape)
        if found is None:
            found = self._amounts[shape] = request.resources
        return found

    def placeless(self, key: TaskKey) -> bool:
        """True if a task claimed and carried nothing when this cycle began."""
        row = self.tasks[key]
        return row.claims is None and row.carries is None

    def given_now(self, workload: str) -> bool:
        """True if it got all it has in this cycle: taking it back costs nothing."""
        for key in self._members.get(workload, ()):
            row = self.tasks[key]
            if row.claims is not None or row.carries is not None:
                return False
        return True

    def nearness(self, workload: Workload, keys: Sequence[TaskKey]) -> tuple[object, ...]:
        """What besides their requests decides the nodes for some of its tasks."""
        raise NotImplementedError
