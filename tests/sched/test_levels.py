"""Departments and projects: quota, limit, weight and rank on each level; GPUs, cores and memory together."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.sched.shares import fair_shares
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world

EIGHT = [f"{project}{i} {project} g1" for project in "abc" for i in range(8)]

SHARES = [
    # queues, GPUs that each may have of 8, all of which want 8
    ("d1/=4 d2/=4 d1/a=4 d1/b=0 d2/c=4", {"d1": 4, "d2": 4, "a": 4, "b": 0, "c": 4}),
    ("d1/=0:w=3 d2/=0:w=1 d1/a=0:w=1 d1/b=0:w=2 d2/c=0", {"d1": 6, "d2": 2, "a": 2, "b": 4, "c": 2}),
    ("d1/=0 d2/=0:rank=200 d1/a=0 d1/b=0 d2/c=0", {"d1": 0, "d2": 8, "a": 0, "b": 0, "c": 8}),
    ("d1/=0:w=1 d2/=0:w=1 d1/a=0 d1/b=0:rank=200 d2/c=0", {"d1": 4, "d2": 4, "a": 0, "b": 4, "c": 4}),
    ("d1/=0:max=2 d2/=0 d1/a=0 d1/b=0 d2/c=0", {"d1": 2, "d2": 6, "a": 1, "b": 1, "c": 6}),
    ("d1/=6 d2/=2 d1/a=1:max=2 d1/b=1 d2/c=0", {"d1": 6, "d2": 2, "a": 2, "b": 4, "c": 2}),
    ("d1/=6 d2/=0:w=1 d1/a=1:max=2 d1/b=1:max=2 d2/c=0", {"d1": 4, "d2": 4, "a": 2, "b": 2, "c": 4}),
]


@pytest.mark.parametrize(("queues", "shares"), SHARES)
def test_shares_on_both_levels(queues, shares):
    found = fair_shares(world("n1:8", queues, *EIGHT).world(), "default")
    assert {name: gpus // 1000 for name, gpus in found.items()} == shares


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_rank_and_weight_count_however_deep_the_tree_is(depth):
    """The same two projects under a chain of departments."""
    chain = [f"d{i}" for i in range(depth)]
    scene = world("n1:8", f"{' '.join(f'{name}/=0' for name in chain)} d0/a=0:w=3 d0/b=0:w=1", *EIGHT[:16])
    for child, parent in pairwise(chain):
        scene.put(replace(scene.departments[child], parent=parent))
    found = fair_shares(scene.world(), "default")
    assert (found["a"], found["b"]) == (6000, 2000)
    assert all(found[name] == 8000 for name in chain)


TOGETHER = [
    # project a, jobs (n1 has 4 GPUs, 64 cores, 256 GiB), who runs
    ("a=4:cpumax=8", ["x a g1 c6", "y a g1 c6", "z a g1 c2"], {"x", "z"}),
    ("a=4:rammax=8", ["x a g1 r6", "y a g1 r6", "z a g1 r2"], {"x", "z"}),
    (
        "a=1:max=1",
        ["x a g1 c1", "y a g1 c1", "z a c1"],
        {"x", "z"},
    ),  # a GPU limit does not concern work without GPUs
    ("a=4:cpu=4", ["x a g1 c3 np", "y a g1 c3 np", "z a g1 c1 np"], {"x", "z"}),
    ("a=4:ram=4", ["x a g1 r3 np", "y a g1 r3 np", "z a g1 r1 np"], {"x", "z"}),
    ("d/=4:cpumax=4 d/a=4", ["x a g1 c3", "y a g1 c3"], {"x"}),
]


@pytest.mark.parametrize(("projects", "jobs", "running"), TOGETHER)
def test_gpus_cores_and_memory_are_accounted_together(projects, jobs, running):
    assert set(settled("n1:4", projects, *jobs).running()) == running


def test_cores_are_taken_back_like_gpus():
    scene = world("n1:0:cpu=4", "a=0:cpu=0 b=0:cpu=4", "x a c4 @n1", "j b c2")
    t = Ticker(scene, judged=False)  # the referee counts GPUs
    t.settle()
    assert t.rows() == ["x Pending 0", "j Running 0 n1"]
    (decision,) = t.decisions("x")
    told = dict(decision.reason.numbers)
    assert (told["beneficiary"], told["rule"], told["resource"]) == ("j", "quota", "cpu")
    assert (told["project"], told["allocated"], told["due"]) == ("b", 0, 4000)
    assert (told["from_project"], told["from_allocated"], told["from_due"]) == ("a", 4000, 0)


def test_a_quota_without_bound_is_not_told_as_a_number():
    t = settled("n1:1", "a=0 b=inf", "x a g1 @n1", "j b g1")
    (decision,) = t.decisions("x")
    assert dict(decision.reason.numbers)["due"] == -1


PRIORITIES = [
    # two jobs of one project on one GPU, the first runs; who runs in the end
    ("x a g1 p50 @n1", "j a g1 p60", "j"),
    ("x a g1 p50 @n1", "j a g1 p50", "x"),
    ("x a g1 np p50 @n1", "j a g1 p125", "x"),  # not preemptible, whatever its priority
    ("x a g1 p125 @n1", "j a g1 np p130", "j"),  # preemptible, though 125
    ("x a g1 p125 @n1", "j a g1 np p100", "x"),  # not preemptible, but lower
    ("x a g1 p50 @n1", "j a g1 np p20", "x"),
]


@pytest.mark.parametrize(("first", "second", "winner"), PRIORITIES)
def test_priority_and_preemptibility_are_two_things(first, second, winner):
    t = Ticker(world("n1:1", "a=1", first, second))
    t.settle()
    assert set(t.running()) == {winner}
