"""Dependencies, begin times and arrays: what is held, until when, and what can never begin."""

from dataclasses import replace
from typing import Any

import pytest

from pliant.control.errors import BadRequest, NameTaken, NotFound, Refused
from pliant.control.submit.sequence import DependencyAsk, Start, indexes_of
from pliant.control.submit.submission import Submission
from pliant.control.submit.variables import Variables
from pliant.model.workload import Kind, Launch
from tests.control.stage import START, Stage

HOUR = 3_600_000


def after(*asked: str, one: bool = False) -> Start:
    """Dependencies from texts such as 'afterok:prep'."""
    parts = [text.partition(":") for text in asked]
    return Start(dependencies=tuple(DependencyAsk(name, when) for when, _, name in parts), any_of_them=one)


def why(stage: Stage, job: str) -> str:
    reason = stage.view(job).reason
    return reason.text(stage.timeline.now()) if reason is not None else ""


def submit(stage: Stage, name: str, start: Start, gpus: int = 1) -> str:
    return stage.submit(name, gpus, start=start)


def array(stage: Stage, name: str, text: str, at_once: int = 0, seconds: int = 0, **more: Any) -> list[str]:
    """Ids of the elements, which run for `seconds`; 0: for ever."""
    own = Variables((("PLIANT_VIRTUAL_SECONDS", str(seconds)),) if seconds else ())
    start = Start(indexes=indexes_of(text), at_once=at_once, **more)
    ask = Submission("default", Launch("ubuntu", ("true",)), name=name, start=start, variables=own)
    accepted = stage.service.submit(stage.service.check(ask), "me")
    stage.run()
    rows = {row.name: row.id for row in stage.loop.world.workloads.values()}
    return [rows[element] for element in accepted.elements]


@pytest.fixture
def prep(stage: Stage) -> str:
    return stage.submit("prep", 1, virtual={"seconds": 60})


def phases(stage: Stage, *jobs: str) -> list[str]:
    return [stage.phase(job) for job in jobs]


def test_a_job_starts_after_another_one_succeeded(stage: Stage, prep: str) -> None:
    job = submit(stage, "train", after("afterok:prep"))
    stage.run(1000)
    assert (stage.phase(job), why(stage, job)) == ("Pending", "Waiting for prep to succeed.")
    reason = stage.view(job).reason
    assert reason is not None and reason.code == "dependency"
    assert job not in stage.loop.board.queue, "it has no position"
    stage.service.cancel(prep, "me")
    stage.run()
    assert stage.phase(job) == "Failed"
    found = stage.service.outcome(job)
    assert (found.exit_code, found.message) == (143, "Dependency prep was cancelled.")


def test_a_job_that_stays_pending_waits_for_the_next_job_of_that_name(stage: Stage) -> None:
    """Also if the dependency failed before the submission, and after its deletion."""
    keep = replace(after("afterok:prep"), keep_pending=True)
    prep = stage.submit("prep", 1, virtual={"seconds": 60, "exit": 3}, backoff_limit=0)
    before = submit(stage, "before", keep)
    stage.run(70_000)
    later = submit(stage, "later", keep)
    assert phases(stage, prep, before, later) == ["Failed", "Pending", "Pending"]
    assert why(stage, before) == "Waiting for prep to succeed."
    stage.service.delete(prep, "me")
    stage.run(1000)
    again = stage.submit("prep", 1, virtual={"seconds": 60})
    stage.run(1000)
    assert phases(stage, again, before, later) == ["Running", "Pending", "Pending"]
    stage.run(70_000)
    assert phases(stage, before, later) == ["Running", "Running"]


@pytest.mark.parametrize(
    ("when", "ends", "phase"),
    [
        ("afterok", 0, "Running"),
        ("afterok", 3, "Failed"),
        ("afterany", 0, "Running"),
        ("afterany", 3, "Running"),
        ("afternotok", 0, "Failed"),
        ("afternotok", 3, "Running"),
        ("after", 0, "Running"),
    ],
)
def test_what_each_condition_waits_for(stage: Stage, when: str, ends: int, phase: str) -> None:
    prep = stage.submit("prep", 1, virtual={"seconds": 60, "exit": ends}, backoff_limit=0)
    stage.run(1000)
    job = submit(stage, "train", after(f"{when}:prep"))
    stage.run(1000)
    assert stage.phase(job) == ("Running" if when == "after" else "Pending")
    stage.run(120_000)
    assert stage.phase(prep) == ("Failed" if ends else "Completed")
    assert stage.phase(job) == phase


def test_of_several_all_or_one(stage: Stage, prep: str) -> None:
    stage.submit("other", 1)
    both = submit(stage, "both", after("afterok:prep", "after:other", "afterany:other"))
    one = submit(stage, "one", after("afterok:other", "afterok:prep", one=True), 0)
    stage.run(1000)
    assert why(stage, both) == "Waiting for prep and other to end."
    assert why(stage, one) == "Waiting for other or prep to succeed."
    stage.run(120_000)
    assert phases(stage, both, one) == ["Pending", "Running"]
    assert why(stage, both) == "Waiting for other to end."


def test_of_alternatives_the_last_that_fails_cancels(stage: Stage) -> None:
    first, second = stage.submit("a", 1), stage.submit("b", 1)
    job = submit(stage, "job", after("afterok:a", "afterok:b", one=True))
    stage.service.cancel(first, "me")
    stage.run()
    assert stage.phase(job) == "Pending"
    stage.service.delete(second, "me")
    stage.run()
    assert stage.service.outcome(job).message == "Dependency a was cancelled."


def test_a_chain_ends_with_its_first_link(stage: Stage, prep: str) -> None:
    second = submit(stage, "second", after("afterok:prep"))
    third = submit(stage, "third", after("afterok:second"))
    anyway = submit(stage, "anyway", after("afterany:third"))
    stage.service.delete(prep, "me")
    stage.run(1000)
    assert phases(stage, second, third, anyway) == ["Failed", "Failed", "Running"]
    assert stage.service.outcome(third).message == "Dependency second was cancelled."
    assert stage.service.outcome(second).message == "Dependency prep was deleted."


def test_what_is_held_is_held_over_a_restart(stage: Stage, prep: str) -> None:
    stage.run(1000)
    job = submit(stage, "train", after("afterok:prep"))
    later = submit(stage, "later", Start(begin=START + HOUR), 0)
    stage.reopen()
    assert phases(stage, job, later) == ["Pending", "Pending"]
    stage.run(120_000)
    assert phases(stage, prep, job, later) == ["Completed", "Running", "Pending"]
    stage.run(HOUR)
    assert stage.phase(later) == "Running"


def test_a_dependency_that_was_met_stays_met_when_it_is_deleted(stage: Stage, prep: str) -> None:
    stage.submit("other", 1, virtual={"seconds": 600})
    job = submit(stage, "job", after("afterok:prep", "afterok:other"))
    stage.run(120_000)
    stage.service.delete(prep, "me")
    stage.run(HOUR)
    assert stage.phase(job) == "Running"


def test_a_begin_time(stage: Stage) -> None:
    job = submit(stage, "job", Start(begin=START + HOUR))
    stage.run(1000)
    assert (stage.phase(job), why(stage, job)) == ("Pending", "Waiting for its begin time (59m59s left).")
    stage.run(HOUR - 2000)
    assert stage.phase(job) == "Pending"
    stage.run(1000)
    assert stage.phase(job) == "Running"
    with pytest.raises(BadRequest, match="in the past"):
        submit(stage, "late", Start(begin=START))


def test_a_dependency_comes_before_a_begin_time(stage: Stage, prep: str) -> None:
    start = Start(begin=START + HOUR, dependencies=(DependencyAsk("prep", "afterok"),))
    job = submit(stage, "job", start)
    stage.run(1000)
    assert why(stage, job) == "Waiting for prep to succeed."
    stage.run(120_000)
    assert "begin time" in why(stage, job)
    stage.run(HOUR)
    assert stage.phase(job) == "Running"


def test_no_more_elements_run_than_may(stage: Stage) -> None:
    array(stage, "sweep", "0-7", 3, seconds=60)
    seen = set()
    for _ in range(60):
        stage.run(10_000)
        rows = [row for row in stage.loop.world.workloads.values() if row.element is not None]
        going = [row for row in rows if row.phase.value in ("Running", "Initializing")]
        assert len(going) <= 3
        seen.add(len(going))
    assert [row.phase.value for row in rows] == ["Completed"] * 8
    assert max(seen) == 3
    elements = [row.element for row in rows]
    assert [(it.index, it.count, it.least, it.most) for it in elements if it] == [
        (index, 8, 0, 7) for index in range(8)
    ]


def test_an_element_that_fails_or_is_cancelled_leaves_the_others(stage: Stage) -> None:
    jobs = array(stage, "sweep", "0-3", 2)
    assert phases(stage, *jobs) == ["Running", "Running", "Pending", "Pending"]
    assert why(stage, jobs[3]) == "Waiting for its turn: array sweep runs 2 elements at a time."
    stage.service.cancel(jobs[0], "me")
    stage.run(60_000)
    assert phases(stage, *jobs) == ["Failed", "Running", "Running", "Pending"]
    stage.reopen()
    assert phases(stage, *jobs) == ["Failed", "Running", "Running", "Pending"]


def test_dependencies_of_and_on_arrays(stage: Stage) -> None:
    first = array(stage, "first", "1,3")
    corresponding = array(stage, "second", "1,3", dependencies=(DependencyAsk("first", "aftercorr"),))
    whole = submit(stage, "whole", after("afterany:first"), 0)
    stage.service.cancel(first[0], "me")
    stage.run(1000)
    assert phases(stage, *corresponding, whole) == ["Failed", "Pending", "Pending"]
    stage.service.cancel(first[1], "me")
    stage.run(60_000)
    assert phases(stage, *corresponding, whole) == ["Failed", "Failed", "Running"]
    with pytest.raises(BadRequest, match="no element that corresponds to third-2"):
        array(stage, "third", "2", dependencies=(DependencyAsk("first", "aftercorr"),))


def test_names_and_numbers(stage: Stage, prep: str) -> None:
    number = stage.view(prep).workload.serial
    job = submit(stage, "job", after(f"afterok:{number}"))
    assert stage.view(job).workload.after[0].name == "prep"
    array(stage, "sweep", "0-2")
    for name in ("sweep", "sweep-1"):
        with pytest.raises(NameTaken):
            stage.submit(name)
    stage.submit("other-1")
    with pytest.raises(NameTaken):
        array(stage, "other", "0-2")
    names = [row.name for row in stage.loop.world.workloads.values()]
    assert "other-0" not in names, "all or none"


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("0,6,16-18", (0, 6, 16, 17, 18)),
        ("0-9:4", (0, 4, 8)),
        ("7", (7,)),
        ("2,1", (1, 2)),
    ],
)
def test_indexes(text: str, indexes: tuple[int, ...]) -> None:
    assert indexes_of(text) == indexes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Invalid array"),
        ("a", "Invalid array"),
        ("-1", "Invalid array"),
        ("5-2", "empty range 5-2"),
        ("0-5:0", "empty range"),
        ("0-99999", "too many elements"),
        ("0-499,1000-1999", "too many elements"),
        ("1000000", "too large"),
    ],
)
def test_indexes_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        indexes_of(text)


def test_dependencies_that_cannot_be(stage: Stage) -> None:
    bad = stage.submit("bad", 1, virtual={"exit": 3, "seconds": 1}, backoff_limit=0)
    stage.run(60_000)
    assert stage.phase(bad) == "Failed"
    cases: list[tuple[str, type[Refused], str]] = [
        ("afterok:none", NotFound, "Dependency none does not exist"),
        ("afterok:job", BadRequest, "cannot depend on itself"),
        ("afterok:bad", BadRequest, "Job bad failed, so the dependency afterok:bad can never be met"),
    ]
    for text, kind, said in cases:
        with pytest.raises(kind, match=said):
            submit(stage, "job", after(text))
    assert [row.name for row in stage.loop.world.workloads.values()] == ["bad"]
    submit(stage, "anyway", after("afterany:bad"))
    with pytest.raises(NotFound):  # a cycle would need a job that does not exist yet
        submit(stage, "a", after("afterok:b"))


def test_nothing_is_kept_of_an_array_that_is_refused(stage: Stage) -> None:
    stage.submit("sweep-1")
    with pytest.raises(NameTaken):
        array(stage, "sweep", "0-2", seconds=5)
    assert not stage.machines.sealed


def test_sessions_are_no_arrays(stage: Stage) -> None:
    launch, start = Launch("ubuntu", ("true",)), Start(indexes=(0, 1))
    ask = Submission("default", launch, kind=Kind.WORKSPACE, name="w", start=start)
    with pytest.raises(BadRequest, match="Only trainings"):
        stage.accept(ask)


def test_what_is_held_and_suspended_goes_on_where_it_was(stage: Stage, prep: str) -> None:
    job = submit(stage, "job", after("afterok:prep"))
    stage.service.suspend(job, "me")
    stage.run(120_000)
    stage.service.delete(prep, "me")
    stage.run()
    stage.service.resume(job, "me")
    stage.run(1000)
    assert stage.phase(job) == "Running"


def one_at_a_time(base: str = "night") -> Submission:
    return Submission(
        "default",
        Launch("ubuntu", ("true",)),
        name_base=base,
        name_index=True,
        start=after(f"singleton:{base}"),
    )


def single(stage: Stage, base: str = "night", user: str = "me") -> str:
    accepted = stage.service.submit(stage.service.check(one_at_a_time(base)), user)
    stage.run()
    return accepted.workload.id


def test_a_dry_run_of_the_next_one_says_that_it_would_wait(stage: Stage) -> None:
    single(stage)
    checked = stage.service.check(one_at_a_time())
    mine, yours = (stage.service.rehearse(checked, user) for user in ("me", "you"))
    assert not mine.placements and mine.reason is not None
    assert mine.reason.text(START) == "Waiting for night-0 to end."
    assert yours.placements


def test_one_at_a_time_of_a_submitter_and_prefix(stage: Stage) -> None:
    first, second, third = single(stage), single(stage), single(stage)
    others = [single(stage, user="you"), single(stage, "nightly"), single(stage, "day")]
    assert phases(stage, first, second, third) == ["Running", "Pending", "Pending"]
    assert phases(stage, *others) == ["Running"] * 3
    assert why(stage, third) == "Waiting for night-0 and night-1 to end."
    stage.service.cancel(first, "me")
    stage.run()
    assert phases(stage, second, third) == ["Running", "Pending"], "also after a failure"
    stage.service.cancel(second, "me")
    stage.run()
    assert stage.phase(third) == "Running"
    assert stage.phase(single(stage)) == "Pending"
