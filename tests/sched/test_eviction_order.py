"""The eviction order: with victims=youngest, after each loss the queues are compared again."""

from dataclasses import replace

import pytest

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker
from tests.sched.worlds import world


def evicted(nodes, projects, *jobs):
    """Names of the workloads that lose something in one cycle."""
    t = Ticker(world(nodes, projects, *jobs), settings=Settings(victims="youngest"))
    t.cycle()
    return {d.workload for d in t.decisions() if d.gpu_after < d.gpu_before}


def singles(project, count):
    return [f"{project}{i} {project} g1 @n1" for i in range(1, count + 1)]


@pytest.mark.parametrize(
    ("projects", "running", "asks", "gone"),
    [
        ("a=1:w=0 b=1:w=0 x=3", {"a": 4, "b": 3}, 1, {"a4"}),
        ("a=1:w=0 b=1:w=0 x=3", {"a": 4, "b": 3}, 2, {"a4", "a3"}),  # a had more
        ("a=1:w=0 b=1:w=0 x=3", {"a": 4, "b": 3}, 3, {"a4", "a3", "b3"}),
        (
            "a=2:w=0 b=1:w=0 x=3",
            {"a": 4, "b": 3},
            2,
            {"b3", "a4"},
        ),  # a would keep 3/2 and b 2/1 of its due; then 3/2 and 1
        ("a=0:w=0 b=1:w=0 x=3", {"a": 1, "b": 5}, 1, {"a1"}),  # a project with no due loses first
        ("a=1:w=0:rank=200 b=1:w=0 x=3", {"a": 5, "b": 2}, 1, {"b2"}),  # the lower rank loses first
    ],
)
def test_the_loss_is_spread(projects, running, asks, gone):
    jobs = [line for project, count in running.items() for line in singles(project, count)]
    nodes = f"n1:{sum(running.values())}"
    assert evicted(nodes, projects, *jobs, f"want x g{asks}") == gone


def test_of_two_alike_the_one_made_later_loses_then_the_later_name():
    jobs = [*singles("a", 2), *singles("b", 2), "want x g1"]
    assert evicted("n1:4", "b=1:w=0 a=1:w=0 x=3", *jobs) == {"a2"}
    made = world("n1:4", "b=1:w=0 a=1:w=0 x=3", *jobs)
    for project in list(made.projects.values()):
        made.put(replace(project, created=0))
    t = Ticker(made, settings=Settings(victims="youngest"))
    t.cycle()
    assert {d.workload for d in t.decisions(verb="evict")} == {"b2"}


def test_surplus_goes_before_cores_and_the_youngest_first():
    jobs = ("a1 a g1 x1-3 @n1,n1,n1", "a2 a g1 @n1", "b1 b g1 x1-2 @n1,n1")
    projects = "a=1:w=0 b=1:w=0 x=3"
    assert evicted("n1:6", projects, *jobs, "want x g2") == {"a1"}
    assert evicted("n1:6", projects, *jobs, "want x g3") == {"a1", "a2"}, (
        "1 : 1 would be left, but a had more"
    )


def test_departments_are_compared_first():
    """y has 3 of 1 and z 2 of 2, so y loses, though z's project b is furthest above its own due."""
    jobs = (*singles("a", 3), *singles("b", 2))
    assert evicted("n1:5", "y/=1 z/=2 w/=2 y/a=1 z/b=0 w/x=2", *jobs, "want x g1") == {"a3"}


@pytest.mark.parametrize(
    ("gpus", "projects", "jobs", "left"),
    [
        # a has 3 of 1 and gives its surplus; its next loss is its core, after which b would have more left
        (
            5,
            "a=1:w=0 b=1:w=0 x=3",
            ["a1 a g1 +s g1 x1-2 @n1,n1,n1", "b1 b g1 x1-2 @n1,n1", "want x g2"],
            {"a1": 2, "b1": 1},
        ),
        # after its loss a would have 2 of 2, b nothing
        (5, "a=2:w=0 b=1:w=0 x=3", ["a1 a g1 x1-3 @n1,n1,n1", "b1 b g2 @n1", "want x g1"], {"a1": 2}),
        # non-preemptible work keeps its surplus: b's next loss is b1's core
        (
            6,
            "a=1:w=0 b=2:w=0 x=3",
            ["a1 a g1 p40 @n1", "a2 a g1 @n1", "b1 b g1 x1-2 @n1,n1", "b2 b g1 x1-2 np @n1,n1", "want x g2"],
            {"b1": 0},
        ),
        # a has 3 of 1 and b 4 of 2: a portion each, the last of its group first
        (
            7,
            "a=1:w=0 b=2:w=0:max=4 x=3",
            ["a1 a g1 x1-3 @n1,n1,n1", "b1 b g1 x1-3 @n1,n1,n1", "b2 b g1 @n1", "want x g2"],
            {"a1": 2, "b1": 2},
        ),
        # y has 4 of 2 and z 4 of 3, so y loses both times, though z's project b has 3 of 1
        (
            8,
            "y/=2:w=0 z/=3:w=0 w/=3:w=0 y/a=1:w=0 y/c=1:w=0 z/b=1:w=0 z/d=2:w=0 w/x=3:w=0",
            [*singles("a", 2), *singles("c", 2), *singles("b", 3), *singles("d", 1), "want x g2"],
            {"a2": 0, "c2": 0},
        ),
    ],
)
def test_what_is_left_after_a_loss_is_compared(gpus, projects, jobs, left):
    """`left`: the workloads that lose something, and the GPUs that each keeps."""
    t = Ticker(world(f"n1:{gpus}", projects, *jobs), settings=Settings(victims="youngest"))
    t.cycle()
    assert {d.workload: d.gpu_after // 1000 for d in t.decisions() if d.gpu_after < d.gpu_before} == left


def test_who_has_no_project_loses_nothing():
    made = world("n1:3", "a=1:w=0 b=1:w=0 x=3", *singles("a", 1), *singles("b", 2), "want x g1")
    del made.projects["a"]
    t = Ticker(made, settings=Settings(victims="youngest"), judged=False)
    t.cycle()
    assert {d.workload for d in t.decisions() if d.gpu_after < d.gpu_before} == {"b2"}
