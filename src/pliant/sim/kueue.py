"""The configuration of Kueue's performance test: cohorts of queues, classes of equal workloads, as CSV."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pliant.model.quantity import GPU
from pliant.model.tenancy import UNLIMITED, Quota
from pliant.model.workload import Kind, Launch, Request, TaskGroup, Workload
from pliant.sim.lines import Complaints, Line, TraceError, read_lines
from pliant.sim.trace import START, Job, Setup, Trace, department, machine, owner

COLUMNS = (
    "config", "cohorts", "queues_per_cohort", "nominal_quota", "borrowing_limit", "class", "count_per_queue",
    "creation_interval_ms", "runtime_ms", "priority", "request",
)  # fmt: skip

SHARED = ("cohorts", "queues_per_cohort", "nominal_quota", "borrowing_limit")
"""Columns whose values belong to the configuration, not to a class."""


def read(path: Path, config: str = "") -> Trace:
    """Read a cohort as a department with the quotas of its queues, a queue as a project, one unit as one GPU.

    Each cohort has one node of the size of its quota, which it alone may use: the test's units have no place,
    so a workload within the quota must not wait for others to be moved. Each class of a queue arrives at its
    own interval.
    """
    wrong = Complaints()
    numbers = [it for it in COLUMNS if it not in ("config", "class")]
    rows: dict[str, dict[str, int]] = {}
    for line in read_lines(path, COLUMNS):
        with wrong.about():
            if line.word("config") == (config := config or line.word("config")):
                row = {name: line.whole(name, 10**9) for name in numbers}
                _check(line, row, rows)
                rows[line.word("class")] = row
    wrong.tell()
    if not rows:
        raise TraceError(f"{path}: there is no configuration {config!r}")
    first = next(iter(rows.values()))
    quota, most = first["nominal_quota"] * GPU, first["borrowing_limit"] * GPU
    setup: list[Setup] = []
    jobs: list[Job] = []
    for cohort in range(first["cohorts"]):
        name = f"cohort-{cohort}"
        whole = first["queues_per_cohort"] * first["nominal_quota"]
        setup.append(department(name, Quota(whole * GPU, whole * GPU)))
        setup.append(machine(f"node-{cohort}", whole, model=name))
        for number in range(first["queues_per_cohort"]):
            queue = f"{name}-queue-{number}"
            limit = quota + most if most else UNLIMITED
            project = owner(queue, Quota(quota, limit), name, number)
            setup.append(replace(project, training_node_types=(name,)))
            for kind, row in rows.items():
                jobs += [_job(queue, kind, index, row) for index in range(row["count_per_queue"])]
    jobs.sort(key=lambda job: (job.workload.created, job.workload.id))
    return Trace(config, START, setup, jobs)


def _check(line: Line, row: Mapping[str, int], before: Mapping[str, Mapping[str, int]]) -> None:
    """Raise TraceError for a row that contradicts the other classes of its configuration."""
    if line.word("class") in before:
        raise line.error(f"class {line.word('class')} of configuration {line.word('config')} is there twice")
    first = next(iter(before.values()), row)
    for name in SHARED:
        if row[name] != first[name]:
            raise line.error(f"{name} is {row[name]}, but {first[name]} for the other classes")
        if not row[name] and name != "borrowing_limit":
            raise line.error(f"{name} is 0")
    if row["request"] > row["queues_per_cohort"] * row["nominal_quota"]:
        raise line.error("the pod is larger than any node")


def _job(queue: str, kind: str, index: int, row: dict[str, int]) -> Job:
    name = f"{queue}-{kind}-{index}"
    group = TaskGroup("main", Request(row["request"]))
    at = START + (index + 1) * row["creation_interval_ms"]
    workload = Workload(
        name, name, queue, Kind.TRAINING, Launch(""), (group,), priority=row["priority"], created=at
    )
    return Job(workload, row["runtime_ms"])
