"""The code and the numbers of each kind of verdict, and wording that once misled."""

from dataclasses import replace

import pytest

from pliant.model.reason import NonPreemptibleOverQuota, OverLimit
from pliant.model.workload import TaskPhase
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, world


def _why(t, name):
    reason = t.verdict(name).reason
    return reason.code, dict(reason.numbers)


WAITING = [
    # nodes, projects, jobs (the last one waits), pools, code, numbers
    (
        "n1:2 n2:2",
        "a=4",
        ["x a g1 np @n1", "y a g1 np @n2", "w a g2"],
        "",
        "no-capacity",
        {"asked": 2000, "tasks": 1, "free_best": 1000, "free_all": 2000, "nodes": 2},
    ),
    (
        "n1:2 n2:2",
        "a=9",
        ["x a g1 np @n1", "y a g1 np @n2", "w a g1 x3"],
        "",
        "no-capacity",
        {"asked": 3000, "tasks": 3, "free_best": 1000, "free_all": 2000, "nodes": 2},
    ),
    (
        "n1:2:type=x n2:4",
        "a=4",
        ["x a g1 np @n1", "w a g2 type=x"],
        "",
        "no-capacity",
        {"free_best": 1000, "free_all": 1000, "nodes": 1},
    ),
    ("n1:2 n2:2", "a=9", ["w a g9"], "", "never-fits", {"asked": 9000, "largest": 2000}),
    ("n1:2:type=x n2:8", "a=9", ["w a g4 type=x"], "", "never-fits", {"asked": 4000, "largest": 2000}),
    (
        "n1:2:cpu=4",
        "a=9",
        ["w a g1 c8"],
        "",
        "never-fits",
        {"asked": 8000, "largest": 4000, "short_of": "cpu"},
    ),
    ("n1:2", "a=9", ["w a g1 x3"], "", "never-fits", {"asked": 3000, "tasks": 3}),
    ("n1:2:type=x", "a=9", ["w a g1 type=y"], "", "no-matching-node", {"pool": "default", "node_types": "y"}),
    ("n1:2", "a=9", ["w a g1 pool=fast"], "fast", "no-matching-node", {"pool": "fast", "nodes": 0}),
    (  # in one pool no node suits, in the other only a taint keeps it away
        "n1:2 n2:2:zone=x:taint=k.v/NoSchedule:pool=fast",
        "a=9",
        ["w a g1 on=zone:x"],
        "fast",
        "unsuited",
        {"pool": "fast", "nodes": 1, "unlike": 0, "tainted": 1, "taint": "k=v:NoSchedule"},
    ),
    (
        "n1:4",
        "a=2",
        ["x a g1 np @n1", "w a g2 np"],
        "",
        "non-preemptible-over-quota",
        {"level": "project", "queue": "a", "quota": 2000, "used": 1000, "asked": 2000, "resource": "gpu"},
    ),
    (
        "n1:4",
        "d1/=2 d1/a=2 d1/b=2",
        ["x b g1 np @n1", "w a g2 np"],
        "",
        "non-preemptible-over-quota",
        {"level": "department", "queue": "d1", "quota": 2000, "used": 1000, "asked": 2000},
    ),
    (
        "n1:4",
        "a=2:max=2",
        ["x a g1 @n1", "w a g2"],
        "",
        "over-limit",
        {"level": "project", "queue": "a", "limit": 2000, "used": 1000, "asked": 2000, "resource": "gpu"},
    ),
    (
        "n1:4",
        "d1/=2:max=2 d1/a=2 d1/b=2",
        ["x b g1 @n1", "w a g2"],
        "",
        "over-limit",
        {"level": "department", "queue": "d1", "limit": 2000, "used": 1000, "asked": 2000},
    ),
    (  # x would be evicted for it, so it does not wait for the limit
        "n1:4",
        "a=1:max=2",
        ["x a g2 @n1", "w a g2 np"],
        "",
        "non-preemptible-over-quota",
        {"level": "project", "queue": "a", "quota": 1000, "used": 0, "asked": 2000, "resource": "gpu"},
    ),
    (
        "n1:4",
        "d1/=1 d1/a=4:max=4",
        ["x a g3 @n1", "w a g2 np"],
        "",
        "non-preemptible-over-quota",
        {"level": "department", "queue": "d1", "quota": 1000, "used": 0, "asked": 2000, "resource": "gpu"},
    ),
    (
        "n1:4",
        "a=4:cpumax=4",
        ["x a g1 c3 @n1", "w a g1 c2"],
        "",
        "over-limit",
        {"queue": "a", "limit": 4000, "used": 3000, "asked": 2000, "resource": "cpu"},
    ),
    (
        "n1:4",
        "a=2 b=2",
        ["b1 b g2 @n1", "x a g2 @n1", "w a g1"],
        "",
        "not-entitled",
        {"project": "a", "asked": 1000, "allocated": 2000, "fair_share": 2000, "quota": 2000, "free_all": 0},
    ),
    (  # b is within its quota too: nothing can be taken from it
        "n1:4",
        "a=3 b=3 c=1",
        ["x b g3 @n1", "w a g2"],
        "",
        "overpromised",
        {"project": "a", "asked": 2000, "allocated": 0, "quota": 3000, "promised": 7000, "has": 4000}
        | {"held": 3000, "holders": "b"},
    ),
    (
        "n1:4",
        "a=3 b=3",
        ["x b g3 np @n1", "w a g2 np"],
        "",
        "overpromised",
        {"project": "a", "promised": 6000, "has": 4000, "held": 3000, "holders": "b"},
    ),
]


PROMISED_AND_NOT_TO_BLAME = [
    # it exceeds its quota; enough is free, but on two nodes; its own project holds the GPUs
    ("n1:4", "a=1 b=4", ["x b g4 np @n1", "w a g2"]),
    ("n1:2 n2:2", "a=9", ["x a g1 np @n1", "y a g1 np @n2", "w a g2"]),
    ("n1:4", "a=5 b=4", ["x a g4 np @n1", "w a g1"]),
]


@pytest.mark.parametrize(("nodes", "projects", "jobs"), PROMISED_AND_NOT_TO_BLAME)
def test_quotas_beyond_the_machines_are_named_only_where_they_are_the_cause(nodes, projects, jobs):
    assert settled(nodes, projects, *jobs).verdict("w").reason.code != "overpromised"


@pytest.mark.parametrize(("nodes", "projects", "jobs", "pools", "code", "numbers"), WAITING)
def test_code_and_numbers(nodes, projects, jobs, pools, code, numbers):
    t = settled(nodes, projects, *jobs, pools=pools)
    assert t.show()["w"][0] == "Pending"
    found, told = _why(t, "w")
    assert found == code and {key: told.get(key) for key in numbers} == numbers


def test_api_codes():
    assert NonPreemptibleOverQuota.api_code == "NonPreemptibleOverQuota" and OverLimit.api_code == "OverLimit"


def test_waiting_for_release():
    t = Ticker(world("n1:2", "a=0 b=1", "x a g1 @n1", "y a g1 @n1", "w b g1"), stop=30_000)
    t.cycle()
    code, numbers = _why(t, "w")
    assert code == "waiting-for-release"
    assert (numbers["node"], numbers["gpus"], numbers["holders"]) == ("n1", 1000, "y")


def test_back_off():
    t = settled("n1:1", "a=1", "w a g1")
    t.fail("w")
    until = t.now + 10_000
    t.settle()
    code, numbers = _why(t, "w")
    assert code == "back-off" and (numbers["until"], numbers["failures"]) == (until, 1)


def test_minimum_run_time():
    t = settled("n1:1", "a=0 b=1", "x a g1 @n1 ran=10", "w b g1", pools="default:min=60")
    code, numbers = _why(t, "w")
    assert code == "min-runtime" and (numbers["protected"], numbers["until"]) == ("x", NOW + 50_000)
    assert t.plans[-1].wake == NOW + 50_000


def test_what_runs_in_full_needs_no_reason():
    t = settled("n1:4", "a=2", "x a g1", "e a g1 elastic", "g a g1 x1-1-2", "s a g1")
    t.suspend("s")
    t.settle()
    assert {v.workload for v in t.plans[-1].verdicts} <= {"s"}


def test_a_missing_wanted_portion_has_a_reason():
    t = settled("n1:2", "a=2", "f a g1 np @n1", "e a g2 elastic", "g a c1 x1-2 +w g1 x0")
    assert t.verdict("e").reason.code in ("no-capacity", "not-entitled")


def test_what_is_short_for_all_tasks_together_is_named_though_each_has_a_node():
    """Of two tasks each has a node with GPUs, but there are not enough cores for both."""
    cores = settled("n1:2", "a=2").world.nodes["n1"].free_cpu
    t = settled("n1:2", "a=2", f"f a c{cores // 2000} @n1", f"w a g1 c{cores // 3000} x2")
    code, numbers = _why(t, "w")
    assert (code, numbers["short_of"]) == ("no-capacity", "cpu")
    assert numbers["asked"] > numbers["free_all"]


def test_what_never_fits_names_gpus_first():
    t = settled("n1:2", "a=2", "x a g1000000 c1000000", "y a g1 c1000000")
    assert [t.verdict(name).reason.short_of for name in "xy"] == ["gpu", "cpu"]


def test_a_lost_task_that_keeps_its_place_waits_for_nobody_but_its_pause():
    t = settled("n1:1", "a=1", "x a g1")
    (task,) = t.scene.tasks_of("x")
    t.change(replace(task, phase=TaskPhase.WAITING, carries=None, started=None, retry_at=t.now + 60_000))
    t.occupied.clear()
    t.cycle()
    reason = t.verdict("x").reason
    assert (reason.code, reason.task, reason.failures) == ("back-off", "main-0", 0)


def test_who_was_just_placed_is_told_nothing_whatever_the_actions():
    plan = decide(world("n1:1", "a=1", "x a g1", "y a g1").world(), NOW, Settings(actions=("allocate",)))
    assert [d.workload for d in plan.decisions] == ["x"] and [v.workload for v in plan.verdicts] == ["y"]
