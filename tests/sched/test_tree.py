"""Departments inside departments: quota, limits and reclaim on every level of the queue tree."""

from dataclasses import replace
from itertools import permutations

import pytest

from pliant.model.quantity import Resources
from pliant.model.tenancy import with_quota
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from pliant.sched.world.faults import faults
from pliant.sched.world.state import World
from tests.sched.shares import fair_shares
from tests.sched.worlds import NOW, Scene, world


def nested(scene: Scene, **parents: str) -> Scene:
    for name, parent in parents.items():
        scene.put(replace(scene.departments[name], parent=parent))
    return scene


def placed(scene: Scene) -> set[str]:
    return {start.attempt.workload for start in decide(scene.world(), NOW, Settings()).starts}


def test_a_limit_far_up_the_tree_holds():
    scene = nested(
        world("n1:4", "org/=4:max=2 unit/=4 unit/a=4", "j1 a g1", "j2 a g1", "j3 a g1"), unit="org"
    )
    assert placed(scene) == {"j1", "j2"}
    built = scene.world()
    assert built.path("a") == ("a", "department/unit", "department/org")


def test_non_preemptible_work_stays_inside_quota_on_every_level():
    scene = nested(world("n1:4", "org/=1 unit/=4 unit/a=4", "j1 a g1 np", "j2 a g1 np"), unit="org")
    assert placed(scene) == {"j1"}


def test_shares_are_divided_level_by_level():
    """org has 6 of 8, its unit 2 and its project b 4; c has 2 beside it."""
    jobs = [f"{project}{i} {project} g1" for project in "abc" for i in range(8)]
    scene = nested(world("n1:8", "org/=6 unit/=2 unit/a=2 org/b=4 top/=2 top/c=2", *jobs), unit="org")
    shares = fair_shares(scene.world(), "default")
    assert shares == {"org": 6000, "unit": 2000, "a": 2000, "b": 4000, "top": 2000, "c": 2000}


def test_reclaim_compares_the_first_level_that_differs():
    """a may take from b, a sibling of a's unit, since b exceeds its quota on that level."""
    jobs = ["b1 b g1 @n1", "b2 b g1 @n1", "b3 b g1 @n1", "a1 a g1"]
    scene = nested(world("n1:3", "org/=3 unit/=1 unit/a=1 org/b=2", *jobs), unit="org")
    plan = decide(scene.world(), NOW, Settings())
    assert [stop.attempt.workload for stop in plan.stops] == ["b3"]


def test_sums_are_the_same_in_whatever_order_rows_come():
    scene = nested(world("n1:4", "org/=4 unit/=4 unit/a=4 org/b=2", "j1 a g1 @n1", "j2 b g1 @n1"), unit="org")
    queues = [*scene.departments.values(), *scene.projects.values()]
    others = [row for row in scene.rows() if row not in queues]
    expected = scene.world().snapshot()
    for order in permutations(queues):
        built = World()
        for row in (*others, *order):
            built.put(row)
        built.check()
        assert built.snapshot() == expected
    assert scene.world().use("department/org", "default").claimed.gpu == 2000


def test_a_department_that_moves_takes_its_sums_along():
    scene = nested(world("n1:4", "org/=4 other/=4 unit/=4 unit/a=4", "j1 a g2 @n1"), unit="org")
    built = scene.world()
    built.put(replace(scene.departments["unit"], parent="other"))
    built.check()
    assert built.use("department/org", "default").claimed == Resources()
    assert built.use("department/other", "default").claimed.gpu == 2000
    built.drop(scene.departments["other"])
    built.check()
    assert built.path("a") == ("a", "department/unit")


@pytest.mark.parametrize("parents", [{"one": "two", "two": "one"}, {"one": "one"}])
def test_departments_above_themselves_are_reported_and_count_as_at_the_top(parents):
    scene = nested(world("n1:2", "one/=2 two/=2 one/a=2 two/b=2", "j1 a g1", "j2 b g1"), **parents)
    built = scene.world()
    assert "department one is above itself; it counts as one at the top" in list(faults(built))
    assert placed(scene) == {"j1", "j2"}
    built.check()


def minimum(scene: Scene, name: str, **runtimes: int) -> Scene:
    """Set minimum run times of one queue, in ms."""
    row = scene.departments.get(name) or scene.projects[name]
    scene.put(with_quota(row, "default", replace(row.quota("default"), **runtimes)))
    return scene


@pytest.mark.parametrize(
    ("queue", "runtime", "safe"),
    [
        ("unit", 60_000, True),  # the queue beside the claimant's decides
        ("unit", 20_000, False),
        ("org", 60_000, True),  # not set there: the next level above
        ("b", 60_000, False),  # below the level on which the two compete
    ],
)
def test_minimum_run_time_in_reclaim_is_that_of_the_level_where_queues_compete(queue, runtime, safe):
    jobs = ["b1 b g1 @n1 ran=30", "a1 a g1"]
    scene = nested(world("n1:1", "org/=1 unit/=0 unit/b=0 org/a=1", *jobs), unit="org")
    plan = decide(minimum(scene, queue, reclaim_min_runtime=runtime).world(), NOW, Settings())
    assert [stop.attempt.workload for stop in plan.stops] == ([] if safe else ["b1"])
    assert plan.wake == (NOW + 30_000 if safe else None)


@pytest.mark.parametrize(
    ("runtimes", "safe"),
    [({"a": 60_000}, True), ({"unit": 60_000}, True), ({"a": 0, "unit": 60_000}, False), ({}, False)],
)
def test_minimum_run_time_in_preempt_is_the_nearest_from_the_project_up(runtimes, safe):
    scene = world("n1:1", "unit/=1 unit/a=1", "low a g1 @n1 ran=30", "high a g1 p80")
    for queue, runtime in runtimes.items():
        minimum(scene, queue, preempt_min_runtime=runtime)
    plan = decide(scene.world(), NOW, Settings())
    assert [stop.attempt.workload for stop in plan.stops] == ([] if safe else ["low"])
