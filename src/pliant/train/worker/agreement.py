"""The agreement on a step: one small sum over all workers. A step is applied only if the sum succeeds."""

from dataclasses import dataclass
from typing import Any

import torch

from pliant.train.rendezvous.group import ElasticGroup
from pliant.train.worker.steps import Running
from pliant.train.worker.trained import Trained


@dataclass(frozen=True, slots=True)
class Outcome:
    """The same on all ranks."""

    change: bool  # some worker knows of a membership change: all meet after this step
    counted: int  # records whose gradients are added
    skipped: int  # records that cannot be read
    overflow: bool  # True if the gradients overflowed, in fp16
    loss: float | None  # the mean over all records


class Agreement:
    """Begins before the last backward pass where possible, to overlap with the sum of the gradients: its
    values are known by then. A step counts only when the gradients are summed too. Sends rank 0's buffers."""

    def __init__(
        self,
        group: ElasticGroup,
        trained: Trained,
        running: Running,
        lanes: int,
        *,
        change: bool,
        overflow: bool,
        device: torch.device,
    ) -> None:
        self._group, self._trained, self._count = group, trained, running.plan.count
        head = torch.tensor(
            [float(change), running.counted, len(running.skipped), float(overflow)],
            dtype=torch.float64,
            device=device,
        )
        losses = torch.zeros(lanes, dtype=torch.float64, device=device)
        for lane, loss in running.losses.items():
            losses[lane if lanes > 1 else 0] = loss
        self._vector = torch.cat([head, losses])
        self._buffers = trained.packed_buffers() if group.size_now > 1 else []
        self._works: list[Any] = [group.begin_send(vector, 0) for vector in self._buffers]
        self._works.append(group.begin_sum(self._vector))

    def outcome(self) -> Outcome:
        """Wait for the sum. Raises GenerationOver."""
        for work in self._works:
            self._group.finish(work)
        change, counted, skipped, overflow, *losses = self._vector.tolist()
        self._group.all_ended()
        if self._buffers:
            self._trained.unpack_buffers(self._buffers)
        loss = sum(losses) / counted if counted else None
        return Outcome(change > 0, int(counted), int(skipped), overflow > 0, loss)
