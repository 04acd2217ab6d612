"""Semi-preemptible work: its minimum is guaranteed inside the quota, portions above it may be taken."""

import pytest

from tests.sched.ticker import settled


def test_above_its_minimum_it_goes_when_another_team_claims_its_share():
    t = settled("n1:4", "a=2 b=2", "a1 a g1 x2-4 semi")
    assert t.running() == {"a1": 4}, "two in quota, two over it on a free node"
    t.submit("b1 b g1", "b2 b g1")
    t.settle()
    assert t.running() == {"a1": 2, "b1": 1, "b2": 1}
    assert [task.attempt for task in t.scene.tasks_of("a1")] == [1, 1, 1, 1], "the first two never stop"
    assert [bool(task.claims) for task in t.scene.tasks_of("a1")] == [True, True, False, False]
    t.submit("b3 b g1 p90")
    t.settle()
    assert t.running()["a1"] == 2, "the minimum is taken for nobody"


@pytest.mark.parametrize("asks", ["b1 b g1", "b1 b g2", "b1 b g1 x2"])
def test_its_minimum_is_taken_for_nobody(asks):
    """Even if its project is far over its due: the minimum was admitted before the quota was lowered."""
    t = settled("n1:2", "a=2 b=0", "a1 a g1 x2-4 semi")
    t.quota("a=0")
    t.quota("b=2")
    t.submit(asks)
    t.settle()
    assert t.running() == {"a1": 2}


def test_its_minimum_has_to_fit_into_the_quota():
    t = settled("n1:4", "a=1 b=1", "a1 a g1 x2-4 semi")
    assert t.rows("a1") == ["a1 Pending 0"]
    assert t.verdict("a1").reason.code == "non-preemptible-over-quota"
    t.quota("a=2")
    t.settle()
    assert t.running() == {"a1": 4}


def test_only_its_minimum_counts_as_non_preemptible():
    """A second one with a minimum of 2 fits into a quota of 4 though together they hold 6."""
    t = settled("n1:4 n2:2", "a=4", "a1 a g1 x2-4 semi", "a2 a g1 x2-4 semi")
    assert sum(t.running().values()) == 6
    assert t.world.usage("a").non_preemptible.gpu == 4_000
    t.submit("a3 a g1 np p90")
    t.settle()
    assert t.verdict("a3").reason.code == "non-preemptible-over-quota"


def test_a_higher_priority_takes_what_is_above_the_minimum():
    t = settled("n1:4", "a=4", "a1 a g1 x2-4 semi p50")
    t.submit("a2 a g2 p80")
    t.settle()
    assert t.running() == {"a1": 2, "a2": 2}
    t.submit("a3 a g3 p99")
    t.settle()
    assert t.running() == {"a1": 2, "a2": 2}, "three could be had only with a part of the minimum"


def test_one_elastic_task_keeps_a_device():
    t = settled("n1:4", "a=1 b=4", "a1 a g4 elastic semi")
    assert t.running() == {"a1": 4}
    t.submit("b1 b g3", "b2 b g1")
    t.settle()
    assert t.running() == {"a1": 1, "b1": 3}


def test_it_is_not_moved():
    """Its core is not moved, even to join two free GPUs on one node."""
    jobs = ("a1 a g1 semi @n1", "a2 a g1 semi @n2", "b1 b g2")
    assert settled("n1:2 n2:2", "a=2 b=2", *jobs).running() == {"a1": 1, "a2": 1}
    moved = settled("n1:2 n2:2", "a=2 b=2", *(job.replace(" semi", "") for job in jobs))
    assert moved.running() == {"a1": 1, "a2": 1, "b1": 2}


def test_a_task_of_the_core_that_is_done_is_guaranteed_no_longer():
    t = settled("n1:3", "a=2", "a1 a g1 x2-3 semi", "a2 a g1 np")
    assert t.rows("a2") == ["a2 Pending 0"]
    t.succeed("a1")
    t.settle()
    assert t.running() == {"a1": 2, "a2": 1}
    assert t.world.usage("a").non_preemptible.gpu == 2_000
