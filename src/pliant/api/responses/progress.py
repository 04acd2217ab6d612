"""Renders the progress that jobs report."""

from pliant.api.responses.times import stamp
from pliant.model.progress import Point, Progress
from pliant.wire import workload as wire


def progress(said: Progress | None) -> wire.Progress | None:
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


def points(said: Progress | None) -> wire.ProgressHistory:
    return {"points": [_point(point) for point in said.history] if said is not None else []}


def _point(point: Point) -> wire.ProgressPoint:
    return {
        "at": stamp(point.at),
        "step": point.step,
        "world": point.world,
        "goodput": point.goodput / 1000,
        "loss": float(point.loss) if point.loss else None,
    }
