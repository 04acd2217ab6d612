"""Reads the progress of jobs in pods: the job's library writes a file in the pod, and the server reads it
there, since pods need not reach the server."""

import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pliant.control.errors import Refused
from pliant.control.ports import Engine
from pliant.control.service import Service
from pliant.control.usecases.jobs import progress_of
from pliant.engines.kube.pods.manifest import FOLDER
from pliant.engines.kube.pods.session import output
from pliant.model.workload import AttemptId
from pliant.wire.job import Report

log = logging.getLogger(__name__)

ASK = ["cat", f"{FOLDER}/report.json"]
PAUSE, RARELY = 3.0, 120.0
"""Seconds until a job is read again; doubled each time that it has no report, up to RARELY."""

LOOK = 1.0  # seconds between two looks for running jobs

COUNTS = ("step", "stepsTotal", "epoch", "epochs", "records", "skipped", "world")


@dataclass(slots=True)
class _Job:
    due: float = 0.0  # monotonic s
    pause: float = PAUSE
    turn: int = 0  # index of the task to read
    said: str = ""


class Reports:
    """One thread reads one pod after another: with many running jobs, each is read less often."""

    def __init__(self, engine: Engine, service: Service) -> None:
        self._engine, self._service = engine, service
        self._jobs: dict[str, _Job] = {}  # by workload
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pliant-kube-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(LOOK):
            living = dict(self._living())
            self._jobs = {name: self._jobs.get(name) or _Job() for name in living}
            for name, job in self._jobs.items():
                if job.due <= time.monotonic() and not self._closed.is_set():
                    self._ask(job, living[name])
                    job.due = time.monotonic() + job.pause

    def _living(self) -> Iterator[tuple[str, list[AttemptId]]]:
        """Running attempts, of jobs that may be elastic."""
        for view in self._service.board.workloads.values():
            row = view.workload
            if row.origin is None and (row.framework or any(group.elastic for group in row.groups)):
                live = [task for task in view.tasks if task.phase.live and task.started is not None]
                if live:
                    yield row.id, [AttemptId(row.id, task.name, task.attempt) for task in live]

    def _ask(self, job: _Job, attempts: list[AttemptId]) -> None:
        attempt = attempts[job.turn % len(attempts)]
        try:
            said = output(self._engine.exec(attempt, ASK, tty=False, stdin=False, rows=24, columns=80))
            progress = progress_of(report_of(json.loads(said)))
        except (ValueError, RecursionError) as error:
            log.debug("%s reports nothing: %s", attempt, error)
            job.turn, job.pause = job.turn + 1, min(2 * job.pause, RARELY)
            return
        job.pause = PAUSE
        if said != job.said:
            job.said = said
            try:
                self._service.jobs.report(attempt, progress)
            except Refused as error:
                log.debug("%s is over: %s", attempt, error)


def report_of(said: Any) -> Report:
    """The job's report, checked, because any program can write it. Raises ValueError."""
    if not isinstance(said, Mapping):
        raise ValueError("it is no report")
    report: Report = {"state": str(said.get("state", ""))[:40]}
    for name in COUNTS:
        report[name] = int(_number(said.get(name, 0)))  # type: ignore[literal-required]
    report["goodput"] = _number(said.get("goodput", 0))
    loss, sizes = said.get("loss"), said.get("stepMsBySize", {})
    if loss is not None:
        report["loss"] = _number(loss, least=-1e15)
    if not isinstance(sizes, Mapping) or len(sizes) > 64:
        raise ValueError("stepMsBySize is no table of up to 64 sizes")
    report["stepMsBySize"] = {str(size): _number(ms) for size, ms in sizes.items()}
    return report


def _number(value: Any, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    if not least <= value <= 1e15:
        raise ValueError(f"{value} is out of range")
    return value
