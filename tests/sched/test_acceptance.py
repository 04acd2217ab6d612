"""The walk-throughs' states, straight from World and decide, with engines that obey at once."""

import itertools

import pytest

from pliant.model.tenancy import Quota
from pliant.model.workload import Desired
from tests.sched.stage import Stage


@pytest.mark.parametrize("nodes", [[2], [4]])
def test_elasticity(nodes):
    stage = Stage(nodes, {"team-a": 2, "other": 2})
    if nodes == [4]:
        stage.submit("rest", "other", 2, interactive=True)
    stage.submit("elastic1", "team-a", 1, elastic=True)
    assert stage.gpus()["elastic1"] == 2
    assert stage.attempts("elastic1") == [1], "its bonus comes in the same order as its start"
    stage.submit("filler1", "team-a", 1, interactive=True)
    assert (stage.gpus()["elastic1"], stage.gpus()["filler1"]) == (1, 1)
    stage.delete("elastic1", "filler1")
    stage.submit("filler2", "team-a", 1, interactive=True)
    stage.submit("elastic2", "team-a", 2, elastic=True)
    assert stage.gpus()["elastic2"] == 1
    stage.delete("filler2")
    assert stage.gpus()["elastic2"] == 2


def test_without_elastic_it_waits_with_its_numbers():
    stage = Stage([2], {"team-a": 2})
    stage.submit("filler2", "team-a", 1, interactive=True)
    stage.submit("plain", "team-a", 2)
    reason = stage.why("plain")
    assert (reason.code, reason.free_best, reason.asked) == ("no-capacity", 1000, 2000)


def test_over_quota_fairness_packing_and_consolidation():
    stage = Stage([2, 2], {"team-a": 2, "team-b": 2})
    stage.submit("a2", "team-a", 2)
    stage.submit("a1", "team-a", 1)
    stage.submit("b1", "team-b", 1)
    assert stage.gpus() == {"a2": 2, "a1": 1, "b1": 1}
    assert stage.world.usage("team-a")[0].gpu == 3000
    stage.submit("b2", "team-b", 1)
    assert stage.gpus() == {"a2": 2, "a1": 0, "b1": 1, "b2": 1}
    stage.delete("a2")
    assert stage.gpus() == {"a1": 1, "b1": 1, "b2": 1}
    nodes = {name: node for name, (_, node) in stage.shown().items()}
    full = next(n for n in ("n1", "n2") if list(nodes.values()).count(n) == 2)
    stage.delete(next(name for name, node in nodes.items() if node == full))
    assert {node for _, node in stage.shown().values()} == {"n1", "n2"}
    stage.submit("a2", "team-a", 2)
    shown = stage.shown()
    assert shown["a2"][0] == 2 and len({node for name, (_, node) in shown.items() if name != "a2"}) == 1
    assert all(gpus > 0 for gpus, _ in shown.values())


def test_queue_fairness():
    stage = Stage([2, 2], {"team-a": 1, "team-b": 1})
    for i in range(1, 5):
        stage.submit(f"a{i}", "team-a")
    assert sum(stage.gpus().values()) == 4
    for i in range(1, 5):
        stage.submit(f"b{i}", "team-b")

    def split():
        gpus = stage.gpus()
        return [sum(v for k, v in gpus.items() if k[0] == team) for team in "ab"]

    assert split() == [2, 2] and stage.gpus()["a1"] == stage.gpus()["a2"] == 1
    while any(gpus == 0 for gpus in stage.gpus().values()):
        stage.delete(next(name for name, gpus in stage.gpus().items() if gpus))
        waiting = {name[0] for name, gpus in stage.gpus().items() if not gpus}
        if waiting == {"a", "b"}:
            assert abs(split()[0] - split()[1]) <= 1


def test_fractions():
    stage = Stage([1], {"team-a": 1})
    stage.submit("frac05", "team-a", 0.5)
    stage.submit("frac05-2", "team-a", 0.5)
    assert stage.gpus() == {"frac05": 0.5, "frac05-2": 0.5}
    stage.submit("third", "team-a", 0.6)
    assert stage.gpus()["third"] == 0 and stage.why("third").code == "no-capacity"
    stage.delete("frac05", "frac05-2", "third")
    stage.submit("five", "team-a", 1, memory=5 * 10**9)
    share = stage.world.tasks["five", "main-0"].carries.shares[0]
    assert share.memory == 5 * 10**9 and share.portion == -(-5 * 10**9 * 1000 // (16 * 2**30))


def test_suspend_and_resume():
    stage = Stage([2], {"team-a": 2})
    stage.submit("job", "team-a", 2)
    stage.wish(Desired.STOPPED, "job")
    assert stage.gpus() == {"job": 0} and stage.world.nodes["n1"].free == 2
    assert stage.why("job").code == "suspended"
    stage.wish(Desired.RUNNING, "job")
    assert stage.gpus() == {"job": 2} and stage.attempts("job") == [2]


def test_department_quota_caps_non_preemptible_work():
    stage = Stage([8], {"p": 4, "q": 4}, department=6)
    for i, project in itertools.product(range(4), "pq"):
        stage.submit(f"{project}{i}", project, 1, interactive=True)
    assert sum(stage.gpus().values()) == 6
    waiting = next(name for name, gpus in stage.gpus().items() if not gpus)
    reason = stage.why(waiting)
    assert (reason.code, reason.level, reason.quota) == ("non-preemptible-over-quota", "department", 6000)


@pytest.mark.parametrize(
    ("projects", "expected"),
    [
        ({"p": 3, "q": 1}, [9, 3]),
        ({"p": Quota(gpu=2000, weight=1000), "q": Quota(gpu=2000, weight=3000)}, [4, 8]),
    ],
)
def test_weights(projects, expected):
    stage = Stage([4, 4, 4], projects)
    for i, project in itertools.product(range(12), "pq"):
        stage.submit(f"{project}{i:02}", project)
    gpus = stage.gpus()
    assert [sum(v for k, v in gpus.items() if k[0] == team) for team in "pq"] == expected


def test_minimum_run_time_delays_the_eviction():
    stage = Stage([2, 2], {"team-a": 2, "team-b": 2}, min_runtime=120_000)
    stage.submit("a2", "team-a", 2)
    stage.submit("a1", "team-a", 1)
    stage.submit("b1", "team-b", 1)
    stage.submit("b2", "team-b", 1)
    assert stage.gpus()["a1"] == 1 and stage.gpus()["b2"] == 0
    assert (stage.why("b2").code, stage.why("b2").protected) == ("min-runtime", "a1")
    until = stage.why("b2").until
    assert stage.now < stage.plans[-1].wake <= until  # a2 may go before, but two GPUs are too much
    stage.later(until - 1 - stage.now)
    assert stage.gpus()["b2"] == 0
    stage.later(until - stage.now)
    assert stage.gpus() == {"a2": 2, "a1": 0, "b1": 1, "b2": 1}


def test_a_gang_starts_together_or_not_at_all():
    stage = Stage([2], {"team-a": 2})
    stage.submit("three", "team-a", 1, tasks=3)
    assert stage.gpus() == {"three": 0} and stage.why("three").code == "never-fits"
    stage.submit("two", "team-a", 1, tasks=2)
    assert stage.gpus()["two"] == 2
