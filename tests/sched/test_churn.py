"""Churn budget: others may disturb a project's work at most this many times in an hour."""

import pytest

from pliant.model.ledger import Disruptions
from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker
from tests.sched.worlds import NOW, world

HOUR = 3_600_000


def budgeted(budget, nodes, projects, *jobs, past=None):
    scene = world(nodes, projects, *jobs)
    for project, times in (past or {}).items():
        scene.put(Disruptions(project, tuple(NOW - minutes * 60_000 for minutes in times)))
    t = Ticker(scene, settings=Settings(churn_budget=budget))
    t.settle()
    return t


def waits(t, name):
    reason = t.verdict(name).reason
    assert reason.code == "churn-budget", reason
    return reason


TWO = ("n1:1 n2:1", "a=0 b=2", "x a g1 @n1", "y a g1 @n2", "v b g1", "w b g1")


@pytest.mark.parametrize(("budget", "running"), [(-1, "vw"), (2, "vw"), (1, "vx"), (0, "xy")])
def test_so_many_are_taken_and_no_more(budget, running):
    t = budgeted(budget, *TWO)
    assert set(t.running()) == set(running)
    assert sum(len(row.times) for row in t.scene.disruptions.values()) == max(0, budget)


def test_all_that_one_cycle_takes_counts():
    victims, others = [f"x{i} a g1 @n1" for i in range(4)], [f"w{i} b g1" for i in range(4)]
    t = budgeted(2, "n1:4", "a=0 b=4", *victims, *others)
    assert sorted(t.running()) == ["w0", "w1", "x0", "x1"]


def test_why_and_when():
    t = budgeted(1, *TWO)
    begun = t.scene.disruptions["a"].times[0]
    reason = waits(t, "w")
    assert (reason.asked, reason.project.id, reason.budget) == (1000, "a", 1)
    assert reason.until == t.plans[-1].wake == begun + HOUR
    t.settle(wait=HOUR - 2_000)
    assert set(t.running()) == {"v", "x"}
    t.settle(wait=4_000)
    assert set(t.running()) == {"v", "w"}


def test_what_was_longer_ago_does_not_count():
    t = budgeted(1, *TWO, past={"a": (61,)})
    assert set(t.running()) == {"v", "x"}
    t = budgeted(1, *TWO, past={"a": (60,)})  # exactly an hour ago no longer counts
    assert set(t.running()) == {"v", "x"}
    t = budgeted(1, *TWO, past={"a": (59,)})
    assert set(t.running()) == {"x", "y"}
    assert waits(t, "v").until == NOW + 60_000


KINDS = [
    # what would disturb, nodes, projects, jobs, the one that waits
    ("reclaim", "n1:1", "a=0 b=1", ["x a g1 @n1", "w b g1"]),
    ("preempt", "n1:1", "a=1", ["x a g1 @n1", "w a g1 p90"]),
    ("consolidate", "n1:2 n2:2", "a=4", ["x a g1 @n1", "y a g1 np @n2", "w a g2"]),
    ("a wanted portion", "n1:2", "a=0 b=1", ["x a g1 x1-2 @n1,n1", "w b g1"]),
]


@pytest.mark.parametrize(("kind", "nodes", "projects", "jobs"), KINDS)
def test_what_counts(kind, nodes, projects, jobs):
    t = budgeted(0, nodes, projects, *jobs)
    assert waits(t, "w").project.id == "a"
    assert "w" in budgeted(1, nodes, projects, *jobs).running()


def test_bonus_that_is_given_back_does_not_count():
    t = budgeted(0, "n1:2", "a=1 b=1", "x a g1 elastic @n1*2", "w b g1")
    assert t.rows() == ["x Running 1 n1", "w Running 1 n1"]
    assert not t.scene.disruptions


def test_who_gives_out_of_another_projects_budget():
    """c is further above its due than a, but its budget is used up: a gives."""
    jobs = ["z c g1 @n2", "x a g1 @n1", "w b g1"]
    assert budgeted(1, "n1:1 n2:1", "a=0 b=1 c=0", *jobs).rows("z") == ["z Pending 0"]
    t = budgeted(1, "n1:1 n2:1", "a=0 b=1 c=0", *jobs, past={"c": (5,)})
    assert t.rows() == ["z Running 1 n2", "x Pending 0", "w Running 1 n1"]


def test_a_gang_takes_of_each_project_what_its_budget_allows():
    jobs = ["x a g1 @n1", "y a g1 @n2", "z c g1 @n3", "q c g1 @n4", "w b g1 x2"]
    t = budgeted(1, "n1:1 n2:1 n3:1 n4:1", "a=0 b=2 c=0", *jobs)
    assert t.running()["w"] == 2
    assert {project: len(row.times) for project, row in t.scene.disruptions.items()} == {"a": 1, "c": 1}


def test_a_gang_that_needs_more_than_is_left_takes_nothing():
    jobs = ["x a g1 @n1", "y a g1 @n2", "w b g1 x2"]
    t = budgeted(1, "n1:1 n2:1", "a=0 b=2", *jobs)
    assert t.rows() == ["x Running 1 n1", "y Running 1 n2", "w Pending 0"]
    assert waits(t, "w").budget == 1
    assert "w" in budgeted(2, "n1:1 n2:1", "a=0 b=2", *jobs).running()


@pytest.mark.parametrize(
    ("projects", "job"), [("d/=2:max=2 d/a=2 d/b=0", "w a g2"), ("b=4:max=2", "w b g2 p90")]
)
@pytest.mark.parametrize(("budget", "running"), [(1, "xy"), (2, "w")])
def test_what_a_limit_of_the_queue_takes_keeps_to_the_budget_too(projects, job, budget, running):
    t = budgeted(budget, "n1:4", projects, "x b g1 @n1", "y b g1 @n1", job)
    assert set(t.running()) == set(running)


def test_of_two_budgets_that_stand_in_the_way_the_one_is_told_that_allows_more_first():
    t = budgeted(
        1, "n1:2", "a=0 c=0 b=2", "x a g1 @n1", "y c g1 @n1", "w b g2", past={"a": (10,), "c": (50,)}
    )
    assert (waits(t, "w").project.id, waits(t, "w").until) == ("c", NOW + 10 * 60_000)


def test_who_has_no_claim_anyway_is_told_that():
    t = budgeted(0, "n1:1", "a=1 b=0", "x a g1 @n1", "w b g1")
    assert t.verdict("w").reason.code == "not-entitled"
    t = budgeted(0, "n1:1", "a=1 b=1", "x a g1 np @n1", "w b g1")
    assert t.verdict("w").reason.code == "overpromised"


def test_the_first_that_no_longer_counts_is_waited_for():
    t = budgeted(2, *TWO, past={"a": (59, 10)})
    assert waits(t, "v").until == NOW + 60_000


def test_what_was_before_counts_with_what_came_later():
    t = budgeted(2, "n1:1 n2:1 n3:1", "a=0 b=3", "x a g1 @n1", "y a g1 @n2", "z a g1 @n3", "v b g1")
    for name in ("w", "u"):
        t.advance(600_000)
        t.submit(f"{name} b g1")
        t.settle()
    assert {"v", "w"} <= set(t.running()) and waits(t, "u").budget == 2


def test_what_only_this_cycle_gave_does_not_count():
    """z is placed and evicted in this cycle, with y, for x; q goes for w. Only y and q count."""
    jobs = ["y a g1 p25 @n2", "q a g1 p25 @n3", "z a g1 x2 p25", "x a g2 p80", "w a g1 p70 type=b"]
    t = budgeted(2, "n1:1 n2:2 n3:1:type=b", "a=9", *jobs)
    assert [d.workload for d in t.plans[0].decisions] == ["y", "x", "q", "w"]
    assert len(t.scene.disruptions["a"].times) == 2


def test_what_this_cycle_gave_is_taken_beside_the_last_of_a_budget():
    t = budgeted(1, "n1:2", "a=9", "y a g1 p25 @n1", "z a g1 p25", "x a g2 p80")
    assert t.running() == {"x": 2}
    assert len(t.scene.disruptions["a"].times) == 1


def test_what_this_cycle_gave_needs_no_budget():
    t = budgeted(0, "n1:3", "a=9", "y a g1 elastic p25 @n1*2", "z a g1 p25", "x a g2 p80")
    assert t.running() == {"y": 1, "x": 2}


def test_bonus_that_goes_with_a_core_does_not_count():
    t = budgeted(1, "n1:3", "a=1 b=2", "x a g1 elastic @n1*2", "y a g1 @n1", "w b g2")
    assert t.rows("x", "w") == ["x Running 1 n1", "w Running 2 n1"]
    assert len(t.scene.disruptions["a"].times) == 1
