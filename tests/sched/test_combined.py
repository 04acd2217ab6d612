"""Taking and moving together: work in the way that may only be moved, and nodes that do not answer."""

from dataclasses import replace

import pytest

from tests.sched.ticker import settled


@pytest.mark.parametrize(
    ("elastic", "action", "told"),
    [
        ("e a g2 elastic @n1*2", "reclaim", ("reclaimed", 1000)),
        ("e a g1 elastic @n1*2", "consolidate", ("moved", 1000)),
    ],
    ids=["reclaim and move", "shrink and move"],
)
def test_what_may_not_be_taken_is_moved(elastic, action, told):
    """a may keep two of three; its core is where g2 has to go."""
    t = settled("n1:2 n2:2", "a=2 b=2", elastic, "g a g1 np @n2", "g2 b g2 np")
    assert t.rows() == ["e Running 1 n2", "g Running 1 n2", "g2 Running 2 n1"]
    (move,) = t.decisions("e", "move")
    assert (move.action, move.gpu_before, move.gpu_after) == (action, 2000, 1000)
    assert (move.reason.code, move.reason.gpus) == told


def test_nothing_is_moved_where_taking_alone_helps():
    t = settled("n1:2 n2:2", "a=1 b=2", "a1 a g2 @n1", "a2 a g1 np @n2", "g2 b g2")
    assert t.rows() == ["a1 Pending 0", "a2 Running 1 n2", "g2 Running 2 n1"]


def test_a_node_that_does_not_answer_for_a_moment_keeps_what_runs():
    t = settled("n1:1 n2:1", "a=2", "j a g1 @n1", "k a g1 @n2")
    t.change(replace(t.scene.nodes["n1"], ready=False))
    t.submit("late a g1")
    t.settle(wait=60_000)
    assert t.rows("j", "late") == ["j Running 1 n1", "late Pending 0"] and t.attempts("j") == 1
    t.finish("k")
    t.settle()
    assert t.rows("j", "late") == ["j Running 1 n1", "late Running 1 n2"]


def test_a_node_that_does_not_answer_takes_nothing_new():
    t = settled("n1:2:down n2:1", "a=3", "j a g1 elastic @n1", "k a g1 >n1", "later a g2")
    assert t.rows() == ["j Running 1 n1", "k Running 1 n2", "later Pending 0"]
