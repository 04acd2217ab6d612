"""What travels about how far a job is; see pliant.client.wire."""

from typing import TypedDict


class Progress(TypedDict):
    """How far a training job says that it is."""

    at: str
    state: str  # waiting, training, parked, finished, failed
    step: int  # updates of the model that are done
    stepsTotal: int  # 0: unknown
    epoch: int
    epochs: int
    records: int
    skipped: int
    world: int  # workers that train now
    goodput: float  # records per second in steps that count
    loss: float | None
    stepMsBySize: dict[str, float]  # by number of workers


class ProgressPoint(TypedDict):
    at: str
    step: int
    world: int
    goodput: float
    loss: float | None


class ProgressHistory(TypedDict):
    """GET /api/v1/workloads/{id}/progress: oldest first."""

    points: list[ProgressPoint]
