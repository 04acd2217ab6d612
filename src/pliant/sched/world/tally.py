"""What the tasks of a queue claim in one pool, as sums that are kept up to date."""

from typing import NamedTuple

from pliant.model.quantity import Resources
from pliant.model.workload import Workload


class Use(NamedTuple):
    """What the tasks of a queue claim in one pool."""

    claimed: Resources
    non_preemptible: Resources


class Tally:
    """Sums of what is claimed, and of the non-preemptible part of it; it changes in place."""

    __slots__ = ("_claimed", "cpu", "fixed_cpu", "fixed_gpu", "fixed_memory", "gpu", "memory")

    def __init__(self) -> None:
        self.gpu = self.cpu = self.memory = 0
        self.fixed_gpu = self.fixed_cpu = self.fixed_memory = 0
        self._claimed: Resources | None = None  # made when it is asked for after a change

    def add(self, gpu: int, cpu: int, memory: int, fixed: bool) -> None:
        self._claimed = None
        self.gpu += gpu
        self.cpu += cpu
        self.memory += memory
        if fixed:
            self.fixed_gpu += gpu
            self.fixed_cpu += cpu
            self.fixed_memory += memory

    def fix(self, gpu: int, cpu: int, memory: int) -> None:
        """So much more (or less) of what is claimed already counts as non-preemptible."""
        self.fixed_gpu += gpu
        self.fixed_cpu += cpu
        self.fixed_memory += memory

    @property
    def claimed(self) -> Resources:
        if self._claimed is None:
            self._claimed = Resources(self.gpu, self.cpu, self.memory)
        return self._claimed

    @property
    def use(self) -> Use:
        return Use(self.claimed, Resources(self.fixed_gpu, self.fixed_cpu, self.fixed_memory))

    def sums(self) -> tuple[int, ...]:
        """All six, for comparing two worlds."""
        return self.gpu, self.cpu, self.memory, self.fixed_gpu, self.fixed_cpu, self.fixed_memory


def plainly_charged(workload: Workload) -> bool:
    """True if what it claims counts in the sums of its queues and nowhere else."""
    return not (workload.semi_preemptible or workload.node_type or workload.affinity is not None)
