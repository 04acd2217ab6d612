"""Cancelling, and the one exit code that stands for a workload's outcome."""

import pytest

from pliant.control.board.outcome import outcome_of
from pliant.control.errors import Conflict
from pliant.model.event import EventKind
from pliant.model.machine import Placement
from pliant.model.workload import Attempt, AttemptId, Desired, Exit, Kind, Launch, Phase, Workload
from tests.control.stage import START, Stage


def ended(*exits: Exit, phase: Phase = Phase.FAILED, **more: object) -> tuple[int | None, int | None, bool]:
    """(exit code, signal, out of memory) of a workload with one task for each exit."""
    workload = Workload("w", "w", "p", Kind.TRAINING, Launch("ubuntu"), (), phase=phase, **more)  # type: ignore[arg-type]
    attempts = [
        Attempt(AttemptId("w", f"worker-{at}", 1), Placement("n"), 1, "", 0, exit=end)
        for at, end in enumerate(exits)
    ]
    found = outcome_of(workload, attempts, 0)
    return found.exit_code, found.signal, found.out_of_memory


@pytest.mark.parametrize(
    ("exits", "code", "signal", "oom"),
    [
        ([Exit(0, code=3)], 3, None, False),
        ([Exit(0, code=3), Exit(0, code=7), Exit(0, code=0)], 7, None, False),
        ([Exit(0, signal=9)], 137, 9, False),
        ([Exit(0, signal=9, oom=True)], 137, 9, True),
        ([Exit(0, code=1, oom=True)], 137, None, True),
        ([Exit(0, code=127, error="no such file")], 127, None, False),
        ([Exit(0, code=3), Exit(0, signal=15, stopped=True)], 3, None, False),
        ([Exit(0, lost=True)], 1, None, False),
        ([], 1, None, False),
    ],
)
def test_the_code_of_a_failed_workload(exits: list[Exit], code: int, signal: int | None, oom: bool) -> None:
    assert ended(*exits) == (code, signal, oom)


def test_the_code_of_others() -> None:
    assert ended(Exit(0, code=0), phase=Phase.COMPLETED) == (0, None, False)
    assert ended(Exit(0, signal=15, stopped=True), phase=Phase.PENDING) == (None, None, False)
    assert ended(Exit(0, code=0), cancelled_by="me") == (143, None, False)
    assert ended(Exit(0, signal=15, stopped=True), cancelled_by="me") == (143, 15, False), "history shows it"
    assert ended(Exit(0, signal=9, oom=True, stopped=True), cancelled_by="me") == (143, 9, False)
    assert ended(Exit(0, code=0), cancelled_by="me", phase=Phase.STOPPING) == (None, None, False)
    assert ended(Exit(0, code=0), desired=Desired.DELETED, phase=Phase.DELETING) == (143, None, False)
    over = {"desired": Desired.DELETED, "phase": Phase.DELETING, "ended_as": Phase.FAILED}
    assert ended(Exit(0, code=4), **over) == (4, None, False)


def test_only_the_last_attempt_of_a_task_counts() -> None:
    workload = Workload("w", "w", "p", Kind.TRAINING, Launch("ubuntu"), (), phase=Phase.FAILED)
    attempts = [
        Attempt(AttemptId("w", "task-0", number), Placement("n"), 1, "", 0, exit=Exit(0, code=code))
        for number, code in ((2, 4), (1, 9))
    ]
    assert outcome_of(workload, attempts, 0).exit_code == 4


def test_a_cancelled_job_frees_its_gpus_and_keeps_its_record(stage: Stage) -> None:
    job, other = stage.submit("job", 2), stage.submit("other", 2)
    stage.run()
    assert stage.service.outcome(job).exit_code is None
    stage.service.cancel(job, "ann")
    stage.run()
    assert (stage.phase(job), stage.phase(other)) == ("Failed", "Running")
    found = stage.service.outcome(job)
    assert (found.exit_code, found.cancelled_by, found.message) == (143, "ann", "Cancelled by ann.")
    assert stage.history(job).count("Cancelled") == 1
    stopping = next(event for _, event in stage.service.history(job) if event.kind is EventKind.STOPPING)
    assert stopping.numbers == (("desired", "Cancelled"),), "it is not called suspended"
    with pytest.raises(Conflict):
        stage.service.resume(job, "ann")


def test_a_job_that_waits_or_is_suspended_is_cancelled_at_once(stage: Stage) -> None:
    stage.submit("holder", 2)
    waiting, suspended = stage.submit("waiting", 2), stage.submit("suspended", 2)
    stage.run()
    stage.service.suspend(suspended, "me")
    for job in (waiting, suspended):
        stage.service.cancel(job, "me")
        stage.run()
        assert (stage.phase(job), stage.service.outcome(job).exit_code) == ("Failed", 143)


def test_a_job_that_is_being_cancelled_is_not_called_suspended(stage: Stage) -> None:
    job = stage.submit("job", 1, virtual={"stop_seconds": 20})
    stage.run()
    stage.service.cancel(job, "me")
    stage.run(100)
    reason = stage.service.reason(job)
    assert reason is not None
    assert (stage.phase(job), reason.code) == ("Stopping", "cancelled")


def test_cancelling_again_or_after_the_end_changes_nothing(stage: Stage) -> None:
    job = stage.submit("job", 1, virtual={"seconds": 1, "exit": 3}, backoff_limit=0)
    stage.run(5000)
    assert stage.phase(job) == "Failed"
    before = stage.history(job)
    assert stage.service.cancel(job, "me").phase is Phase.FAILED
    stage.run()
    assert (stage.history(job), stage.service.outcome(job).exit_code) == (before, 3)


def test_without_grace_it_is_killed_at_once(stage: Stage) -> None:
    job = stage.submit("job", 1, virtual={"stop_seconds": 20})
    stage.run()
    stage.service.cancel(job, "me", now=True)
    stage.run(100)
    assert stage.phase(job) == "Failed"
    assert stage.loop.clock.now() == START + 100


def test_a_job_that_had_ended_keeps_its_outcome_when_it_is_deleted(stage: Stage) -> None:
    job = stage.submit("job", 1, virtual={"seconds": 1, "exit": 3}, backoff_limit=0)
    stage.run(5000)
    before = stage.service.outcome(job)
    stage.service.delete(job, "me")
    stage.run()
    after = stage.service.outcome(job)
    assert (after.exit_code, after.message, after.deleted, after.gone) == (3, before.message, True, True)
    [(workload, found)] = stage.service.past()
    assert (workload.id, found) == (job, after)


def test_history_is_newest_first_and_limited(stage: Stage) -> None:
    stage.project("team-a", 2)
    jobs = [stage.submit(f"job-{at}", 1, "team-a" if at % 2 else "default") for at in range(4)]
    stage.run()
    stage.service.delete(jobs[3], "me")
    stage.run()
    found = [workload.name for workload, _ in stage.service.past(limit=3)]
    assert found == ["job-3", "job-2", "job-1"]
    assert [row.name for row, _ in stage.service.past(project="team-a")] == ["job-3", "job-1"]
    assert stage.service.past(since=START + 1) == []


def test_a_cancellation_survives_a_restart(stage: Stage) -> None:
    job = stage.submit("job", 1, virtual={"stop_seconds": 20})
    stage.run()
    stage.service.cancel(job, "ann")
    stage.reopen()
    stage.run(30_000)
    assert stage.service.outcome(job).message == "Cancelled by ann."


def test_gpu_time_is_exact_over_a_live_resize(stage: Stage) -> None:
    job = stage.submit("job", 2, elastic=True, live_resize=True)
    stage.run(10_000)
    assert (stage.view(job).gpu, stage.service.outcome(job).held) == (2000, 2000 * 10_000)
    other = stage.submit("other", 1, interactive=True)
    stage.run(10_000)
    assert (stage.view(job).gpu, stage.view(other).gpu) == (1000, 1000)
    found = stage.service.outcome(job)
    assert (found.held, found.running) == (2000 * 10_000 + 1000 * 10_000, 20_000)
