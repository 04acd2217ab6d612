"""Where things go: packing and spreading, filters, node pools, cores and memory."""

from dataclasses import replace

import pytest

from pliant.model.machine import NodePool
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world


@pytest.mark.parametrize(
    ("pool", "node"), [("default", "n2"), ("default:spread", "n1")], ids=["pack", "spread"]
)
def test_strategy_of_the_pool(pool, node):
    t = settled("n1:4 n2:4", "a=8", "old a g1 @n2", "new a g1", pools=pool)
    assert t.rows("new") == [f"new Running 1 {node}"]


def test_packing_prefers_the_node_with_least_room():
    t = settled("n1:4 n2:2 n3:3", "a=9", "one a g1", "two a g2", "three a g3")
    assert t.rows() == ["one Running 1 n2", "two Running 2 n3", "three Running 3 n1"]


def test_spreading_evens_out():
    t = settled("n1:2 n2:2 n3:2", "a=6", *(f"j{i} a g1" for i in range(3)), pools="default:spread")
    assert sorted(row.split()[-1] for row in t.rows()) == ["n1", "n2", "n3"]


def test_ties_go_by_name_and_lowest_index():
    t = settled("nb:2 na:2", "a=4", "j a g1")
    assert t.rows() == ["j Running 1 na"]
    assert t.scene.tasks_of("j")[0].claims.uuids == ("na.0",)


def test_node_type():
    t = settled("n1:2:type=a n2:2:type=b n3:2", "a=6", "x a g1 type=b", "y a g1 type=c", "z a g2 type=b")
    assert t.rows() == ["x Running 1 n2", "y Pending 0", "z Pending 0"]


def test_node_types_of_the_project():
    t = settled(
        "n1:1:type=a n2:1:type=b n3:4", "a=6:types=b", "x a g1", "y a g1", "z a g1 type=a", "w a g1 int"
    )
    assert t.rows() == ["x Running 1 n2", "y Pending 0", "z Pending 0", "w Pending 0"]


def test_node_types_are_per_kind():
    scene = world("n1:1:type=a n2:1:type=b", "a=6:types=b", "train a g1", "build a g1 int")
    scene.put(replace(scene.projects["a"], training_node_types=("a",)))
    t = Ticker(scene)
    t.settle()
    assert t.rows() == ["train Running 1 n1", "build Running 1 n2"]


def test_pools_are_tried_in_order():
    nodes = "n1:1 n2:1:pool=fast n3:1:pool=slow"
    t = settled(nodes, "a=6", *(f"j{i} a g1 pool=slow,fast" for i in range(3)), pools="fast slow")
    assert t.rows() == ["j0 Running 1 n3", "j1 Running 1 n2", "j2 Pending 0"]


def test_pools_of_the_project_and_all_pools():
    nodes = "n1:1 n2:1:pool=fast n3:1:pool=slow"
    t = settled(nodes, "a=6:pools=fast b=6", "a1 a g1", "a2 a g1", "b1 b g1", "b2 b g1", pools="fast slow")
    assert t.rows() == ["a1 Running 1 n2", "a2 Pending 0", "b1 Running 1 n1", "b2 Running 1 n3"]


def test_own_pools_win_over_those_of_the_project():
    t = settled("n1:1 n2:1:pool=fast", "a=6:pools=fast", "a1 a g1 pool=default", pools="fast")
    assert t.rows() == ["a1 Running 1 n1"]


def test_a_node_of_two_pools_is_in_the_first_by_name():
    scene = world("n1:1:pool=fast:type=x", "a=1", "in a g1 pool=aged", "out a g1 pool=fast", pools="fast")
    scene.put(NodePool("aged", "aged", "run.ai/type", "x"))
    t = Ticker(scene, judged=False)
    t.settle()
    assert t.rows() == ["in Running 1 n1", "out Pending 0"]


def test_limits_are_per_pool():
    """A workload over the limit in one pool goes to the next."""
    t = settled("n1:2 n2:2:pool=fast", "a=1+fast=1:max=1", "a1 a g1", "a2 a g1", "a3 a g1", pools="fast")
    assert t.rows() == ["a1 Running 1 n1", "a2 Running 1 n2", "a3 Pending 0"]


def test_cores_and_memory_are_filled():
    t = settled("n1:4:cpu=4:ram=8", "a=4", "c1 a g1 c3", "c2 a g1 c2", "c3 a g1 c1 r5", "c4 a g1 r4")
    assert t.rows() == ["c1 Running 1 n1", "c2 Pending 0", "c3 Running 1 n1", "c4 Pending 0"]


def test_jobs_without_gpus():
    t = settled("n1:1 n2:0:cpu=4:ram=8", "a=0", "c1 a c2", "c2 a c3 r4", "c3 a c30")
    assert t.rows() == ["c1 Running 0 n2", "c2 Running 0 n1", "c3 Pending 0"]


def test_jobs_without_gpus_leave_gpu_nodes_alone():
    t = settled("n1:4:cpu=8 n2:0:cpu=8", "a=4", "c a c1")
    assert t.rows() == ["c Running 0 n2"]


def test_cores_are_reclaimed_like_gpus():
    """The GPUs are free; the cores are not."""
    t = settled("n1:2:cpu=4", "a=0:cpu=0 b=1:cpu=4", "a1 a g1 c4 @n1", "b1 b g1 c2")
    assert t.rows() == ["a1 Pending 0", "b1 Running 1 n1"]


@pytest.mark.parametrize("state", ["down", "drain"])
def test_nodes_that_take_nothing_new(state):
    t = settled(f"n1:1:{state} n2:1", "a=2", "x a g1", "y a g1")
    assert t.rows() == ["x Running 1 n2", "y Pending 0"]


def test_a_draining_node_keeps_what_runs():
    t = settled("n1:2", "a=2", "x a g1 elastic @n1")
    t.drain("n1")
    t.submit("y a g1")
    t.settle(wait=60_000)
    assert t.rows()[0].startswith("x Running") and t.rows("y") == ["y Pending 0"]
    assert t.attempts("x") <= 2


def test_a_draining_node_gives_nobody_more():
    t = settled("n1:2:drain", "a=2", "x a g2 elastic @n1*1")
    assert t.rows() == ["x Running 1 n1"]


def test_foreign_gpus_count_as_full():
    t = settled("n1:4:foreign=0,2", "a=4", "x a g1", "y a g2", "z a g1")
    assert t.rows() == ["x Running 1 n1", "y Pending 0", "z Running 1 n1"]
    assert [t.scene.tasks_of(name)[0].claims.uuids for name in "xz"] == [("n1.1",), ("n1.3",)]


def test_free_now_before_free_soon():
    """n1 packs better, but its place is not free yet."""
    t = Ticker(world("n1:1 n2:4", "a=5", "gone a g1 ~n1", "x a g1"), stop=60_000)
    t.cycle()
    assert t.scene.tasks_of("x")[0].claims.node == "n2" and t.attempts("x") == 1


def test_one_task_is_on_one_node():
    assert settled("n1:1 n2:1", "a=2", "x a g2").rows() == ["x Pending 0"]
