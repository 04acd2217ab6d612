"""What pods are called."""

from dataclasses import replace

import pytest

from pliant.control.board.pods import pod_names
from pliant.model.machine import Placement
from pliant.model.workload import (
    Attempt,
    AttemptId,
    Kind,
    Launch,
    Phase,
    Request,
    Task,
    TaskGroup,
    TaskPhase,
    Workload,
)


def workload(framework: str) -> Workload:
    groups = (TaskGroup("master", Request()), TaskGroup("worker", Request(), min=0, wanted=2, max=2))
    return Workload(
        "w",
        "job",
        "default",
        Kind.DISTRIBUTED,
        Launch("image"),
        groups,
        framework=framework,
        ends_with="master",
    )


def task(name: str, number: int, phase: TaskPhase = TaskPhase.RUNNING) -> Task:
    group, _, index = name.rpartition("-")
    return Task("w", name, group, int(index), phase, attempt=number)


def attempt(name: str, number: int, ordered: int) -> Attempt:
    return Attempt(AttemptId("w", name, number), Placement("n"), 1, "c", ordered)


BEGUN = [attempt("master-0", 1, 10), attempt("worker-0", 1, 10), attempt("worker-1", 1, 10)]


@pytest.mark.parametrize(
    ("tasks", "later", "expected"),
    [
        ([task("worker-0", 1), task("worker-1", 1)], [], ["0", "1"]),
        ([task("worker-0", 1), task("worker-1", 1, TaskPhase.WAITING)], [], ["0", "2"]),
        ([task("worker-0", 1), task("worker-1", 2)], [attempt("worker-1", 2, 50)], ["0", "2"]),
        (
            [task("worker-0", 2), task("worker-1", 2)],
            [attempt("worker-1", 2, 50), attempt("worker-0", 2, 70)],
            ["3", "2"],
        ),
        ([task("worker-0", 1, TaskPhase.SUCCEEDED), task("worker-1", 1)], [], ["0", "1"]),
        ([task("worker-0", 1, TaskPhase.STOPPING), task("worker-1", 1)], [], ["0", "1"]),
    ],
)
def test_a_worker_that_is_started_again_is_another_pod(
    tasks: list[Task], later: list[Attempt], expected: list[str]
) -> None:
    names = pod_names(workload("ElasticDL"), [task("master-0", 2), *tasks], [*BEGUN, *later])
    assert names.pop("master-0") == "elasticdl-master-job"
    assert list(names.values()) == [f"elasticdl-worker-job-{number}" for number in expected]


def test_in_a_job_that_is_over_nobody_waits_for_another_number() -> None:
    over = replace(workload("ElasticDL"), phase=Phase.COMPLETED)
    names = pod_names(over, [task("worker-1", 1, TaskPhase.WAITING)], BEGUN)
    assert names == {"worker-1": "elasticdl-worker-job-1"}


def test_those_that_have_not_begun_have_the_numbers_that_they_will_get() -> None:
    tasks = [task("worker-0", 0, TaskPhase.WAITING), task("worker-1", 0, TaskPhase.WAITING)]
    names = pod_names(workload("ElasticDL"), tasks, [])
    assert list(names.values()) == ["elasticdl-worker-job-0", "elasticdl-worker-job-1"]


def test_pods_of_others_are_called_as_their_tasks() -> None:
    names = pod_names(workload("PyTorch"), [task("worker-1", 3)], BEGUN)
    assert names == {"worker-1": "job-worker-1"}
