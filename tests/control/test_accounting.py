"""Past use: the arithmetic as a table, and what a server with running work records."""

from pathlib import Path

import pytest

from pliant.control.state import accounting
from pliant.control.state.accounting import PERIODS, REFRESH, WHOLE, decayed, lengthened, sum_of, total
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.model.ledger import PastUse
from pliant.sched.settings import Settings
from tests.control.stage import Stage

HOUR = 3_600_000
DAY = 24 * HOUR
ALIKE = Settings(past_use_window=DAY, past_use_half_life=0)
HALVED = Settings(past_use_window=7 * DAY, past_use_half_life=DAY)


@pytest.mark.parametrize(
    ("amount", "age", "half_life", "left"),
    [
        (1000, 0, DAY, 1000),
        (1000, DAY, DAY, 500),
        (1000, 3 * DAY, DAY, 125),
        (1000, DAY // 2, DAY, 707),  # 1000 / sqrt(2)
        (1000, 5 * DAY, 0, 1000),
        (10**18, 2 * DAY, DAY, 10**18 // 4),
        (1000, 40 * DAY, DAY, 0),
    ],
)
def test_older_use_counts_less(amount: int, age: int, half_life: int, left: int) -> None:
    assert decayed(amount, age, half_life) == left


def test_use_is_kept_in_parts_of_the_window() -> None:
    periods = lengthened((), 2000, 0, 3 * HOUR, ALIKE)
    assert periods == tuple((at * HOUR, (at + 1) * HOUR, 2000 * HOUR) for at in range(3))
    assert total(periods, 3 * HOUR, ALIKE) == 2000 * 3 * HOUR
    for _ in range(1000):  # many starts and ends within one part make one entry
        at = periods[-1][1]
        periods = lengthened(periods, 1000, at, at + 1000, ALIKE)
    assert len(periods) == 4
    assert total(periods, periods[-1][1], ALIKE) == 2000 * 3 * HOUR + 1000 * 1000 * 1000


def test_use_leaves_the_window_bit_by_bit() -> None:
    periods = lengthened((), 1000, 0, 2 * HOUR, ALIKE)
    assert total(periods, DAY, ALIKE) == 1000 * 2 * HOUR
    assert total(periods, DAY + HOUR // 2, ALIKE) == 1000 * HOUR * 3 // 2
    assert total(periods, DAY + 2 * HOUR, ALIKE) == 0
    assert lengthened(periods, 0, 2 * HOUR, DAY + 2 * HOUR, ALIKE) == ()


def test_a_server_that_was_gone_for_long_counts_no_more_than_the_window() -> None:
    periods = lengthened((), 1000, 0, 100 * DAY, ALIKE)
    assert len(periods) <= PERIODS + 1
    assert total(periods, 100 * DAY, ALIKE) == 1000 * DAY


def test_a_steady_use_comes_to_rate_by_half_life_over_ln_2() -> None:
    row = PastUse("1", "default", 0, 0, 0)
    found = sum_of(row, 1000, 60 * DAY, HALVED)
    steady = 1000 * DAY * 10**9 // 693_147_181  # the whole past, 1/128 of which is before the window
    assert abs(found - steady * 127 // 128) * 1000 < 5 * steady  # within 0.5 %


def used(stage: Stage, name: str) -> tuple[int, int]:
    world = stage.loop.world
    project = next(row.id for row in world.projects.values() if row.name == name)
    rate = world.use(project, "default").claimed.gpu
    past, whole = world.past_uses.get((project, "default")), world.past_uses[WHOLE, "default"]
    now, settings = stage.timeline.now(), stage.loop.state.settings
    return sum_of(past, rate, now, settings), sum_of(whole, 2000, now, settings)


def test_what_projects_used_is_written_down_and_outlives_the_server(stage: Stage) -> None:
    stage.service.tune({"past_use_half_life": 0}, "me")
    stage.project("a", 1)
    stage.project("b", 1)
    began = stage.timeline.now()
    job = stage.submit("job", project="a")
    stage.run(HOUR)
    stage.reopen()
    assert used(stage, "b")[0] == 0
    assert abs(used(stage, "a")[0] - 1000 * HOUR) < 1000 * 1000  # a second of tolerance for its start
    stage.run(HOUR)
    stage.service.delete(job, "me")
    stage.run(HOUR)
    held, had = used(stage, "a")
    assert abs(held - 1000 * 2 * HOUR) < 1000 * 1000
    assert had == 2000 * (stage.timeline.now() - began)


def test_sums_are_refreshed_so_many_in_one_cycle_and_the_rest_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "AT_ONCE", 2)  # a cycle refreshes twice: before its plan and after it
    stage = Stage(tmp_path, "1x5")
    for name in "abcde":
        stage.project(name, 1)
        stage.submit("job", project=name)
    stage.run()
    rows = stage.loop.world.past_uses
    assert len(rows) == 6  # one of each project that holds something, and the pool's own

    def refreshed() -> int:
        stage.loop.cycle()
        return sum(row.at == stage.timeline.now() for row in rows.values())

    stage.timeline.advance(stage.timeline.now() + REFRESH)
    assert [refreshed(), refreshed()] == [4, 6]
    stage.timeline.advance(stage.timeline.now() + REFRESH - 1)
    assert refreshed() == 0


def test_a_project_that_is_gone_leaves_nothing(stage: Stage) -> None:
    stage.project("a", 1)
    job = stage.submit("job", project="a")
    stage.run(1000)
    stage.service.delete(job, "me")
    stage.run(1000)
    assert len(stage.loop.world.past_uses) == 2
    stage.service.delete_project("a", "me")
    stage.run(0)
    assert set(stage.loop.world.past_uses) == {(WHOLE, "default")}
    assert [row.project for row in stage.store.load().of(PastUse)] == [WHOLE]


@pytest.mark.parametrize(("strength", "running"), [(0, {"a": 1, "b": 1}), (1000, {"a": 0, "b": 2})])
def test_what_was_used_decides_who_gets_what_is_idle(
    stage: Stage, strength: int, running: dict[str, int]
) -> None:
    stage.service.tune({"past_use": strength, "past_use_half_life": 0}, "me")
    for name in running:
        stage.project(name, 0)
    stage.service.update_project(
        "default", QueueChange(quotas=(("default", QuotaChange(gpu=0)),)), "me"
    )  # else its derived quota would be both GPUs
    jobs = {name: [] for name in running}
    for index in range(2):
        jobs["a"].append(stage.submit(f"a{index}", project="a"))
    stage.run(HOUR)
    for index in range(2):
        jobs["b"].append(stage.submit(f"b{index}", project="b"))
    stage.run(1000)
    found = {name: sum(stage.phase(job) == "Running" for job in own) for name, own in jobs.items()}
    assert found == running
