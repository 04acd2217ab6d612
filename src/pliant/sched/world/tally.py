"""What the tasks of a queue claim in one pool, as sums that are kept up to date."""

from typing import NamedTuple, Protocol

from pliant.model.machine import Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Workload


class QueueUse(NamedTuple):
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
    def use(self) -> QueueUse:
        return QueueUse(self.claimed, Resources(self.fixed_gpu, self.fixed_cpu, self.fixed_memory))

    def sums(self) -> tuple[int, ...]:
        """All six, for comparing two worlds."""
        return self.gpu, self.cpu, self.memory, self.fixed_gpu, self.fixed_cpu, self.fixed_memory


class Told(Protocol):
    """A node, as far as it is told here."""

    def took(self, tasks: int, devices: int, cpu: int, memory: int) -> None:
        """So many tasks have taken so much together; negative: have given it back."""


class Returned:
    """What tasks that took() whole devices have given back: of one node after the other, of their queues."""

    __slots__ = ("_cpu", "_devices", "_memory", "_node", "_tasks", "sums")

    def __init__(self) -> None:
        # (project, pool, whether it is fixed) -> milli-GPUs, millicores, bytes
        self.sums: dict[tuple[str, str, bool], tuple[int, int, int]] = {}
        self._node: Told | None = None  # that of the last one
        self._tasks = self._devices = self._cpu = self._memory = 0  # what it does not know yet

    def add(self, node: Told, place: Placement, charged: tuple[str, str, bool]) -> None:
        """One more; its node hears of it when another one follows, or at tell_node()."""
        if node is not self._node:
            self.tell_node()
            self._node = node
        devices, cpu, memory = len(place.shares), place.cpu, place.memory
        self._tasks += 1
        self._devices += devices
        self._cpu += cpu
        self._memory += memory
        all_gpu, all_cpu, all_memory = self.sums.get(charged, (0, 0, 0))
        self.sums[charged] = all_gpu + devices * GPU, all_cpu + cpu, all_memory + memory

    def tell_node(self) -> None:
        """Let the last node know."""
        if self._node is not None:
            self._node.took(-self._tasks, -self._devices, -self._cpu, -self._memory)
            self._node = None
            self._tasks = self._devices = self._cpu = self._memory = 0


def plainly_charged(workload: Workload) -> bool:
    """True if what it claims counts in the sums of its queues and nowhere else."""
    return not (workload.semi_preemptible or workload.node_type or workload.affinity is not None)
