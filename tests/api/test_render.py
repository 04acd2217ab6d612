"""Words and numbers on the wire, rendered from views made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from pliant.api.responses.amounts import quantity
from pliant.api.responses.encoding import encode
from pliant.api.responses.spec import spec_of
from pliant.api.responses.status import status_of
from pliant.api.responses.times import stamp
from pliant.api.responses.workloads import Renderer, job_type, numbers_of, over_quota, reason_item
from pliant.control.board.view import Board, PoolUse, QueueView, Views, WorkloadView
from pliant.model.machine import Cluster, Placement, Share
from pliant.model.quantity import Resources
from pliant.model.reason import NeverFits
from pliant.model.tenancy import Project
from pliant.model.workload import Kind, Launch, Phase, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.verdicts import Verdicts

WORKLOAD = Workload("w", "a", "2", Kind.TRAINING, Launch("ubuntu"), (TaskGroup("task", Request(1)),))
TASK = Task("w", "task-0", "task", 0)
PROJECT = Project("2", "p")


def view(workload: Workload = WORKLOAD, *tasks: Task, **changes: object) -> WorkloadView:
    return WorkloadView(replace(workload, **changes), PROJECT, None, tasks or (TASK,))


@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (Phase.CREATING, "Pending"),
        (Phase.PENDING, "Pending"),
        (Phase.INITIALIZING, "ContainerCreating"),
        (Phase.RUNNING, "Running"),
        (Phase.DEGRADED, "Pending"),
        (Phase.STOPPING, "Terminating"),
        (Phase.DELETING, "Terminating"),
        (Phase.TERMINATING, "Terminating"),
        (Phase.STOPPED, "Suspended"),
        (Phase.COMPLETED, "Succeeded"),
        (Phase.FAILED, "Failed"),
    ],
)
def test_words_for_phases(phase: Phase, word: str) -> None:
    assert status_of(view(phase=phase), 0) == word


def test_every_phase_has_a_word() -> None:
    assert all(status_of(view(phase=phase), 0) for phase in Phase)


@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (TaskPhase.STOPPING, "Terminating"),
        (TaskPhase.ORDERED, "ContainerCreating"),
        (TaskPhase.WAITING, "Pending"),
    ],
)
def test_a_resize_is_seen_step_by_step(phase: TaskPhase, word: str) -> None:
    assert status_of(view(WORKLOAD, replace(TASK, phase=phase), phase=Phase.UPDATING), 0) == word


@pytest.mark.parametrize(("kind", "word"), [(Kind.TRAINING, "Error"), (Kind.WORKSPACE, "CrashLoopBackOff")])
def test_between_two_tries(kind: Kind, word: str) -> None:
    resting = replace(TASK, failures=1, retry_at=1000)
    waits = view(WORKLOAD, resting, phase=Phase.PENDING, kind=kind)
    assert status_of(waits, 999) == word
    assert status_of(waits, 1000) == "Pending"
    lost = view(WORKLOAD, replace(resting, failures=0), phase=Phase.PENDING, kind=kind)
    assert status_of(lost, 999) == "Pending"


@pytest.mark.parametrize(
    ("kind", "preemptible", "word"),
    [
        (Kind.TRAINING, True, "Train"),
        (Kind.DISTRIBUTED, True, "Train"),
        (Kind.WORKSPACE, False, "Interactive"),
        (Kind.WORKSPACE, True, "Interactive-Preemptible"),
        (Kind.INFERENCE, False, "Inference"),
    ],
)
def test_types_of_the_first_command_line(kind: Kind, preemptible: bool, word: str) -> None:
    assert job_type(replace(WORKLOAD, kind=kind, preemptible=preemptible)) == word


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (1_700_000_000_999, "2023-11-14T22:13:20.999Z"),
    ],
)
def test_times(ms: int, text: str) -> None:
    assert stamp(ms) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(5 * 10**9, "5G"), (5 * 2**30, "5Gi"), (6 * 10**9, "6G"), (123_456_789, "123456789")]
)
def test_quantities_are_exact(amount: int, text: str) -> None:
    assert quantity(amount) == text


def test_numbers_become_json() -> None:
    placement = Placement("n", (Share("g"),))
    found = numbers_of([("a", 1), ("b", None), ("c", Phase.RUNNING), ("d", ("x", 2)), ("e", placement)])
    assert found == {"a": 1, "b": None, "c": "Running", "d": ["x", 2], "e": str(placement)}


def test_over_quota_goes_to_the_youngest_preemptible() -> None:
    def holder(identity: str, serial: int, gpus: int, preemptible: bool = True) -> WorkloadView:
        shares = tuple(Share(f"{identity}-{number}") for number in range(gpus))
        task = replace(TASK, workload=identity, phase=TaskPhase.RUNNING, carries=Placement("n", shares))
        row = replace(WORKLOAD, id=identity, serial=serial, preemptible=preemptible)
        return replace(view(row, task), pool="default")

    views = [holder("old", 1, 2), holder("young", 2, 1), holder("fixed", 3, 1, preemptible=False)]
    use = PoolUse("default", 2000, Resources(4000), Resources(1000), Resources(4000), 4000)
    workloads = Views(views, Verdicts())
    board = Board(workloads=workloads, projects={"2": QueueView(PROJECT, (use,))})
    assert over_quota(board) == {"old": 1000, "young": 1000}


def test_a_spec_without_gpus_asks_for_none() -> None:
    assert (
        "gpuDevicesRequest"
        not in spec_of(replace(WORKLOAD, groups=(TaskGroup("task", Request()),)))["compute"]
    )


def test_one_rendering_serves_all_readers_of_a_second_and_hides_what_each_may_not_see() -> None:
    seen = view(launch=Launch("ubuntu", command=("train", "--key")))
    board = Board(workloads=Views([seen], Verdicts()))
    first = Renderer(board, 5_000, {}, False)
    assert first.current(board, 5_999, {})
    assert not first.current(board, 6_000, {})
    assert not first.current(replace(board), 5_000, {})
    own, other = first.read_by(lambda workload: True), first.read_by(lambda workload: False)
    assert own.workload(seen)["command"] == "train --key"
    assert own.workload(seen) is own.workload(seen)
    assert other.workload(seen)["command"] == ""
    assert own.encoded(seen) == encode(own.workload(seen)) and own.encoded(seen) is own.encoded(seen)
    assert other.encoded(seen) == encode(other.workload(seen))
    assert own.workload(seen)["command"] == "train --key"


def test_what_is_as_it_was_is_not_rendered_again_for_a_newer_board_of_the_same_second() -> None:
    reasons = NeverFits(4000, 2000, 1), NeverFits(4000, 2000, 1), NeverFits(4000, 3000, 1)
    waits = replace(view(), reason=reasons[0], lacks=True)
    boards = [
        Board(workloads=Views([it], Verdicts()))
        for it in (waits, replace(waits, reason=reasons[1]), replace(waits, reason=reasons[2]))
    ]
    first = Renderer(boards[0], 5_000, {}, False)
    made = first.read_by(lambda workload: True).workload(waits)

    def again(board: Board, now: int, before: Renderer) -> Any:
        reader = Renderer(board, now, {}, False, before).read_by(lambda workload: True)
        return reader.workload(next(iter(board.workloads.values())))

    assert again(boards[1], 5_999, first) is made
    assert again(boards[1], 6_000, first) is not made
    other = again(boards[2], 5_999, first)
    assert (other["reason"], made["reason"]) == (
        reason_item(reasons[2], 5_999),
        reason_item(reasons[0], 5_000),
    )
    moved = replace(boards[1], cluster=Cluster("another", created=0, version=""))
    assert again(moved, 5_999, first)["clusterId"] == "another"
