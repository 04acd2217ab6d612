"""Limits per user: GPUs at once, waiting jobs, GPU hours of 30 days; and the sums behind them."""

from dataclasses import replace

import pytest

from pliant.control.errors import NotFound, OverLimit
from pliant.control.explain.dry import Tried
from pliant.control.state.limits import eased
from pliant.control.state.usage import DAY, parts
from pliant.control.submit.sequence import Start
from pliant.control.submit.submission import Submission
from pliant.control.submit.variables import Variables
from pliant.control.usecases.changes import QueueChange
from pliant.model.identity import Allowance
from pliant.model.ledger import Usage
from pliant.model.workload import Launch
from tests.control.stage import START, Stage

HOUR = 3_600_000
GPU_HOUR = 1000 * HOUR


@pytest.fixture
def wide(tmp_path) -> Stage:
    return Stage(tmp_path, "1x8")


def submit(stage, name, gpus=1, user="bob", project="default", seconds=0, **more):
    own = Variables((("PLIANT_VIRTUAL_SECONDS", str(seconds)),) if seconds else ())
    ask = Submission(
        project, Launch("ubuntu", ("true",)), name=name, gpus=gpus * 1000 or None, variables=own, **more
    )
    found = stage.service.submit(stage.service.check(ask), user)
    stage.run()
    return found.workload.id


def limit(stage, user="bob", project="", **what):
    stage.service.usages.limit(Allowance(user, project, **what), "root")
    stage.run()


def running(stage, *jobs):
    stage.run(2000)
    return [stage.phase(job) == "Running" for job in jobs]


def why(stage, job):
    reason = stage.view(job).reason
    return (reason.code, reason.text(stage.timeline.now()))


def test_gpus_at_once(wide):
    limit(wide, running=2000)
    jobs = [submit(wide, f"j{n}") for n in range(3)]
    others = submit(wide, "others", 4, user="alice")
    assert running(wide, *jobs, others) == [True, True, False, True]
    assert why(wide, jobs[2]) == (
        "user-limit",
        "Needs 1 GPU; its user may hold 2 GPUs at a time, those of pending jobs included.",
    )
    assert jobs[2] not in wide.loop.board.queue, "it competes with nobody"
    cpu = submit(wide, "cpu", 0)
    assert running(wide, cpu) == [True], "it holds no GPU"
    wide.service.suspend(jobs[0], "bob")
    assert running(wide, *jobs) == [False, True, True]
    wide.service.resume(jobs[0], "bob")
    assert running(wide, *jobs) == [False, True, True], "it takes its turn again"
    wide.service.delete(jobs[2], "bob")
    assert running(wide, *jobs[:2]) == [True, True]


def test_the_limit_of_a_project_and_of_all_hold_both_and_a_name_goes_before_everybody(wide):
    wide.project("a", 8)
    a = next(row.id for row in wide.loop.world.projects.values() if row.name == "a")
    limit(wide, "", a, running=1000)
    limit(wide, "bob", a, running=3000)
    limit(wide, "bob", running=2000)
    bobs = [submit(wide, f"b{n}", project="a") for n in range(3)]
    alices = [submit(wide, f"a{n}", project="a", user="alice") for n in range(2)]
    elsewhere = submit(wide, "elsewhere", user="alice", gpus=2)
    assert running(wide, *bobs, *alices, elsewhere) == [True, True, False, True, False, True]
    assert "in this project" in why(wide, alices[1])[1]
    assert "in this project" not in why(wide, bobs[2])[1]
    limit(wide, "bob")
    assert running(wide, *bobs) == [True, True, True]
    with pytest.raises(NotFound, match="no such limit"):
        limit(wide, "bob")


def test_of_those_who_wait_the_highest_priority_begins_and_a_small_job_may_pass(wide):
    limit(wide, running=2000)
    first = submit(wide, "first")
    big, low, high = submit(wide, "big", 2), submit(wide, "low"), submit(wide, "high", priority="60")
    assert running(wide, first, big, low, high) == [True, False, True, False]
    wide.service.delete(first, "bob")
    assert running(wide, big, low, high) == [False, True, True]


def test_a_limit_that_is_lowered_stops_nothing_and_holds_what_waits(stage):
    held = submit(stage, "held", 2, user="alice")
    jobs = [submit(stage, f"j{n}") for n in range(2)]
    assert running(stage, held, *jobs) == [True, False, False]
    limit(stage, running=1000)
    assert [stage.view(job).reason.code for job in jobs] == ["no-capacity", "user-limit"]
    stage.service.delete(held, "alice")
    assert running(stage, *jobs) == [True, False]
    limit(stage, running=0)
    assert running(stage, *jobs) == [True, False]


def test_an_array_and_a_dependency_are_held_as_well_and_over_a_restart(wide):
    limit(wide, running=2000)
    ask = Submission(
        "default", Launch("ubuntu", ("true",)), name="arr", start=Start(indexes=tuple(range(5))), gpus=1000
    )
    wide.service.submit(wide.service.check(ask), "bob")
    wide.run(2000)
    rows = sorted(wide.loop.world.workloads.values(), key=lambda row: row.serial)
    assert [row.phase.value for row in rows] == ["Running"] * 2 + ["Pending"] * 3
    assert [row.held for row in rows] == ["", "", *["user-limit"] * 3]
    wide.reopen()
    assert [row.held for row in sorted(wide.loop.world.workloads.values(), key=lambda row: row.serial)] == [
        "", "", *["user-limit"] * 3,
    ]  # fmt: skip


def test_memory_of_gpus_counts_too(wide):
    limit(wide, running=1000)
    half = [submit(wide, f"h{n}", 0, gpu_memory=8 * 2**30) for n in range(3)]
    assert running(wide, *half) == [True, True, False]


def test_how_many_may_wait(stage):
    limit(stage, "", waiting=2)
    running_one = submit(stage, "runs", 2)
    assert running(stage, running_one) == [True]
    for name in ("one", "two"):
        submit(stage, name)
    with pytest.raises(OverLimit, match="bob has 2 pending jobs; the limit is 2"):
        submit(stage, "three")
    submit(stage, "hers", user="alice")
    with pytest.raises(OverLimit, match="the limit is 2"):
        submit(stage, "arr", user="eve", start=Start(indexes=(0, 1, 2)))


def test_gpu_hours_of_30_days(wide):
    limit(wide, gpu_ms=2 * GPU_HOUR)
    first = submit(wide, "first", 2, seconds=3600)
    assert running(wide, first) == [True]
    wide.run(HOUR + 60_000)
    assert wide.phase(first) == "Completed"
    second = submit(wide, "second")
    assert running(wide, second) == [False]
    code, text = why(wide, second)
    assert code == "user-limit" and text.startswith("Its user has used all of 2 GPU hours in 30 days; ")
    wide.run(29 * DAY)
    assert running(wide, second) == [False]
    wide.run(DAY)
    assert running(wide, second) == [True], "what was used has left the window"


@pytest.mark.parametrize(
    ("days", "most", "left"), [([5, 0, 0], 6, None), ([5, 0, 0], 5, 1), ([1, 4, 4], 5, 2), ([9], 0, 1)]
)
def test_when_hours_come_back(days, most, left):
    now = 100 * DAY + HOUR
    assert eased(days, most, now) == (None if left is None else (100 + left) * DAY)


def test_a_dry_run_changes_nothing_and_a_rehearsal_says_what_would_hold_it(wide):
    job = submit(wide, "job", 2)
    before = dict(wide.loop.world.workloads)
    with pytest.raises(Tried):
        wide.service.dry().usages.limit(Allowance("bob", "", running=0), "root")
    assert dict(wide.loop.world.workloads) == before and wide.loop.state.access.seen.allowances == {}
    limit(wide, running=2000)
    ask = Submission("default", Launch("ubuntu", ("true",)), name="next", gpus=1000)
    said = wide.service.rehearse(wide.service.check(ask), "bob")
    assert said.reason is not None and said.reason.code == "user-limit"
    assert running(wide, job) == [True]


# -- what was held ----------------------------------------------------------------------------------


def sums(stage, since=START - DAY, until=START + 60 * DAY):
    return {(row.day, row.user, row.project_name): row.held for row in stage.service.usages.of(since, until)}


def test_time_is_split_at_midnight_utc():
    assert [*parts(DAY - HOUR, DAY + 2 * HOUR)] == [("1970-01-01", HOUR), ("1970-01-02", 2 * HOUR)]
    assert [*parts(5, 5)] == []


def test_sums_by_person_and_day_outlive_the_server_and_count_nothing_twice(wide):
    long = submit(wide, "long", 2)
    short = submit(wide, "short", 1, user="alice", seconds=1800)
    wide.run(3 * DAY)
    wide.reopen()
    wide.run(DAY)
    wide.service.delete(long, "bob")
    wide.run(5000)
    found = sums(wide)
    bobs = sum(value for (_, user, _), value in found.items() if user == "bob")
    view = wide.store.attempts(long)[0]
    assert bobs == view.held(wide.timeline.now()) and view.exit is not None
    assert len([key for key in found if key[1] == "bob"]) == 5
    assert sum(value for (_, user, _), value in found.items() if user == "alice") == wide.store.attempts(
        short
    )[0].held(0)
    rows = wide.store.load().of(Usage)
    assert {(row.day, row.user): row.held for row in rows} == {key[:2]: value for key, value in found.items()}
    assert sum(row.runs for row in rows) == 2 and not any(row.failed for row in rows)


def test_a_run_that_failed_and_one_that_was_stopped(wide):
    submit(wide, "bad", 1, seconds=10, backoff_limit=0)
    ask = Submission(
        "default", Launch("ubuntu", ("true",)), name="worse", gpus=1000, backoff_limit=0,
        variables=Variables((("PLIANT_VIRTUAL_SECONDS", "5"), ("PLIANT_VIRTUAL_EXIT", "3"))),
    )  # fmt: skip
    wide.service.submit(wide.service.check(ask), "bob")
    stopped = submit(wide, "stopped")
    wide.run(20_000)
    wide.service.delete(stopped, "bob")
    wide.run(5000)
    (row,) = wide.store.load().of(Usage)
    assert (row.runs, row.failed) == (3, 1)


def test_a_project_that_is_gone_keeps_its_name_and_what_is_too_old_goes(wide):
    wide.project("gone", 1)
    job = submit(wide, "job", project="gone")
    wide.run(HOUR)
    wide.service.delete(job, "bob")
    wide.run(5000)
    wide.service.delete_project("gone", "me")
    wide.run()
    assert {row.project_name for row in wide.service.usages.of(0, START + DAY)} == {"gone"}
    wide.service.usages.forget()
    assert len(wide.store.load().of(Usage)) == 1
    wide.run(801 * DAY)
    wide.service.usages.forget()
    wide.run()
    assert wide.store.load().of(Usage) == ()


def test_how_busy_the_gpus_were(wide):
    job = submit(wide, "job", 2)
    wide.run(HOUR)
    (attempt,) = wide.store.attempts(job)
    first, second = attempt.placement.uuids
    wide.service.usages.sample({first: 50, "another": 100}, 60_000)
    wide.run()
    (row,) = [it for it in wide.service.usages.of(0, START + DAY) if it.user == "bob"]
    assert (row.measured, row.busy) == (60_000 * 1000, 30_000 * 1000)
    wide.service.usages.sample({first: 100, second: 100}, 10 * HOUR)
    wide.run()
    (row,) = [it for it in wide.service.usages.of(0, START + DAY) if it.user == "bob"]
    assert row.busy <= row.measured <= row.held + 2 * 60_000 * 1000, "no more than it has held"


def test_the_board_of_limits_says_what_each_has(wide):
    limit(wide, running=2000, waiting=9, gpu_ms=10 * GPU_HOUR)
    job = submit(wide, "job", 2)
    submit(wide, "waits")
    wide.run(HOUR)
    (row,) = wide.service.usages.standings("eve")
    assert (row.running, row.waiting) == (2000, 1)
    assert abs(row.gpu_ms - 2 * GPU_HOUR) < GPU_HOUR // 100
    assert row.limit == replace(row.limit, subject="bob", running=2000)
    wide.service.update_project("default", QueueChange(name="renamed"), "me")
    assert wide.phase(job) == "Running"


def test_a_live_resize_counts_what_was_held_before_and_after_it(stage):
    wide = stage.submit("wide", elastic=True, live_resize=True)
    stage.run(HOUR)
    stage.submit("other")
    stage.run(HOUR)
    stage.reopen()
    stage.run(HOUR)
    (attempt,) = stage.service.attempts(wide)
    assert attempt.resized is not None and stage.view(wide).gpu == 1000
    rows = [row for row in stage.service.usages.of(START - DAY, START + DAY) if row.project_name == "default"]
    both = sum(row.held for row in rows)
    others = sum(row.held(stage.timeline.now()) for view in stage.loop.board.workloads.values()
                 for row in stage.service.attempts(view.workload.id))  # fmt: skip
    assert both == others > 4 * 1000 * HOUR
