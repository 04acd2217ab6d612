"""Preemption delay: a workload that has waited for less than its delay takes only bonus."""

import pytest

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, world

TAKING = [
    # what it would do, nodes, projects, the others, the one that waits, rows before and after its delay
    ("reclaim", "n1:1", "a=0 b=1", ["x a g1 @n1"], "w b g1", "x Pending 0", "w Running 1 n1"),
    ("preempt", "n1:1", "a=1", ["x a g1 @n1"], "w a g1 p90", "x Pending 0", "w Running 1 n1"),
    (
        "consolidate", "n1:2 n2:2", "a=4", ["x a g1 @n1", "y a g1 np @n2"], "w a g2", "x Running 1 n2",
        "w Running 2 n1",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("action", "nodes", "projects", "others", "job", "victim", "winner"), TAKING)
def test_it_takes_only_after_its_delay(action, nodes, projects, others, job, victim, winner):
    t = settled(nodes, projects, *others, f"{job} delay=60")
    assert t.show()["w"] == ("Pending", 0, "")
    assert t.verdict("w").reason.code == "preemption-delay"
    assert t.plans[-1].wake == t.verdict("w").reason.until == NOW + 60_000
    t.settle(wait=59_000)
    assert not t.decisions("x")
    t.settle(wait=1_100)
    assert t.rows("x", "w") == [victim, winner]
    assert [decision.action for decision in t.decisions("x")][:1] == [action]


def test_it_counts_from_the_submission():
    t = settled("n1:1", "a=0 b=1", "x a g1 @n1", "w b g1 delay=60 waits=30")
    assert t.plans[-1].wake == NOW + 30_000
    assert settled("n1:1", "a=0 b=1", "x a g1 @n1", "w b g1 delay=60 waits=60").rows("w") == [
        "w Running 1 n1"
    ]


def test_what_is_free_and_what_is_lent_it_has_at_once():
    assert settled("n1:1", "a=1", "w a g1 delay=60").rows() == ["w Running 1 n1"]
    t = settled("n1:2", "a=1 b=1", "e a g1 elastic @n1*2", "w b g1 delay=60")
    assert t.rows() == ["e Running 1 n1", "w Running 1 n1"]


def test_after_an_eviction_it_waits_anew():
    t = Ticker(world("n1:1", "a=0 b=1", "w a g1 delay=60 waits=600 @n1", "x b g1"))
    t.settle()
    assert t.rows() == ["w Pending 0", "x Running 1 n1"]
    t.quota("a=1")
    t.quota("b=0")
    since = t.scene.workloads["w"].phase_since
    plan = t.settle()
    assert t.rows() == ["w Pending 0", "x Running 1 n1"]
    assert plan.wake == since + 60_000 > t.now
    t.settle(wait=61_000)
    assert t.rows() == ["w Running 1 n1", "x Pending 0"]


def test_others_of_its_project_do_not_wait_with_it():
    t = settled("n1:1", "a=0 b=1", "x a g1 @n1", "w b g1 delay=60", "v b g1")
    assert t.rows() == ["x Pending 0", "w Pending 0", "v Running 1 n1"]


def test_who_is_due_nothing_is_told_that():
    t = settled("n1:1", "a=1 b=0", "x a g1 @n1", "w b g1 delay=60")
    assert t.verdict("w").reason.code == "not-entitled"


def test_its_own_delay_and_no_other_counts():
    t = Ticker(world("n1:1", "a=0 b=1", "x a g1 delay=600 @n1", "w b g1"), settings=Settings())
    t.settle()
    assert t.rows() == ["x Pending 0", "w Running 1 n1"]
