"""Reads a server's record of its cycles as a trace: submissions, and changes of machines and owners."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pliant.model.machine import Node, NodePool
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology
from pliant.model.workload import Desired, Phase, Task, TaskPhase, Workload
from pliant.sched.settings import Settings
from pliant.sched.world.rows import Row
from pliant.sim.lines import TraceError
from pliant.sim.trace import Change, Job, Setup, Trace
from pliant.store.codec import Codec
from pliant.store.rerun import Unreadable, lines_of
from pliant.wire.record import Rows

SETUP = (Node, NodePool, Department, Project, Topology)
CODECS: Mapping[str, Codec[Any]] = {kind.__name__: Codec(kind) for kind in (*SETUP, Workload, Task)}


@dataclass(slots=True)
class _Seen:
    """What the record contains about one workload."""

    workload: Workload  # as first seen
    ran: dict[str, int] = field(default_factory=dict)  # task -> ms that its ended attempts ran
    # Task -> (ms when its current attempt began to run, its milli-GPUs).
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    did: int = 0  # milli-GPU-ms of all ended attempts
    over: bool = False  # it completed
    ends: int | None = None  # ms when its owner deleted or stopped it


class Following:
    """Follows the rows of a record, one cycle after another, and builds a trace from them."""

    def __init__(self) -> None:
        self.began = self.now = 0
        self.setup: dict[tuple[str, str], Setup] = {}
        self.first: list[Setup] = []
        self.changes: list[Change] = []
        self.jobs: dict[str, _Seen] = {}
        self.settings = Settings()
        self._rows = Rows()
        self.warnings: list[str] = []

    def take(self, entry: Mapping[str, Any]) -> None:
        if entry["now"] < self.now:
            raise ValueError(f"the time goes back from {self.now} to {entry['now']} ms")
        self.now = entry["now"]
        if entry.get("settings") is not None and not self.began:
            self.settings = Codec(Settings).decode(json.dumps(entry["settings"]))
        begins = entry.get("base") is not None and not self.began
        if begins:
            self.began = self.now
        for name, body, gone in self._rows.of(entry):
            codec = CODECS.get(name)
            if codec is not None:
                self._row(codec.decode(json.dumps(body)), gone, begins)

    def _row(self, row: Row, gone: bool, begins: bool) -> None:
        match row:
            case Workload():
                self._workload(row)
            case Task():
                self._task(row, gone)
            case Node() | NodePool() | Department() | Project() | Topology():
                self._of_setup(replace(row, engine="virtual") if isinstance(row, Node) else row, gone, begins)
            case _:
                return

    def _of_setup(self, row: Setup, gone: bool, begins: bool) -> None:
        key = type(row).__name__, row.name if isinstance(row, Node | Topology) else row.id
        if gone:
            self.setup.pop(key, None)
        elif self.setup.get(key) == row:
            return
        else:
            self.setup[key] = row
        if begins:
            self.first.append(row)
        else:
            self.changes.append(Change(self.now, row, gone))

    def _workload(self, row: Workload) -> None:
        seen = self.jobs.get(row.id)
        if seen is None:
            if row.desired is not Desired.RUNNING or row.phase.final:
                return
            seen = self.jobs[row.id] = _Seen(replace(row, created=self.now))
        if row.desired is not Desired.RUNNING and not seen.over and seen.ends is None:
            seen.ends = self.now
        seen.over = seen.over or row.phase is Phase.COMPLETED

    def _task(self, row: Task, gone: bool) -> None:
        seen = self.jobs.get(row.workload)
        if seen is None:
            return
        runs = row.phase is TaskPhase.RUNNING and not gone
        if runs and row.name not in seen.since:
            since = self.now if row.started is None else max(row.started, self.began)
            seen.since[row.name] = since, row.carries.gpu if row.carries is not None else 0
        elif not runs and (begun := seen.since.pop(row.name, None)) is not None:
            spent = max(0, self.now - begun[0])
            seen.ran[row.name] = seen.ran.get(row.name, 0) + spent
            seen.did += spent * begun[1]

    def trace(self, name: str) -> Trace:
        jobs = [
            Job(
                it.workload,
                max(it.ran.values(), default=0) if it.over else None,
                None if it.over else it.ends,
                it.did if it.over and it.workload.groups[0].elastic else None,
            )
            for it in self.jobs.values()
        ]
        jobs.sort(key=lambda job: (job.workload.created, job.workload.serial))
        first: list[Setup] = self.first
        return Trace(name, self.began, first, jobs, self.changes, self.settings, self.now, self.warnings)


def read(path: Path) -> Trace:
    """Read one file of a record, a debug bundle, or a state folder's whole record. Raises TraceError.

    Workloads that run when the record begins are submitted then. A job that had not ended when the record
    ends does not end.
    """
    files = (
        sorted((path / "replay").glob("*.jsonl")) or sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    )
    follow = Following()
    for file in files:

        def torn(number: int, file: Path = file) -> None:
            follow.warnings.append(
                f"{file}:{number}: this line is cut off; what follows in this file is not read"
            )

        try:
            for number, entry in enumerate(lines_of(file.read_bytes(), torn), 1):
                if follow.began and "missed" in entry:
                    cycles, _ = entry["missed"]
                    follow.warnings.append(f"{file}:{number}: {cycles} cycles before it were not recorded")
                try:
                    follow.take(entry)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    said = str(error) if type(error) is ValueError else repr(error)
                    raise TraceError(f"{file}:{number}: this line cannot be read: {said}") from None
        except Unreadable as error:
            raise TraceError(f"{file}: {error}") from None
        except OSError as error:
            raise TraceError(f"{file}: cannot be read: {error.strerror}") from None
    if not follow.began:
        raise TraceError(f"{path}: there is no whole world in this record to begin with")
    if not follow.jobs:
        raise TraceError(f"{path}: there are no jobs in this record")
    return follow.trace(path.name)
