"""One GPU with what is claimed, carried and held of it."""

from pliant.model.machine import Gpu, Share
from pliant.model.quantity import GPU

TaskKey = tuple[str, str]


class Device:
    """One GPU with sums over tasks, in thousandths of it and in bytes of its memory."""

    __slots__ = (
        "_whole", "carried", "carried_memory", "claimed", "claimed_memory", "gpu", "held", "held_memory",
        "tasks",
    )  # fmt: skip

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._whole: Share | None = None  # made when first asked for
        self.claimed = self.claimed_memory = 0
        self.carried = self.carried_memory = 0
        self.held = self.held_memory = 0
        self.tasks: dict[TaskKey, None] = {}  # that claim or carry any of it

    def whole(self) -> Share:
        """What a task takes that asks for all of it."""
        if self._whole is None:
            self._whole = Share(self.gpu.uuid, GPU, self.gpu.memory)
        return self._whole

    def users(self) -> list[TaskKey]:
        """Tasks that claim or carry any of it, sorted."""
        return sorted(self.tasks)

    @property
    def releasing(self) -> int:
        """Thousandths that are carried but no longer claimed."""
        return self.held - self.claimed

    @property
    def promised(self) -> int:
        """Thousandths that are claimed but lie on what others still carry."""
        return max(0, self.held - GPU)

    @property
    def free(self) -> bool:
        """True if nobody claims any of it."""
        return not (self.claimed or self.claimed_memory or self.gpu.foreign)

    @property
    def idle(self) -> bool:
        """True if nobody claims or carries any of it."""
        return not (self.held or self.held_memory or self.gpu.foreign)

    def room(self, portion: int, memory: int) -> bool:
        """True if so much of it is unclaimed."""
        return (
            not self.gpu.foreign
            and self.claimed + portion <= GPU
            and self.claimed_memory + memory <= self.gpu.memory
        )

    def room_now(self, portion: int, memory: int) -> bool:
        """True if so much of it is neither claimed nor carried."""
        return (
            not self.gpu.foreign
            and self.held + portion <= GPU
            and self.held_memory + memory <= self.gpu.memory
        )

    @property
    def overfull(self) -> bool:
        return self.claimed > GPU or self.claimed_memory > self.gpu.memory

    def numbers(self) -> tuple[int, ...]:
        return (
            self.claimed, self.claimed_memory, self.carried, self.carried_memory, self.held, self.held_memory,
        )  # fmt: skip
