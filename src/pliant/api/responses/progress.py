"""From what jobs report to what travels."""

from typing import Any

from pliant.api.responses.times import stamp
from pliant.model.progress import Point, Progress


def progress(said: Progress | None) -> dict[str, Any] | None:
    """A wire.Progress."""
    if said is None:
        return None
    return {
        **_point(said.point),
        "state": said.state,
        "stepsTotal": said.steps,
        "epoch": said.epoch,
        "epochs": said.epochs,
        "records": said.records,
        "skipped": said.skipped,
        "stepMsBySize": {str(size): time / 1000 for size, time in said.step_times},
    }


def points(said: Progress | None) -> dict[str, Any]:
    """A wire.ProgressHistory."""
    return {"points": [_point(point) for point in said.history] if said is not None else []}


def _point(point: Point) -> dict[str, Any]:
    return {
        "at": stamp(point.at),
        "step": point.step,
        "world": point.world,
        "goodput": point.goodput / 1000,
        "loss": float(point.loss) if point.loss else None,
    }
