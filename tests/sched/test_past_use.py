"""The share over quota depends on past use, and long waits raise priority; both only if set."""

from dataclasses import replace

import pytest

from pliant.model.ledger import PastUse
from pliant.sched.settings import Settings
from pliant.sched.shares.fair_share import ALL, Claimant, divide
from tests.sched.shares import fair_shares
from tests.sched.ticker import Ticker
from tests.sched.worlds import NOW, world

G = 1000


def shares(total, k, *queues):
    """GPUs of each, for (quota, wants, weight, thousandths of past use)."""
    claimants = [
        Claimant(f"q{i}", quota * G, wants * G, weight, created=i, past=past * ALL // 1000)
        for i, (quota, wants, weight, past) in enumerate(queues)
    ]
    given = divide(total * G, claimants, G, k)
    return [given[f"q{i}"] // G for i in range(len(queues))]


SHARES = [
    # GPUs, k in thousandths, (quota, wants, weight, thousandths used), shares
    (8, 0, [(0, 8, 1, 900), (0, 8, 1, 0)], [4, 4]),
    (8, 1000, [(0, 8, 1, 0), (0, 8, 1, 0)], [4, 4]),
    (8, 1000, [(0, 8, 1, 500), (0, 8, 1, 500)], [4, 4]),
    (8, 1000, [(0, 8, 1, 500), (0, 8, 1, 0)], [3, 5]),  # weights 0.5 and 1: 2.67 and 5.33
    (8, 1000, [(0, 8, 1, 1000), (0, 8, 1, 0)], [0, 8]),
    (8, 500, [(0, 8, 1, 1000), (0, 8, 1, 0)], [2, 6]),  # 0.25 and 0.75
    (8, 1000, [(0, 8, 3, 750), (0, 8, 1, 250)], [6, 2]),  # past use in proportion to weight changes nothing
    (8, 1000, [(4, 8, 1, 1000), (0, 8, 1, 0)], [4, 4]),  # quota is not reduced
    (8, 1000, [(0, 8, 1, 1000), (0, 3, 1, 0)], [5, 3]),  # all share what the others leave
    (8, 1000, [(0, 8, 1, 1000), (0, 8, 1, 1000)], [4, 4]),  # if all have used too much, weights alone count
    (9, 1000, [(0, 9, 1, 0), (0, 9, 1, 333), (0, 9, 1, 667)], [6, 3, 0]),  # 2/3, 1/3 and nothing
]


@pytest.mark.parametrize(("total", "k", "queues", "expected"), SHARES)
def test_shares(total, k, queues, expected):
    assert shares(total, k, *queues) == expected


def used(scene, **fractions):
    """Rows of past use: thousandths of the pool by project."""
    for project, share in fractions.items():
        scene.put(PastUse(project, "default", share * 10**9, 1000 * 10**9, 1))
    return scene


def test_it_moves_gpus_between_projects_only_if_it_is_set():
    lines = ["a1 a g1 x0-4", "b1 b g1 x0-4"]
    for past_use, split in ((0, {"a": 2.0, "b": 2.0}), (1000, {"a": 1.0, "b": 3.0})):
        t = Ticker(used(world("n1:4", "a=0 b=0", *lines), a=600, b=0), settings=Settings(past_use=past_use))
        t.settle()
        assert t.split() == split


def test_departments_have_the_past_of_their_projects():
    scene = world("n1:8", "d1/=0 d2/=0 d1/a=0 d1/b=0 d2/c=0", *[f"{p}1 {p} g1 x0-8" for p in "abc"])
    found = fair_shares(used(scene, a=300, b=300).world(), "default", 1000)
    assert (found["d1"], found["d2"]) == (2 * G, 6 * G)  # 1/2 + (1/2 - 0.6), 1/2 + 1/2
    assert found["a"] == found["b"] == G


def test_the_score_stands_in_the_verdict():
    scene = used(world("n1:2", "a=0 b=0", "b1 b g1 @n1", "b2 b g1 @n1", "a1 a g1"), a=900)
    t = Ticker(scene, settings=Settings(past_use=1000))
    t.settle()
    reason = t.verdict("a1").reason
    assert (reason.code, reason.fair_share, reason.past_use) == ("not-entitled", 0, 900)
    assert "90% of the pool" in reason.text(0)


def test_the_same_past_for_all_changes_nothing():
    lines = ["a1 a g1 x0-4", "b1 b g1 x0-4", "c1 c g1 x0-4"]
    plain = Ticker(world("n1:7", "a=1 b=2 c=0", *lines))
    same = Ticker(used(world("n1:7", "a=1 b=2 c=0", *lines), a=0, b=0, c=0), settings=Settings(past_use=1000))
    for t in (plain, same):
        t.settle()
    assert plain.rows() == same.rows()


# ---------------------------------------------------------------- ageing
def aged(settings, *jobs, nodes="n1:1", projects="a=1"):
    t = Ticker(world(nodes, projects, *jobs), settings=settings)
    t.settle()
    return t


HOUR = Settings(ageing=60_000, ageing_max=40)


def test_it_is_off_unless_it_is_set():
    assert aged(Settings(), "old a g1 p50 waits=36000", "new a g1 p60").rows("new") == ["new Running 1 n1"]


AGEING = [
    # the one that waited, the other one, the one that runs
    ("old a g1 p50 waits=599", "new a g1 p60", "new"),  # 9 steps
    ("old a g1 p50 waits=600", "new a g1 p60", "old"),  # 10 steps, and it is older
    ("old a g1 p50 waits=36000", "new a g1 p95", "new"),  # 40 steps at most
    ("old a g1 p90 waits=36000", "new a g1 p99", "old"),  # not above 99 ...
    ("old a g1 p90 waits=36000", "new a g1 np p100", "new"),  # ... so this goes first
    ("old a g1 p100 np waits=36000", "new a g1 np p125", "old"),
]


@pytest.mark.parametrize(("old", "new", "runs"), AGEING)
def test_who_waited_for_long_goes_first(old, new, runs):
    t = aged(HOUR, old, new)
    assert t.rows(runs) == [f"{runs} Running 1 n1"]


def test_who_went_first_by_waiting_is_not_preempted_by_those_it_went_before():
    t = aged(HOUR, "old a g1 p50 waits=1200")
    t.submit("new a g1 p60")
    t.settle(wait=1000)
    assert t.rows() == ["old Running 1 n1", "new Pending 0"]
    reason = t.verdict("new").reason
    assert (reason.code, reason.holder.name, reason.aged) == ("outwaited", "old", 70)
    t.submit("top a g1 p80")
    t.settle()
    assert t.rows("old", "top") == ["old Pending 0", "top Running 1 n1"]


def test_waiting_takes_from_nobody():
    """Of two equal workloads the waiting one never evicts the other, however long it waits."""
    t = aged(HOUR, "x a g1 p50 @n1", "w a g1 p50")
    t.settle(wait=3_600_000)
    assert t.rows() == ["x Running 1 n1", "w Pending 0"]


def test_other_projects_are_not_concerned():
    jobs = ["x a g1 p10 waits=36000", "y b g1 p10"]
    assert aged(HOUR, *jobs, projects="b=1 a=0").rows("y") == ["y Running 1 n1"]


def test_all_stays_counts():
    scene = world("n1:1", "a=1", "old a g1 p50", "new a g1 p60")
    scene.put(replace(scene.workloads["old"], pending_ms=600_000))
    t = Ticker(scene, settings=HOUR)
    t.settle()
    assert t.rows("old") == ["old Running 1 n1"]


def test_what_it_ran_in_between_is_no_wait():
    scene = world("n1:1", "a=1", "old a g1 p50 waits=3600", "new a g1 p60")
    scene.put(replace(scene.workloads["old"], phase_since=NOW - 60_000))
    plan = Ticker(scene, settings=HOUR).cycle()
    assert [start.attempt.workload for start in plan.starts] == ["new"]
