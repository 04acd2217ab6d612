"""Sums that the referee computes from rows: claims per queue and pool, missing tasks and bonus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pliant.model.machine import Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.tenancy import UNLIMITED, Quota
from pliant.model.workload import Desired, Task, TaskPhase, Workload
from pliant.sched.plan import Plan
from tests.sched.worlds import Scene

Key = tuple[str, str]
"""(queue, pool) or (workload, task)."""


@dataclass
class Books:
    """Claims added up per (queue, pool): `used` counts all, `fixed` the non-preemptible ones."""

    scene: Scene
    used: dict[Key, Resources] = field(default_factory=lambda: defaultdict(Resources))
    fixed: dict[Key, Resources] = field(default_factory=lambda: defaultdict(Resources))

    @classmethod
    def of(cls, scene: Scene, tasks: Iterable[Task]) -> Books:
        books, tasks = cls(scene), list(tasks)
        for task in tasks:
            if task.claims and task.claims.node in scene.nodes:
                workload = scene.workloads[task.workload]
                books.add(workload, books.pool(task.claims.node), task.claims.resources)
        for workload, place in _guaranteed(scene, tasks):
            for queue in books.path(workload):
                key = queue, books.pool(place.node)
                books.fixed[key] = books.fixed[key].plus(place.resources)
        return books

    def pool(self, node: str) -> str:
        return self.scene.pool_of(self.scene.nodes[node])

    def path(self, workload: Workload) -> tuple[str, str]:
        """Its queues, department first; departments are written `name/` as in the text of worlds."""
        return self.scene.projects[workload.project].department + "/", workload.project

    def quota(self, queue: str, pool: str) -> Quota:
        table = self.scene.departments if queue.endswith("/") else self.scene.projects
        return table[queue.rstrip("/")].quota(pool)

    def add(self, workload: Workload, pool: str, amount: Resources) -> None:
        for queue in self.path(workload):
            self.used[queue, pool] = self.used[queue, pool].plus(amount)
            if not workload.preemptible and not workload.semi_preemptible:
                self.fixed[queue, pool] = self.fixed[queue, pool].plus(amount)

    def deserved(self, queue: str, pool: str) -> int:
        """Milli-GPUs it may always have, or UNLIMITED. A derived quota is what the other projects leave."""
        scene = self.scene
        if queue.endswith("/"):
            department = scene.departments[queue.rstrip("/")]
            if not department.derived:
                return department.quota(pool).gpu
            return sum(
                GPU
                for node in scene.nodes.values()
                if node.ready and scene.pool_of(node) == pool
                for gpu in node.gpus
                if not gpu.foreign
            )
        project = scene.projects[queue]
        if not project.derived:
            return project.quota(pool).gpu
        whole = self.deserved(project.department + "/", pool)
        others = [
            other.quota(pool).gpu
            for other in scene.projects.values()
            if other.department == project.department and not other.derived
        ]
        if whole == UNLIMITED or UNLIMITED in others:
            return whole if whole == UNLIMITED else 0
        return max(0, whole - sum(others))


def _guaranteed(scene: Scene, tasks: list[Task]) -> Iterator[tuple[Workload, Placement]]:
    """What semi-preemptible workloads hold of their cores."""
    for workload in scene.workloads.values():
        for group in workload.groups if workload.semi_preemptible else ():
            mine = [t for t in tasks if (t.workload, t.group) == (workload.id, group.name)]
            done = sum(1 for task in mine if task.phase is TaskPhase.SUCCEEDED)
            places = [task.claims for task in mine if task.claims and task.claims.node in scene.nodes]
            for place in places[: max(0, group.min - done)]:
                yield workload, replace(place, shares=place.shares[:1]) if group.elastic else place


def overlaid(scene: Scene, plan: Plan) -> dict[Key, Task]:
    """The tasks as they are once the plan is recorded."""
    return {**scene.tasks, **{task.key: task for task in plan.tasks}}


def missing(workload: Workload, tasks: Iterable[Task]) -> int:
    """How many core tasks have no claim and have not succeeded."""
    have = Counter(t.group for t in tasks if t.claims or t.phase is TaskPhase.SUCCEEDED)
    return sum(max(0, group.min - have[group.name]) for group in workload.groups)


def claimed(tasks: Iterable[Task]) -> dict[str, int]:
    """Milli-GPUs that each workload claims."""
    found: Counter[str] = Counter()
    for task in tasks:
        if task.claims:
            found[task.workload] += task.claims.gpu
    return found


def wanted(workload: Workload, tasks: Sequence[Task]) -> int:
    """Milli-GPUs it has without bonus: groups count up to `wanted` tasks, an elastic task up to its request.

    For a workload without claims: what it would have.
    """
    if workload.background:
        return 0
    if not any(task.claims for task in tasks):
        return sum(group.request.gpu * (1 if group.elastic else group.wanted) for group in workload.groups)
    total = 0
    for group in workload.groups:
        places = [t.claims for t in tasks if t.group == group.name and t.claims]
        if group.elastic:
            total += sum(min(place.gpu, group.request.gpu) for place in places)
        else:
            total += sum(place.gpu for place in places[: group.wanted])
    return total


def needy(scene: Scene, tasks: Mapping[Key, Task]) -> set[str]:
    """Workloads that should run and have less than they asked for; bonus does not count."""
    found = set()
    for workload in scene.workloads.values():
        if workload.desired is not Desired.RUNNING or workload.phase.final:
            continue
        mine = [task for task in tasks.values() if task.workload == workload.id]
        for group in workload.groups:
            of_group = [task for task in mine if task.group == group.name]
            have = [task for task in of_group if task.claims or task.phase is TaskPhase.SUCCEEDED]
            if len(have) < group.wanted:
                found.add(workload.id)
            if group.elastic and any(t.claims and t.claims.gpu < group.request.gpu for t in have):
                found.add(workload.id)
            waiting = [task for task in have if task.phase is TaskPhase.WAITING]
            if waiting and len(have) - len(waiting) < group.min:
                found.add(workload.id)
    return found
