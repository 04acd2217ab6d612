"""The last word on a step: one small sum over all workers, which makes it whole or does not happen."""

from dataclasses import dataclass
from typing import Any

import torch

from pliant.train.rendezvous.group import ElasticGroup
from pliant.train.worker.steps import Running
from pliant.train.worker.trained import Trained


@dataclass(frozen=True, slots=True)
class Outcome:
    """The same on all ranks."""

    change: bool  # somebody knows of a change: all meet after this step
    counted: int  # records whose gradients are in
    skipped: int  # records that cannot be read
    overflow: bool  # of the gradients, in fp16
    loss: float | None  # the mean over all records


class Agreement:
    """Begun before the last backward pass where that is possible, so that it travels beside the gradients:
    what it says is known by then, and a step counts only when the gradients are through as well. Rank 0's
    buffers go along."""

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
        """Wait for it. Raises GenerationOver."""
        for work in self._works:
            self._group.finish(work)
        change, counted, skipped, overflow, *losses = self._vector.tolist()
        self._group.all_ended()
        if self._buffers:
            self._trained.unpack_buffers(self._buffers)
        loss = sum(losses) / counted if counted else None
        return Outcome(change > 0, int(counted), int(skipped), overflow > 0, loss)
