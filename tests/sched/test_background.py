"""Background work: runs on idle GPUs, counts against no quota, is evicted first."""

import pytest

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world


def test_it_runs_on_idle_gpus_without_a_quota():
    t = settled("n1:2", "a=0:w=0 b=2", "f1 a g1 bg", "f2 a g1 bg", "f3 a g1 bg")
    assert t.running() == {"f1": 1, "f2": 1}
    reason = t.verdict("f3").reason
    assert (reason.code, dict(reason.numbers)["idle_all"]) == ("nothing-idle", 0)
    assert reason.text(0) == (
        "Background jobs run only on idle GPUs: this one needs 1 GPU; 0 GPUs are idle, at most 0 on one node."
    )


@pytest.mark.parametrize("winner", ["b1 b g1", "b1 b g1 p1", "a1 a g1 p1", "b1 b g1 np", "b1 b g1 x1-2"])
def test_it_goes_for_whoever_asks(winner):
    t = settled("n1:1", "a=1 b=1", "f1 a g1 bg p150", winner)
    assert t.running() == {winner.split()[0]: 1}
    gone = t.decisions("f1", "evict")
    assert [decision.action for decision in gone] in ([], ["shrink"])
    t = settled("n1:1", "a=1 b=1", "f1 a g1 bg p150 @n1", winner)
    assert t.running() == {winner.split()[0]: 1}
    (gone,) = t.decisions("f1", "evict")
    assert gone.action == "shrink" and gone.reason.code == "gave-way"
    assert gone.reason.text(0).endswith("background jobs give way to every other job.")


def test_no_more_of_it_goes_than_has_to():
    t = settled("n1:4", "a=4 b=4", *(f"f{i} a g1 bg @n1" for i in range(3)), "b1 b g2")
    assert t.running() == {"f0": 1, "f1": 1, "b1": 2}, "the youngest goes"


def test_it_goes_before_anything_else_is_lost():
    """Before bonus, before work over quota, before a move."""
    t = settled("n1:2", "a=0 b=2", "a1 a g1 @n1", "f1 a g1 bg @n1", "b1 b g1")
    assert t.running() == {"a1": 1, "b1": 1}
    t = settled("n1:3", "a=0 b=2", "e1 a g1 elastic @n1*2", "f1 a g1 bg @n1", "b1 b g1")
    assert t.running() == {"e1": 2, "b1": 1}
    t = settled("n1:2 n2:2", "a=2 b=2", "a1 a g1 @n1", "f1 a g1 bg @n1", "a2 a g1 @n2", "b1 b g2")
    assert t.running() == {"a1": 1, "a2": 1, "b1": 2} or not t.decisions("", "move")


def test_it_goes_together_with_a_move():
    """n1 has a job and a hole, n2 a job and background work: an eviction and a move free two GPUs."""
    t = settled("n1:2 n2:2", "a=4", "a1 a g1 @n1", "f1 a g1 bg @n2", "a2 a g1 @n2", "b1 a g2")
    assert t.running() == {"a1": 1, "a2": 1, "b1": 2}


def test_planning_does_not_see_it():
    """It lowers no fair share, and its project is served as if it did not run."""
    t = settled("n1:4", "a=0 b=0", "f1 a g2 bg @n1", *(f"a{i} a g1" for i in range(3)),
                *(f"b{i} b g1" for i in range(3)))  # fmt: skip
    assert t.split() == {"a": 2, "b": 2} and "f1" not in t.running()


def test_a_gang_of_it_runs_whole_or_not_at_all():
    t = settled("n1:2", "a=2 b=2", "f1 a g1 x2 bg")
    assert t.running() == {"f1": 2}
    t.submit("b1 b g1")
    t.settle()
    assert t.running() == {"b1": 1}
    t.finish("b1")
    t.settle()
    assert t.running() == {"f1": 2}


def test_it_shrinks_before_it_goes():
    t = settled("n1:4", "a=2 b=4", "f1 a g1 x1-4 bg")
    assert t.running() == {"f1": 4}
    t.submit("b1 b g2")
    t.settle()
    assert t.running() == {"f1": 2, "b1": 2}


def test_of_two_pools_it_takes_one_where_something_is_idle():
    t = settled("n1:1 n2:1:pool=fast", "a=1+fast=1", "a1 a g1 pool=default", "f1 a g1 bg", pools="fast")
    assert t.running() == {"a1": 1, "f1": 1}


def test_the_youngest_first_is_no_reason_to_spare_it():
    scene = world("n1:2", "a=0 b=2", "f1 a g1 bg @n1", "a1 a g1 @n1", "b1 b g1")
    t = Ticker(scene, settings=Settings(victims="youngest"))
    t.settle()
    assert t.running() == {"a1": 1, "b1": 1}


def test_its_budget_of_disruptions_does_not_count():
    scene = world("n1:1", "a=1 b=1", "f1 a g1 bg @n1", "b1 b g1")
    t = Ticker(scene, settings=Settings(churn_budget=0))
    t.settle()
    assert t.running() == {"b1": 1}
