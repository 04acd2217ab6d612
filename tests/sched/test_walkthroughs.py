"""The walk-throughs on a virtual clock: elasticity, over-quota, fairness, fractions, departments, weights."""

import pytest

from tests.sched.ticker import Ticker
from tests.sched.worlds import world

FILLER = "team-a g1 int np p100"


@pytest.mark.parametrize(
    ("nodes", "others", "words"),
    [
        ("n1:2", (), ""),
        ("n1:2", (), "live"),
        ("n1:4", ("filler0 other g2 int np p100",), ""),
        ("n1:2:type=a n2:2:type=b", (), "type=a"),
    ],
    ids=["1x2", "live", "1x4 with a filler", "two node types"],
)
def test_elasticity(nodes, others, words):
    t = Ticker(world(nodes, "team-a=2 other=2", *others))
    t.submit(f"elastic1 team-a g1 elastic {words}")
    t.settle()
    assert t.rows("elastic1") == ["elastic1 Running 2 n1"]
    assert t.attempts("elastic1") == 1, "a start includes its bonus in one order"
    node_type = "type=a" if "type" in words else ""
    t.submit(f"filler1 {FILLER} {node_type}")
    t.settle()
    assert t.rows("elastic1", "filler1") == ["elastic1 Running 1 n1", "filler1 Running 1 n1"]
    assert t.attempts("elastic1") == (1 if words == "live" else 2)
    (shrunk,) = t.decisions("elastic1", "shrink")
    assert (shrunk.action, shrunk.gpu_before, shrunk.gpu_after, shrunk.beneficiary) == (
        "shrink",
        2000,
        1000,
        "filler1",
    )
    t.delete("elastic1", "filler1")
    t.settle()
    assert "elastic1" not in t.show() and "filler1" not in t.show()
    t.submit(f"filler2 {FILLER} {node_type}", f"elastic2 team-a g2 elastic {words}")
    t.settle()
    assert t.rows("filler2", "elastic2") == ["filler2 Running 1 n1", "elastic2 Running 1 n1"]
    t.delete("filler2")
    t.settle()
    assert t.rows("elastic2") == ["elastic2 Running 2 n1"]


def test_elasticity_without_the_flag_waits():
    t = Ticker(world("n1:2", "team-a=2", f"filler2 {FILLER}", "rigid team-a g2"))
    t.settle()
    assert t.rows() == ["filler2 Running 1 n1", "rigid Pending 0"]
    t.delete("filler2")
    t.settle()
    assert t.rows() == ["rigid Running 2 n1"]


def test_a_filler_that_fits_elsewhere_shrinks_nobody():
    t = Ticker(world("n1:2:type=a n2:2:type=b", "team-a=4", "elastic1 team-a g1 elastic type=a"))
    t.settle()
    t.submit(f"filler1 {FILLER}")
    t.settle()
    assert t.rows() == ["elastic1 Running 2 n1", "filler1 Running 1 n2"]


def test_over_quota_fairness_and_packing():
    t = Ticker(world("n1:2 n2:2", "team-a=2 team-b=2"))
    t.submit("a2 team-a g2", "a1 team-a g1", "b1 team-b g1")
    t.settle()
    assert t.running() == {"a2": 2, "a1": 1, "b1": 1} and t.split() == {"team-a": 3, "team-b": 1}

    t.submit("b2 team-b g1")
    t.settle()
    assert t.running() == {"a2": 2, "b1": 1, "b2": 1}
    (evicted,) = t.decisions(verb="evict")
    assert (evicted.workload, evicted.action, evicted.beneficiary) == ("a1", "reclaim", "b2")

    t.delete("a2")
    t.settle()
    assert t.running() == {"a1": 1, "b1": 1, "b2": 1}
    nodes = [node for _, _, node in t.show().values()]
    full = next(node for node in nodes if nodes.count(node) == 2)
    t.delete(next(name for name, (_, _, node) in t.show().items() if node == full))
    before = t.show()
    t.settle()
    survivors = t.show()
    assert sorted(node for _, _, node in survivors.values()) == ["n1", "n2"]
    assert survivors == {name: row for name, row in before.items() if name in survivors}, "nobody moved"

    attempts = {name: t.attempts(name) for name in survivors}
    t.submit("a2 team-a g2")
    t.settle()
    assert t.running() == {"a2": 2, **dict.fromkeys(survivors, 1)}
    assert len({t.show()[name][2] for name in survivors}) == 1, "together on one node"
    assert sorted(t.attempts(name) - attempts[name] for name in survivors) == [0, 1], "one moved, one stayed"


def test_queue_fairness():
    t = Ticker(world("n1:2 n2:2", "team-a=1 team-b=1"))
    t.submit(*(f"a{i} team-a g1" for i in (1, 2, 3, 4)))
    t.settle()
    assert t.split() == {"team-a": 4, "team-b": 0}
    t.submit(*(f"b{i} team-b g1" for i in (1, 2, 3, 4)))
    t.settle()
    assert t.split() == {"team-a": 2, "team-b": 2}
    assert {"a1", "a2"} <= set(t.running()), "the oldest survive"
    t.delete("b2")
    t.settle()
    assert t.running() == {"a1": 1, "a2": 1, "b1": 1, "b3": 1}
    t.finish("a1")
    t.settle()
    assert "a3" in t.running() and t.split() == {"team-a": 2, "team-b": 2}
    t.finish("a2")
    t.finish("b1")
    t.settle()
    assert t.split() == {"team-a": 2, "team-b": 2}


def test_fairness_of_who_runs_next_does_not_ask_for_age():
    """team-a submitted all its jobs first; still the projects take turns as GPUs come free."""
    t = Ticker(world("n1:1 n2:1", "team-a=1 team-b=1", "a0 team-a g1 @n1", "b0 team-b g1 @n2"))
    t.submit(*(f"a{i} team-a g1" for i in range(1, 5)), *(f"b{i} team-b g1" for i in range(1, 5)))
    for turn in range(8):
        t.settle()
        assert t.split() == {"team-a": 1, "team-b": 1}
        t.finish(next(name for name in sorted(t.running()) if name[0] == "ab"[turn % 2]))


def test_fractions():
    t = Ticker(world("n1:1", "team-a=1"))
    t.submit("frac05 team-a g0.5", "frac05-2 team-a g0.5", "frac06 team-a g0.6")
    t.settle()
    assert t.rows() == ["frac05 Running 0.5 n1", "frac05-2 Running 0.5 n1", "frac06 Pending 0"]
    t.delete("frac05", "frac05-2")
    t.submit("job-0 team-a m5G")
    t.settle()
    assert t.rows() == ["frac06 Running 0.6 n1", "job-0 Running 0.292 n1"]


def test_suspend_and_resume():
    t = Ticker(world("n1:1", "team-a=1"))
    t.submit("build1 team-a g1 int np p100", "other team-a g1")
    t.settle()
    t.suspend("build1")
    t.settle()
    assert t.rows() == ["build1 Stopped 0", "other Running 1 n1"]
    t.resume("build1")
    t.settle()
    assert t.rows() == ["build1 Running 1 n1", "other Pending 0"], "inside quota, and of higher priority"


def test_interactive_over_quota_waits_unless_preemptible():
    t = Ticker(world("n1:2", "team-a=1"))
    t.submit("build1 team-a g1 int np p100", "build2 team-a g1 int np p100", "build3 team-a g1 int p75")
    t.settle()
    assert t.rows() == ["build1 Running 1 n1", "build2 Pending 0", "build3 Running 1 n1"]


def test_department_caps_what_is_guaranteed():
    t = Ticker(world("n1:8", "d1/=6 d1/team-a=4 d1/team-b=4"))
    t.submit(*(f"a{i} team-a g1 np" for i in range(4)), *(f"b{i} team-b g1 np" for i in range(4)))
    t.settle()
    assert sum(t.split().values()) == 6
    t.submit("a9 team-a g2")
    t.settle()
    assert t.running()["a9"] == 2, "preemptible work may use what is left"


@pytest.mark.parametrize(
    ("projects", "expected"),
    [
        ("team-a=3 team-b=1", {"team-a": 6, "team-b": 2}),
        ("team-a=2:w=1 team-b=2:w=3", {"team-a": 3, "team-b": 5}),
    ],
    ids=["quotas 3:1", "weights 1:3"],
)
def test_weights(projects, expected):
    t = Ticker(world("n1:4 n2:4", projects))
    t.submit(*(f"a{i} team-a g1" for i in range(8)), *(f"b{i} team-b g1" for i in range(8)))
    t.settle()
    assert t.split() == expected


def test_minimum_run_time_delays_reclaim():
    t = Ticker(world("n1:2 n2:2", "team-a=2 team-b=2", pools="default:min=120"))
    t.submit("a2 team-a g2", "a1 team-a g1", "b1 team-b g1")
    t.settle()
    started = next(e.at for e in t.log if e.kind == "started" and e.attempt.workload == "a1")
    t.submit("b2 team-b g1")
    plan = t.settle()
    assert t.running() == {"a2": 2, "a1": 1, "b1": 1} and plan.wake == started + 120_000
    t.settle(wait=119_000 - (t.now - started))
    assert t.running() == {"a2": 2, "a1": 1, "b1": 1}
    t.settle(wait=10_000)
    assert t.running() == {"a2": 2, "b1": 1, "b2": 1}
    (evicted,) = [e.at for e in t.log if e.kind == "stop"]
    assert evicted == started + 120_000
