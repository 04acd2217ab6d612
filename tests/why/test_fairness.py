"""What each project was due over time and what it got: rates, sums, restarts, the index."""

import pytest

from pliant.control.board.fairness import HOUR, SLOTS, ProjectUse, Sums, jain, rates
from tests.control.stage import Stage


def use(project: str, quota: int, fair: int, allocated: int, requested: int) -> ProjectUse:
    return ProjectUse(project, quota * 1000, fair * 1000, allocated * 1000, requested * 1000)


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        # b borrows what a does not ask for
        ([use("a", 4, 2, 2, 2), use("b", 4, 6, 6, 8)], {"a": (2, 2, 0, 2, 0, 0), "b": (6, 6, 2, 0, 0, 0)}),
        # a asks for its quota, of which b holds two
        ([use("a", 4, 4, 2, 4), use("b", 4, 4, 6, 8)], {"a": (4, 2, 0, 2, 2, 1), "b": (4, 6, 2, 0, 0, 0)}),
        # a project that asks for nothing
        ([use("a", 4, 0, 0, 0)], {"a": (0, 0, 0, 0, 0, 0)}),
        # without a bound on the quota nothing is borrowed or lent
        ([ProjectUse("a", -1, 3000, 3000, 9000)], {"a": (3, 3, 0, 0, 0, 0)}),
    ],
)
def test_rates(uses, expected):
    found = rates(uses)
    for project, (entitled, received, borrowed, lent, late, violated) in expected.items():
        amounts = [part * 1000 for part in (entitled, received, borrowed, lent, late)]
        assert found[project] == Sums(*amounts, violated, 1)


def test_sums_over_time_and_a_restart(tmp_path):
    stage = Stage(tmp_path, "1x4")
    stage.project("a", 2)
    stage.project("b", 2)
    ids = {view.queue.name: key for key, view in stage.loop.board.projects.items()}
    start = stage.timeline.now()
    stage.submit("long", 4, "a")
    stage.run(600_000)
    stage.submit("late", 1, "b")
    stage.run(600_000)
    sums = stage.loop.audit.over(HOUR, stage.timeline.now())
    a, b = sums[ids["a"]], sums[ids["b"]]
    assert stage.timeline.now() - start == 1_200_000
    assert a.received >= 4000 * 600_000
    assert a.borrowed >= 2000 * 600_000 and b.lent >= 2000 * 600_000
    assert b.received >= 1000 * 590_000 and b.violated < 5_000
    before = stage.loop.audit.over(24 * HOUR, stage.timeline.now())
    stage.reopen()
    after = stage.loop.audit.over(24 * HOUR, stage.timeline.now())
    for project, one in before.items():
        assert abs(one.received - after[project].received) <= 4000 * 600_000, "the last minutes at most"
    assert after[ids["a"]].received
    stage.store.close()


def test_old_hours_are_forgotten(tmp_path):
    stage = Stage(tmp_path, "1x1")
    stage.submit("job", 1)
    stage.run(60_000)
    stage.timeline.advance(stage.timeline.now() + (SLOTS + 5) * HOUR)
    stage.submit("other", 1)
    assert len(stage.loop.audit.hours) <= SLOTS + 1
    stage.store.close()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [([(1, 1), (2, 2)], 1000), ([(4, 4), (4, 0)], 500), ([(0, 3)], None), ([(2, 0)], 1000), ([(2, 9)], 1000)],
)
def test_jain(pairs, expected):
    assert jain([Sums(entitled=due, received=got) for due, got in pairs]) == expected
