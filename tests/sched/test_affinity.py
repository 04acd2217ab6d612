"""Which nodes work may use: labels, taints, a node's most tasks, and tasks that keep apart."""

from dataclasses import replace

import pytest

from pliant.model.affinity import Effect, Taint
from pliant.model.reason import NotApart
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, world

LABELS = [
    # nodes, what the job says, where it runs (none: it waits)
    ("n1:1:zone=a n2:1:zone=b", "on=zone:b", "n2"),
    ("n1:1:zone=a n2:1:zone=b", "on=zone:b,c", "n2"),
    ("n1:1:zone=a n2:1:zone=b", "on=zone:c", ""),
    ("n1:1:zone=a n2:1:zone=b", "on=!zone:a", "n2"),
    ("n1:1 n2:1:zone=b", "on=!zone:b", "n1"),
    ("n1:1 n2:1:zone=b", "on=zone", "n2"),
    ("n1:1:zone=b n2:1", "on=!zone", "n2"),
    ("n1:1:size=4 n2:1:size=16", "on=size>4", "n2"),
    ("n1:1:size=16 n2:1:size=4", "on=size<16", "n2"),
    ("n1:1:size=big n2:1", "on=size>0", ""),
    ("n1:1:zone=a:rack=r n2:1:zone=a:rack=s", "on=zone:a&rack:s", "n2"),
    ("n1:1:zone=a n2:1:zone=b", "on=zone:c|zone:b", "n2"),
    ("n1:1:zone=a n2:1:zone=b", "likes=10*zone:b", "n2"),
    ("n1:1:zone=a:rack=r n2:1:zone=b", "likes=10*zone:b;20*rack:r", "n1"),
    ("n1:1:zone=a n2:1:zone=b", "likes=10*zone:c", "n1"),
    ("n1:1:zone=a:rack=r n2:1:zone=b:rack=r n3:1:zone=a", "on=rack:r likes=10*zone:b", "n2"),
]


@pytest.mark.parametrize(("nodes", "asks", "node"), LABELS)
def test_labels(nodes, asks, node):
    t = settled(nodes, "a=3", f"j a g1 {asks}")
    assert t.show()["j"] == (("Running", 1, node) if node else ("Pending", 0, ""))


TAINTS = [
    ("n1:1:taint=k.v/NoSchedule n2:1", "", "n2"),
    ("n1:1:taint=k.v/NoExecute n2:1", "", "n2"),
    ("n1:1:taint=k.v/NoSchedule", "", ""),
    ("n1:1:taint=k.v/NoSchedule", "stands=k.v/NoSchedule", "n1"),
    ("n1:1:taint=k.v/NoSchedule", "stands=k.v", "n1"),
    ("n1:1:taint=k.v/NoSchedule", "stands=k", "n1"),
    ("n1:1:taint=k.v/NoSchedule", "stands=k.w", ""),
    ("n1:1:taint=k.v/NoSchedule", "stands=k/NoExecute", ""),
    ("n1:1:taint=k.v/NoSchedule", "stands=/NoSchedule", "n1"),  # any key
    ("n1:1:taint=k.v/NoSchedule", "stands=.v", ""),  # a value without a key tolerates nothing
    ("n1:1:taint=k.v/NoSchedule,l.v/NoExecute", "stands=k", ""),
    ("n1:1:taint=k.v/NoSchedule,l.v/NoExecute", "stands=k,l", "n1"),
    ("n1:1:taint=k.v/PreferNoSchedule n2:1", "", "n2"),
    ("n1:1:taint=k.v/PreferNoSchedule", "", "n1"),
    ("n1:1:taint=k.v/PreferNoSchedule n2:1", "stands=k", "n1"),
    ("n1:1:zone=a:taint=k.v/PreferNoSchedule n2:1", "likes=100*zone:a", "n2"),
    ("n1:2 n2:1:tasks=0", "", "n1"),
]


@pytest.mark.parametrize(("nodes", "asks", "node"), TAINTS)
def test_taints(nodes, asks, node):
    t = settled(nodes, "a=3", f"j a g1 {asks}")
    assert t.show()["j"] == (("Running", 1, node) if node else ("Pending", 0, ""))


def test_a_fraction_and_a_task_without_gpus_ask_for_labels_too():
    jobs = [f"{name} a {asks} on=zone:b" for name, asks in (("f", "g0.5"), ("c", "c1"), ("m", "m1G"))]
    t = settled("n1:1:zone=a n2:1:zone=b", "a=3", *jobs)
    assert {node for _, _, node in t.show().values()} == {"n2"}


def test_groups_have_wishes_of_their_own():
    t = settled("n1:1:zone=a n2:1:zone=b", "a=2", "j a g1 on=zone:b +worker g1 on=zone:a")
    assert [task.claims.node for task in t.scene.tasks_of("j")] == ["n2", "n1"]
    t = settled("n1:1:taint=k.v/NoSchedule n2:1", "a=2", "j a g1 +worker g1 stands=k")
    assert [task.claims.node for task in t.scene.tasks_of("j")] == ["n2", "n1"]


def test_a_node_takes_so_many_tasks():
    t = settled("n1:4:tasks=2 n2:1", "a=9", "a1 a g1", "a2 a g1", "a3 a g1", "a4 a g1")
    assert sorted(t.rows()) == ["a1 Running 1 n2", "a2 Running 1 n1", "a3 Running 1 n1", "a4 Pending 0"]


# ---------------------------------------------------------------- with what takes from others
TAKING = [
    # nodes, projects, jobs, rows afterwards
    (
        "n1:1:zone=a n2:1:zone=b",
        "a=0 b=1",
        ["x a g1 @n1", "y a g1 @n2", "j b g1 on=zone:b"],
        ["x Running 1 n1", "y Pending 0", "j Running 1 n2"],
    ),
    (
        "n1:1:zone=a n2:1:zone=b",
        "a=2",
        ["x a g1 @n1", "y a g1 @n2", "j a g1 p90 on=zone:a"],
        ["x Pending 0", "y Running 1 n2", "j Running 1 n1"],
    ),
    (  # a move goes where the victim may be
        "n1:2:zone=a n2:1:zone=b n3:1:zone=a",
        "a=4",
        ["x a g1 on=zone:a @n1", "j a g2"],
        ["x Running 1 n3", "j Running 2 n1"],
    ),
    (
        "n1:2:zone=a n2:1:zone=b",
        "a=4",
        ["x a g1 np on=zone:a @n1", "j a g2"],
        ["x Running 1 n1", "j Pending 0"],
    ),
    (  # elastic work that grows by moving stays among its labels
        "n1:2:zone=a n2:2:zone=b n3:2:zone=a",
        "a=9",
        ["x a g1 np @n1", "e a g2 elastic on=zone:a @n1*1"],
        ["x Running 1 n1", "e Running 2 n3"],
    ),
    (  # groups that ask for the same in different places
        "n1:1:zone=a n2:1:zone=b",
        "a=9",
        ["x a g1 @n1", "y a g1 @n2", "j a g1 on=zone:a p90 +worker g1 on=zone:b"],
        ["x Pending 0", "y Pending 0", "j Running 2 n1+n2"],
    ),
    (
        "n1:1:taint=k.v/NoSchedule n2:1",
        "a=0 b=1",
        ["x a g1 stands=k @n1", "y a g1 @n2", "j b g1"],
        ["x Running 1 n1", "y Pending 0", "j Running 1 n2"],
    ),
]


@pytest.mark.parametrize(("nodes", "projects", "jobs", "rows"), TAKING)
def test_who_takes_and_who_moves_keeps_to_labels_and_taints(nodes, projects, jobs, rows):
    assert settled(nodes, projects, *jobs).rows() == rows


# ---------------------------------------------------------------- taints that come later
def tainted(t, name, effect):
    t.change(replace(t.scene.nodes[name], taints=(Taint("k", "v", effect, since=t.now),)))
    return t


def test_what_runs_stays_on_a_node_that_takes_nothing_new():
    t = tainted(settled("n1:2", "a=2", "x a g1"), "n1", Effect.NO_SCHEDULE)
    t.submit("y a g1")
    t.settle()
    assert t.rows() == ["x Running 1 n1", "y Pending 0"]


def test_what_runs_leaves_a_node_that_drives_out():
    t = settled("n1:1 n2:1", "a=2", "x a g1")
    tainted(t, "n1", Effect.NO_EXECUTE).settle()
    assert t.rows() == ["x Running 1 n2"]
    (decision,) = t.decisions("x", "evict")
    assert dict(decision.reason.numbers) == {"node": "n1", "taint": "k=v:NoExecute"}


def test_what_stands_it_for_a_while_leaves_after_that():
    t = settled("n1:1 n2:1", "a=2", "x a g1 stands=k~30", "y a g1 stands=k")
    tainted(tainted(t, "n1", Effect.NO_EXECUTE), "n2", Effect.NO_EXECUTE)
    plan = t.settle()
    assert plan.wake == t.now + 30_000
    assert t.rows() == ["x Running 1 n1", "y Running 1 n2"]
    t.settle(wait=40_000)
    assert t.rows() == ["x Pending 0", "y Running 1 n2"]
    assert t.verdict("x").reason.code == "unsuited"


def test_of_several_times_that_it_stands_the_shortest_counts():
    t = settled("n1:1", "a=2", "x a g1 stands=k~30,k~90")
    assert tainted(t, "n1", Effect.NO_EXECUTE).settle().wake == t.now + 30_000


def test_a_promised_place_on_a_node_that_takes_nothing_new_is_given_up():
    t = Ticker(world("n1:1 n2:1", "a=2", "x a g1 ~n1", "y a g1 np @n2", "j a g1 >n1.0"))
    tainted(t, "n1", Effect.NO_SCHEDULE).settle()
    assert t.rows("j", "y") == ["y Running 1 n2", "j Pending 0"]


# ---------------------------------------------------------------- apart
APART = [
    # nodes, jobs, rows
    ("n1:2 n2:2", ["j a g1 x2 apart=kubernetes.io/hostname"], ["j Running 2 n1+n2"]),
    ("n1:4", ["j a g1 x2 apart=kubernetes.io/hostname"], ["j Pending 0"]),
    ("n1:2:rack=a n2:2:rack=a n3:2:rack=b", ["j a g1 x2 apart=rack"], ["j Running 2 n1+n3"]),
    ("n1:2:rack=a n2:2:rack=a", ["j a g1 x2 apart=rack"], ["j Pending 0"]),
    ("n1:2:rack=a n2:2", ["j a g1 x2 apart=rack"], ["j Pending 0"]),  # the rack of n2 is unknown
    ("n1:2:rack=a n2:2:rack=b", ["j a g1 x1-4 apart=rack"], ["j Running 2 n1+n2"]),
    ("n1:3 n2:3", ["j a g1 +worker g1 x2 apart=kubernetes.io/hostname"], ["j Running 3 n1+n2"]),
    (  # only tasks of the same workload keep apart
        "n1:2 n2:2",
        ["x a g1 @n1", "j a g1 x2 apart=kubernetes.io/hostname"],
        ["x Running 1 n1", "j Running 2 n1+n2"],
    ),
    (  # victims are taken only on nodes that it may use
        "n1:2 n2:2",
        ["x a g2 @n1", "y a g1 p99 @n2", "j a g1 x2 p90 apart=kubernetes.io/hostname"],
        ["x Pending 0", "y Running 1 n2", "j Running 2 n1+n2"],
    ),
    (  # the cheapest victims are both on n2
        "n1:2 n2:2",
        [
            "v a g1 @n1",
            "w a g1 @n1",
            "x a g1 @n2",
            "y a g1 @n2",
            "j a g1 x2 p90 apart=kubernetes.io/hostname",
        ],
        ["v Running 1 n1", "w Pending 0", "x Running 1 n2", "y Pending 0", "j Running 2 n1+n2"],
    ),
    (  # a move keeps its tasks apart
        "n1:1 n2:2 n3:1",
        ["x a g1 x2 apart=kubernetes.io/hostname @n1,n2", "j a g2"],
        ["x Running 2 n1+n3", "j Running 2 n2"],
    ),
    (
        "n1:2 n2:2",
        ["x a g1 x2 apart=kubernetes.io/hostname @n1,n2", "j a g2"],
        ["x Running 2 n1+n2", "j Pending 0"],
    ),
]


@pytest.mark.parametrize(("nodes", "jobs", "rows"), APART)
def test_tasks_that_lie_apart(nodes, jobs, rows):
    assert settled(nodes, "a=9", *jobs).rows() == rows


@pytest.mark.parametrize(("apart", "started"), [("", {"j"}), ("apart=rack", set())])
def test_who_lies_apart_waits_until_the_other_has_left(apart, started):
    """The first task still runs on n1, in the rack that the second was given, on another device."""
    scene = world("n1:2:rack=a n2:1:rack=b", "a=9", f"j a g1 x1-2 {apart} ~n1.0 >n1.1")
    plan = decide(scene.world(), NOW, Settings())
    assert {start.attempt.workload for start in plan.starts} == started
    if apart:
        assert plan.verdicts[0].reason.code == "waiting-for-release"


WHY = [
    ("n1:1:zone=a", "on=zone:b", "unsuited", {"nodes": 1, "unlike": 1, "tainted": 0, "taint": ""}),
    (
        "n1:1:zone=a n2:1:taint=k.v/NoSchedule",
        "on=!zone",
        "unsuited",
        {"nodes": 2, "unlike": 1, "tainted": 1, "taint": "k=v:NoSchedule"},
    ),
    ("n1:4:zone=a n2:2:zone=b", "g4 on=zone:b", "never-fits", {"asked": 4000, "largest": 2000}),
    ("n1:4:rack=a n2:4:rack=b", "x3 apart=rack", "not-apart", {"tasks": 3, "domains": 2, "ever": False}),
    ("n1:1 n2:1", "type=x on=zone", "no-matching-node", {"nodes": 2}),
]


@pytest.mark.parametrize(("nodes", "asks", "code", "numbers"), WHY)
def test_why_it_waits(nodes, asks, code, numbers):
    size = "" if "g4" in asks else "g1 "
    reason = settled(nodes, "a=9", f"w a {size}{asks}").verdict("w").reason
    assert (reason.code, {**dict(reason.numbers), **numbers}) == (code, dict(reason.numbers))


def test_why_it_waits_for_another_rack():
    t = settled("n1:1:rack=a n2:1:rack=b", "a=9", "x a g1 np @n2", "w a g1 x2 apart=rack")
    reason = t.verdict("w").reason
    assert reason == NotApart("rack", tasks=2, domains=2, room=1)
