"""What is retried after a failure, how often, and what the user sees."""

from collections.abc import Callable

import pytest

from pliant.model.fact import AttemptEnded
from pliant.model.workload import AttemptId, Exit, Task
from tests.control.stage import Stage

HOUR = 3_600_000


@pytest.fixture
def lives(stage: Stage) -> Callable[..., str]:
    """Submits a job whose every attempt runs until a test ends it."""

    def submit(**more: object) -> str:
        return stage.submit("job", **more)

    return submit


def fail(stage: Stage, job: str, *, after: int = 1000, **how: object) -> Task:
    """The job's next attempt begins, runs for `after` ms and ends with Exit(**how)."""
    while stage.phase(job) == "Pending":
        wake = stage.loop.plan.wake
        assert wake is not None, stage.view(job)
        stage.run(wake - stage.timeline.now())
    stage.run(after)
    task = stage.view(job).tasks[0]
    attempt = AttemptId(job, task.name, task.attempt)
    stage.machines.runs[attempt].exit = end = Exit(stage.timeline.now(), **how)  # type: ignore[arg-type]
    stage.loop.post(AttemptEnded(attempt, end))
    stage.run()
    return stage.view(job).tasks[0]


def message(stage: Stage, job: str) -> str:
    assert stage.phase(job) == "Failed", stage.view(job)
    return stage.view(job).workload.phase_message


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ({"code": 127}, "task-0 ended with exit code 127; the command was not found, so it is not retried."),
        (
            {"code": 126},
            "task-0 ended with exit code 126; the command is not executable, so it is not retried.",
        ),
        (
            {"code": 126, "error": "working directory /x does not exist", "after": 0},
            "task-0 could not be started: working directory /x does not exist; it is not retried.",
        ),
    ],
)
def test_what_cannot_start_is_final(
    stage: Stage, lives: Callable[..., str], end: dict[str, object], said: str
) -> None:
    job = lives()
    fail(stage, job, **end)
    assert message(stage, job) == said


def test_after_a_minute_127_is_a_failure_like_others(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives()
    assert fail(stage, job, after=61_000, code=127).retry_at is not None


def test_the_same_exit_code_twice_within_a_minute_is_a_crash_loop(
    stage: Stage, lives: Callable[..., str]
) -> None:
    job = lives()
    began = stage.timeline.now()
    assert fail(stage, job, code=1).retry_at is not None
    said = [event.message for _, event in stage.service.history(job)]
    assert "task-0 ended with exit code 1; retry 1 of 6 starts in 10s." in said
    fail(stage, job, code=1)
    assert stage.timeline.now() - began < 15_000
    assert message(stage, job) == (
        "task-0 ended with exit code 1; it failed twice in the same way within a minute (crash loop), so it "
        "is not retried."
    )


@pytest.mark.parametrize(
    "ends",
    [
        [{"code": 1}, {"code": 2}] * 3,  # another error each time
        [{"code": 1, "after": 61_000}] * 6,  # it worked for a while
        [{"signal": 11}] * 6,
    ],
)
def test_other_failures_are_retried_up_to_the_limit(
    stage: Stage, lives: Callable[..., str], ends: list[dict[str, object]]
) -> None:
    job = lives()
    for count, end in enumerate(ends, 1):
        task = fail(stage, job, **end)  # type: ignore[arg-type]
        assert task.failures == count and task.retry_at is not None, end
    fail(stage, job, signal=9)
    assert message(stage, job) == "task-0 was killed by SIGKILL; all 6 retries failed."


def test_a_limit_that_was_asked_for_is_exact(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives(backoff_limit=3)
    for _ in range(3):
        assert fail(stage, job, code=1).retry_at is not None
    fail(stage, job, code=1)
    assert message(stage, job) == "task-0 ended with exit code 1; all 3 retries failed."
    assert stage.view(job).tasks[0].attempt == 4


def test_one_retry_is_named_as_one(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives(backoff_limit=1)
    for code in (1, 2):
        fail(stage, job, code=code)
    assert message(stage, job) == "task-0 ended with exit code 2; its retry failed."


def test_an_elastic_job_has_no_crash_loop(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives(elastic=True)
    for _ in range(3):
        assert fail(stage, job, code=1).retry_at is not None


def test_want_of_memory_is_final_at_the_second_time(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives(backoff_limit=5)
    assert fail(stage, job, signal=9, oom=True).retry_at is not None
    assert fail(stage, job, code=1).retry_at is not None
    fail(stage, job, signal=9, oom=True)
    assert message(stage, job) == (
        "task-0 ran out of memory and was killed by the kernel (SIGKILL); it is not retried: it would run "
        "out of memory again."
    )


def test_an_eviction_counts_as_no_failure(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives()
    fail(stage, job, code=1)
    task = fail(stage, job, code=143, stopped=True)
    assert (task.failures, task.last_code) == (1, None)
    assert fail(stage, job, code=1).retry_at is not None, (
        "the attempt before was stopped by us: no crash loop"
    )


def test_resume_begins_the_count_anew(stage: Stage, lives: Callable[..., str]) -> None:
    job = lives()
    fail(stage, job, signal=9, oom=True)
    stage.service.suspend(job, "me")
    stage.service.resume(job, "me")
    task = stage.view(job).tasks[0]
    assert (task.failures, task.ooms, task.last_code) == (0, 0, None)


@pytest.mark.parametrize(
    ("how", "waits", "said"),
    [
        ({}, [1, 2, 4, 8, 16, 32, 60, 60], "was lost: its processes are gone and no exit code was recorded."),
        (
            {"note": "Its node has no room."},
            [1, 2, 4, 8, 16, 32, 60, 60],
            "was lost: Its node has no room; the next attempt starts in 1m0s.",
        ),
        (
            {"error": "exceeded quota: q"},
            [10, 20, 40, 60, 60],
            "could not be started: exceeded quota: q; the next attempt starts in 1m0s.",
        ),
    ],
    ids=["lost", "turned away", "refused"],
)
def test_what_is_turned_away_at_once_waits_longer_each_time_and_has_not_failed(
    stage: Stage, lives: Callable[..., str], how: dict[str, str], waits: list[int], said: str
) -> None:
    """A node or a quota of the cluster may refuse every pod: retries must not flood it."""
    job, waited = lives(), []
    for _ in waits:
        task = fail(stage, job, lost=True, **how)
        assert task.retry_at is not None and task.failures == 0
        wait = task.retry_at - stage.timeline.now()
        waited.append(wait // 1000)
        stage.run(wait)
    assert waited == waits
    assert stage.loop.state.last_words[job].endswith(said)


def test_what_ran_for_a_while_and_is_lost_starts_again_at_once(
    stage: Stage, lives: Callable[..., str]
) -> None:
    job = lives()
    assert fail(stage, job, after=20_000, lost=True).attempt == 2


def test_a_success_of_what_always_starts_again_begins_the_count_anew(
    stage: Stage, lives: Callable[..., str]
) -> None:
    job = lives(restart=True)
    fail(stage, job, signal=9, oom=True)
    for _ in range(6):
        task = fail(stage, job, code=1)
        task = fail(stage, job, code=0)
        assert (task.failures, task.ooms) == (0, 0) and stage.phase(job) != "Failed"
    assert fail(stage, job, signal=9, oom=True).retry_at == stage.timeline.now() + 10_000


def test_what_always_starts_again_and_ends_soon_after_its_start_waits_longer_each_time(
    stage: Stage, lives: Callable[..., str]
) -> None:
    """Successes count towards no limit. A run of 10 minutes ends the growth, whatever its end."""
    job, waited = lives(restart=True, backoff_limit=0), []

    def succeed(after: int) -> Task:
        task = fail(stage, job, after=after, code=0)
        assert task.failures == 0 and stage.phase(job) != "Failed"
        return task

    for after in (5, 5, 5, 60_000, 599_999, 5, 5):
        task = succeed(after)
        assert task.retry_at is not None, f"it started again at once after {len(waited)} pauses"
        assert task.claims is None, "while it waits it holds no GPUs"
        waited.append((task.retry_at - stage.timeline.now()) // 1000)
    assert waited == [10, 20, 40, 80, 160, 300, 300]
    assert stage.loop.state.last_words[job] == "task-0 ended with exit code 0; it starts again in 5m0s."
    [verdict] = stage.loop.plan.verdicts
    assert verdict.reason.text(stage.timeline.now()) == (
        "task-0 ended successfully within 10 minutes 7 times; next attempt in 5m (backoff)."
    )
    assert succeed(600_000).attempt == 9, "it starts again at once"
    assert succeed(5).retry_at == stage.timeline.now() + 10_000


def test_a_failure_in_between_does_not_shorten_the_pauses_after_successes(
    stage: Stage, lives: Callable[..., str]
) -> None:
    job, waited = lives(restart=True), []
    for _ in range(3):
        fail(stage, job, after=5, code=1)
        task = fail(stage, job, after=5, code=0)
        assert task.retry_at is not None
        waited.append((task.retry_at - stage.timeline.now()) // 1000)
    assert waited == [10, 20, 40]
    stage.service.suspend(job, "me")
    stage.service.resume(job, "me")
    assert stage.view(job).tasks[0].short_runs == 0


@pytest.mark.parametrize("at", [10**16, 10**30])
def test_an_end_is_never_recorded_in_the_future(stage: Stage, lives: Callable[..., str], at: int) -> None:
    """A job can write the record of its end, and a node's clock can be ahead."""
    job = lives()
    stage.run(1000)
    attempt = AttemptId(job, stage.view(job).tasks[0].name, 1)
    stage.machines.runs[attempt].exit = end = Exit(at, code=0)
    stage.loop.post(AttemptEnded(attempt, end))
    stage.run()
    assert stage.view(job).workload.completed == stage.timeline.now()
    [row] = stage.store.attempts(job)
    assert row.exit is not None and row.exit.at == stage.timeline.now()
