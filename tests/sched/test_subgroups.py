"""Trees of sub-groups: the core, the portions above it, and what is taken."""

from dataclasses import replace

import pytest

from pliant.model.workload import Kind, Launch, Request, SubGroup, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.world import subgroups
from tests.sched.stage import Stage


def tasks(name, parent="", least=1, wanted=None, devices=1):
    wanted = wanted or least
    return TaskGroup(name, Request(devices, cpu=100), least, wanted, wanted, parent=parent)


def submit(stage, name, groups, subs=(), least=None, project="a", priority=50):
    stage.serial += 1
    stage.world.put(
        Workload(
            name, name, project, Kind.DISTRIBUTED, Launch("image"), tuple(groups), priority,
            serial=stage.serial, subgroups=tuple(subs), min_groups=least,
        )
    )  # fmt: skip
    for group in groups:
        for index in range(group.max):
            stage.world.put(Task(name, f"{group.name}-{index}", group.name, index))
    stage.run()


def running(stage, name):
    """Tasks that run, by group."""
    found = {}
    for task in stage.world.tasks_of(name):
        if task.phase is TaskPhase.RUNNING:
            found[task.group] = found.get(task.group, 0) + 1
    return found


REPLICAS = [tasks("e1", "r1"), tasks("d1", "r1"), tasks("e2", "r2"), tasks("d2", "r2")]
PAIRS = [SubGroup("r1"), SubGroup("r2")]


@pytest.mark.parametrize(
    ("gpus", "least", "runs"),
    [
        (1, 1, {}),
        (2, 1, {"e1": 1, "d1": 1}),
        (3, 1, {"e1": 1, "d1": 1}),  # half a replica is of no use
        (4, 1, {"e1": 1, "d1": 1, "e2": 1, "d2": 1}),
        (2, None, {}),  # both replicas are core
        (4, None, {"e1": 1, "d1": 1, "e2": 1, "d2": 1}),
        (4, 9, {"e1": 1, "d1": 1, "e2": 1, "d2": 1}),  # more than there are: all
    ],
)
def test_whole_sub_groups_are_placed(gpus, least, runs):
    stage = Stage([gpus], {"a": 4})
    submit(stage, "job", REPLICAS, PAIRS, least)
    assert running(stage, "job") == runs


def test_a_sub_group_may_do_with_some_of_its_children():
    groups = [tasks("x", "any"), tasks("y", "any"), tasks("z")]
    stage = Stage([2], {"a": 4})
    submit(stage, "job", groups, [SubGroup("any", min=1)])
    assert running(stage, "job") == {"x": 1, "z": 1}


def test_what_is_served_worst_gets_the_next_portion():
    stage = Stage([6], {"a": 6})
    submit(stage, "job", [tasks("big", least=2, wanted=4), tasks("small", least=1, wanted=3)])
    assert running(stage, "job") == {"big": 4, "small": 2}  # 2+1, then one each in turn


@pytest.mark.parametrize("nodes", [[6], [3, 3], [2, 2, 2]])
def test_sub_groups_beyond_the_core_are_taken_as_a_whole_the_last_first(nodes):
    stage = Stage(nodes, {"a": 2, "b": 3})
    third = [tasks("e3", "r3"), tasks("d3", "r3")]
    submit(stage, "job", [*REPLICAS, *third], [*PAIRS, SubGroup("r3")], 1)
    stage.submit("other", "b", 1)
    assert running(stage, "job") == {"e1": 1, "d1": 1, "e2": 1, "d2": 1}
    stage.submit("more", "b", 2)
    assert running(stage, "job") == {"e1": 1, "d1": 1}
    assert stage.gpus() == {"job": 2, "other": 1, "more": 2}


def test_the_core_is_taken_as_a_whole():
    stage = Stage([4], {"a": 0, "b": 3})
    submit(stage, "job", REPLICAS, PAIRS, None)
    stage.submit("other", "b", 1)
    assert running(stage, "job") == {}


def test_the_core_counts_the_fewest_tasks():
    job = Workload(
        "j", "j", "a", Kind.DISTRIBUTED, Launch(""),
        (tasks("a1", "a", 3), tasks("b1", "b", 2), tasks("c", least=1)),
        subgroups=(SubGroup("a"), SubGroup("b")), min_groups=2,
    )  # fmt: skip
    assert subgroups.core_size(job) == 3
    assert subgroups.core_met(job, {"b1": 2, "c": 1})
    assert not subgroups.core_met(job, {"b1": 1, "c": 1})


def test_sub_groups_that_contradict_themselves_count_as_at_the_top():
    subs = (SubGroup("a", "b"), SubGroup("b", "a"), SubGroup("c", "nowhere"), SubGroup("d", "d"))
    job = Workload(
        "j", "j", "a", Kind.DISTRIBUTED, Launch(""),
        (tasks("t", "a"), tasks("u", "b"), tasks("v", "nowhere")), subgroups=subs,
    )  # fmt: skip
    root = subgroups.tree(job)
    assert sorted(group.name for group in subgroups.groups_of(root)) == ["t", "u", "v"]
    assert subgroups.core_size(replace(job, min_groups=0)) == 0
