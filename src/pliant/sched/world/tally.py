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
        self._claimed: Resources | None = None  # None after a change, until it is read

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
        """Count so much more (or less) of what is claimed as non-preemptible."""
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
    """The part of a node that Returned uses."""

    def took(self, tasks: int, devices: int, cpu: int, memory: int) -> None:
        """Count what so many tasks took together; negative: what they gave back."""


class Returned:
    """Sums of what tasks with whole devices gave back: by queue, and told to one node after the other."""

    __slots__ = ("_cpu", "_devices", "_memory", "_node", "_tasks", "sums")

    def __init__(self) -> None:
        # (project, pool, whether it is fixed) -> milli-GPUs, millicores, bytes
        self.sums: dict[tuple[str, str, bool], tuple[int, int, int]] = {}
        self._node: Told | None = None  # the node of the last task
        self._tasks = self._devices = self._cpu = self._memory = 0  # what the node has not been told

    def add(self, node: Told, place: Placement, charged: tuple[str, str, bool]) -> None:
        """Add one task; its node is told when another node follows, or at tell_node()."""
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
        """Tell the last node what it has not been told."""
        if self._node is not None:
            self._node.took(-self._tasks, -self._devices, -self._cpu, -self._memory)
            self._node = None
            self._tasks = self._devices = self._cpu = self._memory = 0


def plainly_charged(workload: Workload) -> bool:
    """True if what it claims counts in the sums of its queues and nowhere else."""
    return not (workload.semi_preemptible or workload.node_type or workload.affinity is not None)
