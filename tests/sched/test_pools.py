"""Node pools: the ordered list of a workload or of its project, and quotas of their own."""

from dataclasses import replace

import pytest

from pliant.model.tenancy import with_quota
from pliant.sched.shares.entitlement import quota_of
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world

NODES = "n1:1 n2:1:pool=fast n3:1:pool=slow"

LISTS = [
    # projects, what the job says, where it runs
    ("a=1+fast=1+slow=1", "", "n1"),
    ("a=1+fast=1+slow=1", "pool=fast", "n2"),
    ("a=1+fast=1+slow=1", "pool=slow,fast", "n3"),
    ("a=1+fast=1+slow=1", "pool=fast,default", "n2"),
    ("a=1+fast=1+slow=1:pools=slow,fast", "", "n3"),
    ("a=1+fast=1+slow=1:pools=slow,fast", "pool=fast", "n2"),
    ("a=1+fast=1+slow=1", "g2 pool=fast", ""),
    ("a=1+fast=0+slow=1", "np pool=fast,slow", "n3"),  # no quota there for what is not preemptible
    ("a=1+fast=0+slow=1", "pool=fast,slow", "n2"),  # over quota is fine
]


@pytest.mark.parametrize(("projects", "asks", "node"), LISTS)
def test_the_list_is_tried_in_order(projects, asks, node):
    size = "" if "g2" in asks else "g1"
    t = settled(NODES, projects, f"j a {size} {asks}", pools="fast slow")
    assert t.show()["j"] == (("Running", 1, node) if node else ("Pending", 0, ""))


FULL = [
    # jobs, rows of the last
    (["x a g1 np @n2", "j a g1 pool=fast,slow"], "j Running 1 n3"),
    (["x a g1 np @n2", "j a g1 pool=fast"], "j Pending 0"),
    (["x b g1 @n2", "j a g1 pool=fast,slow"], "j Running 1 n3"),  # free elsewhere before taken here
    (["x b g1 @n2", "y b g1 np @n3", "j a g1 pool=fast,slow"], "j Running 1 n2"),
    (["x a g1 np @n2", "j a g1 x2 pool=fast,slow"], "j Pending 0"),  # all of it in one pool
]


@pytest.mark.parametrize(("jobs", "row"), FULL)
def test_a_full_pool_is_followed_by_the_next(jobs, row):
    assert settled(NODES, "a=1+fast=1+slow=1 b=0", *jobs, pools="fast slow").rows("j") == [row]


@pytest.mark.parametrize(("at_once", "rows"), [(0, "j Running 1 n1"), (2, "j Running 2 n1+n2")])
def test_runs_by_themselves_may_lie_in_several_pools(at_once, rows):
    scene = world("n1:1 n2:1:pool=fast", "a=1+fast=1", "j a g1 x0-2", pools="fast")
    j = scene.workloads["j"]
    scene.put(replace(j, groups=(replace(j.groups[0], at_once=at_once),)))
    t = Ticker(scene)
    t.settle()
    assert t.rows() == [rows]


def test_quotas_of_pools_have_nothing_to_do_with_one_another():
    nodes = "n1:2 n2:2:pool=fast"
    jobs = [
        "x1 b g1 @n1",
        "x2 b g1 @n1",
        "y1 a g1 @n2",
        "y2 a g1 @n2",
        "ja a g2 pool=default",
        "jb b g2 pool=fast",
    ]
    t = settled(nodes, "a=2+fast=0 b=0+fast=2", *jobs, pools="fast")
    assert t.rows("ja", "jb") == ["ja Running 2 n1", "jb Running 2 n2"]


def test_a_weight_counts_in_each_pool():
    jobs = [f"{p}{i} {p} g1 pool={pool}" for pool in ("default", "fast") for p in "ab" for i in (pool[0],)]
    many = [line.replace("g1", "g1 x0-4") for line in jobs]
    t = settled("n1:4 n2:4:pool=fast", "a=0+fast=0:w=3 b=0+fast=0:w=1", *many, pools="fast")
    assert t.split() == {"a": 6, "b": 2}


@pytest.mark.parametrize(
    ("asks", "row", "attempts"), [("x1-2", "j Running 0.5 n2", 1), ("", "j Running 0.5 n1", 2)]
)
def test_who_may_stay_in_the_end_is_not_moved_to_a_pool_that_it_prefers(asks, row, attempts):
    """At the limit of fast j gives way to w; for two tasks of w big does too, and j has room again."""
    jobs = [
        "j a g0.5 p25 @n2.4 pool=default,fast",
        "big a g3 p25 @n2 pool=fast",
        f"w a g1 {asks} p80 pool=fast",
    ]
    t = settled("n1:1 n2:5:pool=fast", "a=1+fast=4:max=4", *jobs, pools="fast")
    assert t.rows("j") == [row] and t.attempts("j") == attempts


def test_what_a_derived_project_deserves_counts_in_each_pool():
    """b deserves what a leaves of two GPUs, and in fast what a and the department inside d leave of four."""
    scene = world("n1:2 n2:4:pool=fast", "d/=2+fast=4 e/=0+fast=1 d/a=1+fast=2 d/b=?", pools="fast")
    scene.put(replace(scene.departments["e"], parent="d"))
    built = scene.world()
    assert (quota_of(built, "b").gpu, quota_of(built, "b", "fast").gpu) == (1000, 1000)


@pytest.mark.parametrize(("takes", "field"), [("b", "reclaim_min_runtime"), ("a", "preempt_min_runtime")])
@pytest.mark.parametrize(("pool", "keeps"), [("fast", True), ("default", False)])
def test_a_minimum_run_time_counts_in_its_pool(takes, field, pool, keeps):
    jobs = ["x a g1 p25 pool=fast @n2 ran=10", f"w {takes} g1 p80 pool=fast"]
    scene = world("n1:1 n2:1:pool=fast", "a=0+fast=0 b=0+fast=1", *jobs, pools="fast")
    a = scene.projects["a"]
    scene.put(with_quota(a, pool, replace(a.quota(pool), **{field: 60_000})))
    t = Ticker(scene)
    t.settle()
    assert ("x" in t.running()) is keeps


def test_what_waits_counts_in_every_pool_that_it_may_use():
    """w asks for default first, and is due one of the two GPUs of fast."""
    jobs = ["x a g1 np @n1", "y a g1 @n2", "z a g1 @n2", "w b g1 pool=default,fast"]
    t = settled("n1:1 n2:2:pool=fast", "a=1+fast=0 b=0+fast=0", *jobs, pools="fast")
    assert t.rows("w") == ["w Running 1 n2"]
