"""Use cases of a running job, which acts as one of its attempts: what it reports and what it may read."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pliant.control.errors import Conflict, NotFound
from pliant.control.loop import Loop
from pliant.control.ports import Engine
from pliant.control.state.draft import Draft
from pliant.model.event import EventKind
from pliant.model.progress import Progress, with_history
from pliant.model.workload import AttemptId, Task
from pliant.wire.job import Report

DIGITS = 6  # of a number of workers

PROTOCOL = 1
"""Version of the link between a job and its server; others are refused."""

REPORT_MS = 2000
"""Ms between two reports of a job; longer if many jobs report."""

LINKED = 20
"""Jobs that may report at that pace: 40 have twice the pause."""


class Jobs:
    """Every method but `document` takes a cycle and returns once its outcome is on disk."""

    def __init__(self, loop: Loop, engine: Callable[[str], Engine]) -> None:
        self._loop = loop
        self._engine = engine  # by node

    def document(self, workload: str) -> dict[str, Any]:
        """The allocation document of a workload: see docs/reference/attempt.md."""
        found = self._loop.allocations.document(workload)
        if found is None:
            raise NotFound(f"Workload {workload!r} has no allocation.", "Ask again later.")
        return found

    def register(self, attempt: AttemptId, protocol: int, pid: int, live: bool) -> None:
        """Note that its agent is process `pid`; with `live` its GPUs may change while it runs."""
        if protocol != PROTOCOL:
            raise Conflict(
                f"The job speaks version {protocol} of the link, this server {PROTOCOL}.",
                "Install the same version of Pliant where the job runs and where the server runs.",
            )

        def run(draft: Draft) -> Task:
            task = self._task(attempt)
            workload = self._loop.world.workloads[attempt.workload]
            groups = tuple(
                replace(group, live_resize=live) if group.name == task.group and group.elastic else group
                for group in workload.groups
            )
            if groups != workload.groups:
                draft.put(replace(workload, groups=groups))
                how = "can" if live else "cannot"
                said = f"{attempt.task} says that its GPUs {how} change while it runs."
                draft.event(attempt.workload, EventKind.UPDATED, said, who="job", attempt=str(attempt))
            return task

        self._engine_of(self._loop.call(run)).register(attempt, pid)

    def acknowledge(self, attempt: AttemptId, version: int, drained: bool, gpus: Sequence[str]) -> None:
        """Note that it has left these devices (`drained`) or works on them, as document `version` says."""

        def run(draft: Draft) -> tuple[Task, list[str]]:
            task = self._task(attempt)
            if not drained:
                where = f" on {len(gpus)} GPU{'' if len(gpus) == 1 else 's'}" if gpus else ""
                said = f"{attempt.task} trains{where}."
                draft.event(attempt.workload, EventKind.RESIZED, said, who="job", attempt=str(attempt))
                return task, []
            return task, self._loop.allocations.drained(attempt, version, gpus)

        task, left = self._loop.call(run)
        if left:
            self._engine_of(task).acknowledge(attempt, left)

    def report(self, attempt: AttemptId, said: Progress) -> int:
        """Record its progress; the ms after which it may report again."""

        def run(draft: Draft) -> int:
            self._task(attempt)
            state = self._loop.state
            known = replace(said, workload=attempt.workload, at=draft.now)
            draft.put(replace(known, history=with_history(known, state.progress.get(attempt.workload))))
            return REPORT_MS * max(LINKED, len(state.progress)) // LINKED

        return self._loop.call(run)

    def _task(self, attempt: AttemptId) -> Task:
        """The task, if this is its present attempt and lives. On the loop's thread."""
        task = self._loop.world.tasks.get((attempt.workload, attempt.task))
        if task is None or task.attempt != attempt.number or not task.phase.live:
            raise Conflict(
                f"Attempt {attempt} is over.", "Its reports are ignored; the next attempt has its own token."
            )
        return task

    def _engine_of(self, task: Task) -> Engine:
        return self._engine(task.carries.node if task.carries is not None else "")


def progress_of(said: Report) -> Progress:
    """What is kept of a report; the caller adds the workload and the time."""
    sizes = said.get("stepMsBySize", {})
    known = [size for size in sizes if size.isdecimal() and len(size) <= DIGITS]
    times = {int(size): round(sizes[size] * 1000) for size in known}
    loss = said.get("loss")
    return Progress(
        workload="",
        at=0,
        state=said.get("state", ""),
        step=said.get("step", 0),
        steps=said.get("stepsTotal", 0),
        epoch=said.get("epoch", 0),
        epochs=said.get("epochs", 0),
        records=said.get("records", 0),
        skipped=said.get("skipped", 0),
        world=said.get("world", 0),
        goodput=round(said.get("goodput", 0) * 1000),
        loss="" if loss is None else f"{loss:.6g}",
        step_times=tuple(sorted(times.items())[:64]),
    )
