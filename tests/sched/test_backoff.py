"""A workload in back-off blocks no other workload and holds nothing."""

from dataclasses import replace

import pytest

from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, world

FAILING = [
    # nodes, projects, the failing workload (first in every order), the others, which of them run meanwhile
    ("n1:1", "a=1", "f a g1 p90", ["y a g1"], {"y"}),
    ("n1:2", "a=2", "f a g2 p90", ["y a g1", "z a g1"], {"y", "z"}),
    ("n1:1", "a=1", "f a g1 np p100", ["y a g1"], {"y"}),
    ("n1:1", "a=1 b=0", "f a g1", ["y b g1"], {"y"}),
    ("n1:1", "a=0:rank=200 b=0", "f a g1", ["y b g1"], {"y"}),
    ("n1:1", "a=9:max=1", "f a g1 p90", ["y a g1"], {"y"}),
    ("n1:1", "a=1", "f a g0.6 p90", ["y a g0.5", "z a g0.5"], {"y", "z"}),
    ("n1:2", "a=2", "f a g1 x2 within=rack p90", ["y a g2"], {"y"}),
]


@pytest.mark.parametrize(("nodes", "projects", "job", "others", "running"), FAILING)
def test_it_blocks_nobody_and_holds_nothing(nodes, projects, job, others, running):
    nodes = nodes + ":zone=z:rack=r"
    t = settled(nodes, projects, job)
    for index, task in enumerate(t.scene.tasks_of("f")):
        assert task.claims is not None
        t.fail("f", index)
    t.submit(*others)
    t.settle()
    assert all(task.claims is None and task.carries is None for task in t.scene.tasks_of("f"))
    assert set(t.running()) == running
    assert t.verdict("f").reason.code == "back-off"
    assert t.plans[-1].wake == max(task.retry_at for task in t.scene.tasks_of("f"))


def test_pauses_double_and_end():
    t = settled("n1:1", "a=1", "f a g1")
    pauses = []
    for _ in range(7):
        t.fail("f")
        pauses.append(t.scene.tasks_of("f")[0].retry_at - t.now)
        t.settle(wait=pauses[-1])
        assert "f" in t.running()
    assert pauses == [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]


def test_what_it_asks_for_is_nobodys_loss_meanwhile():
    """Two idle GPUs and three projects of equal weight: while b pauses, a and c are due one each."""
    t = settled("n1:2", "b=0 c=0 a=0", "f b g1", "c1 c g1", "c2 c g1")
    t.fail("f")
    t.submit("a1 a g1")
    t.settle()
    assert t.split() == {"b": 0, "c": 1, "a": 1}
    t.settle(wait=20_000)
    assert t.split() == {"b": 1, "c": 1, "a": 0}


def paused(*jobs, task):
    """Two nodes, and a task that is in back-off for a minute."""
    scene = world("n1:2 n2:1", "a=9", *jobs)
    scene.put(replace(scene.tasks[task], retry_at=NOW + 60_000))
    return Ticker(scene)


def test_the_next_of_equal_tasks_goes_before_the_one_that_pauses():
    t = paused("j a g1 x1-3 @n1", "x a g1 np @n2", task=("j", "main-1"))
    t.settle()
    assert t.rows("j") == ["j Running 2 n1"] and t.scene.tasks["j", "main-1"].claims is None


def test_who_pauses_is_not_hastened():
    """It could start on n2 at once if it were not in back-off."""
    t = paused("v a g2 ~n1", "j a g1 >n1.0", task=("j", "main-0"))
    t.cycle()
    assert t.scene.tasks["j", "main-0"].claims.node == "n1"
