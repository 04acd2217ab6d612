"""Finds where quotas add up to more GPUs than there are: in a node pool, or in a department."""

from collections.abc import Mapping
from dataclasses import dataclass

from pliant.model.tenancy import Department, Project
from pliant.sched.world.queue_tree import parent_of


@dataclass(frozen=True, slots=True)
class Promise:
    """The sum of the quotas right below a department, or at the top of a pool, in milli-GPUs."""

    pool: str
    department: str  # id; empty: the quotas at the top, against the machines
    promised: int
    has: int  # the GPUs of the pool, or the department's quota

    @property
    def kept(self) -> bool:
        return self.promised <= self.has


class Promises:
    """The quotas of all queues in one pool. A derived quota promises nothing of its own."""

    def __init__(
        self, departments: Mapping[str, Department], projects: Mapping[str, Project], pool: str
    ) -> None:
        self._departments, self._pool = departments, pool
        self._projects: dict[str, list[Project]] = {}  # by department
        self._within: dict[str, list[str]] = {}  # departments by the one above; "": at the top
        for project in projects.values():
            above = project.department if project.department in departments else ""
            self._projects.setdefault(above, []).append(project)
        for did in departments:
            self._within.setdefault(parent_of(departments, did) or "", []).append(did)

    def below(self, department: str = "") -> int:
        """The sum of the quotas right below a department; by default of those at the top."""
        quotas = (it.quota(self._pool).gpu for it in self._projects.get(department, ()) if not it.derived)
        inner = sum(self._of(did) for did in self._within.get(department, ()))
        return sum(max(0, gpu) for gpu in quotas) + inner

    def _of(self, department: str) -> int:
        row = self._departments[department]
        return self.below(department) if row.derived else max(0, row.quota(self._pool).gpu)

    def broken(self, machines: int) -> tuple[Promise, ...]:
        """The promises that a pool of so many milli-GPUs cannot keep: its own first, then by department."""
        found = [Promise(self._pool, "", self.below(), machines)]
        for did, row in sorted(self._departments.items()):
            quota = row.quota(self._pool).gpu
            if not row.derived and quota >= 0:
                found.append(Promise(self._pool, did, self.below(did), quota))
        return tuple(it for it in found if not it.kept)
