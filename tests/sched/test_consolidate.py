"""Consolidation: jobs are moved, none is lost, so that a pending one fits."""

import random
from itertools import permutations

import pytest

from pliant.sched.actions.consolidate import fewest_devices
from pliant.sched.preemption.search import search
from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world

SPLIT = ("n1:2 n2:2", "a=2 b=2", "a1 a g1 @n1", "b1 b g1 @n2")


def test_one_moves_and_one_stays():
    t = settled(*SPLIT, "a2 a g2")
    assert t.running() == {"a1": 1, "b1": 1, "a2": 2}
    assert sorted((t.attempts("a1"), t.attempts("b1"))) == [1, 2]
    (moved,) = t.decisions(verb="move")
    assert moved.action == "consolidate" and moved.beneficiary == "a2" and moved.gpu_before == moved.gpu_after


def test_the_moved_one_starts_again_at_once_where_there_is_room():
    """Its new place is free: only the pending one waits for a stop."""
    t = Ticker(world(*SPLIT, "a2 a g2"), stop=30_000)
    t.cycle()
    (moved,) = t.decisions(verb="move")
    t.advance(30_000)
    t.cycle()
    t.advance(100)
    assert t.running() == {"a1": 1, "b1": 1, "a2": 2} and t.attempts(moved.workload) == 2


@pytest.mark.parametrize("pending", ["a2 a g2 np p100", "a2 a g2 elastic", "a2 a g1 x2 p90"])
def test_it_serves_any_core_but_only_cores(pending):
    """A non-preemptible job in quota is served; an elastic one has its core already; a gang of ones fits."""
    t = settled(*SPLIT, pending)
    assert t.running()["a2"] in (1, 2)
    assert len(t.decisions(verb="move")) == (1 if "np" in pending else 0)


def test_whoever_stands_where_only_the_pending_one_may_go_moves_elsewhere():
    t = settled("n1:2:type=x n2:2", "a=4", "a1 a g1 @n1", "b1 a g1 @n2", "a2 a g2 type=x")
    assert t.rows() == ["a1 Running 1 n2", "b1 Running 1 n2", "a2 Running 2 n1"]


@pytest.mark.parametrize(("pending", "moves"), [("np", 1), ("x1-2 @n3", 0)])
def test_for_whom_work_is_moved(pending, moves):
    """Work is moved for a non-preemptible core, not for a second task of a running workload."""
    nodes = "n1:2 n2:2 n3:2" if "n3" in pending else "n1:2 n2:2"
    scene = world(nodes, "a=6", "a1 a g1 @n1", "b1 a g1 @n2", f"a2 a g2 {pending}")
    t = Ticker(scene)
    t.settle()
    assert len(t.decisions(verb="move")) == moves


@pytest.mark.parametrize("victims", ["least", "youngest"])
@pytest.mark.parametrize("second", ["two a g2 @n2", "two a g2 p25 @n2"])
def test_if_who_goes_first_has_no_other_place_another_moves(victims, second):
    """Only the job of 1 GPU fits on the other node, so it moves, youngest or not."""
    t = Ticker(
        world("n1:4 n2:4", "a=8", "three a g3 @n1", "one a g1 @n2", second, "waits a g2"),
        settings=Settings(victims=victims),
    )
    t.settle()
    assert [decision.workload for decision in t.decisions(verb="move")] == ["one"]
    assert t.rows("waits", "two") == ["two Running 2 n2", "waits Running 2 n2"]


def test_nobody_moves_if_all_on_each_node_have_no_other_place():
    t = settled("n1:4 n2:4", "a=9", "three a g3 @n1", "also a g3 @n2", "waits a g2")
    assert not t.decisions(verb="move") and t.running() == {"three": 3, "also": 3}


def test_of_equal_tasks_the_last_moves():
    t = settled("n1:2 n2:2", "a=4", "gang a g1 x2 @n1,n2", "big a g2")
    (moved,) = t.decisions(verb="move")
    assert moved.workload == "gang" and t.rows("big") == ["big Running 2 n2"]


def test_nobody_moves_if_the_pending_one_would_still_not_fit():
    t = settled("n1:2 n2:2", "a=2 b=4", "a1 a g1 @n1", "b1 b g1 @n2", "big b g3")
    assert t.rows("big") == ["big Pending 0"] and not t.decisions()


def test_nobody_moves_who_finds_no_other_place():
    t = settled("n1:2:type=x n2:2", "a=2 b=2", "a1 a g1 type=x @n1", "b1 b g1 np @n2", "a2 a g2")
    assert t.rows("a2") == ["a2 Pending 0"] and not t.decisions(verb="move")


def test_the_non_preemptible_does_not_move():
    t = settled("n1:2 n2:2", "a=4 b=4", "a1 a g1 np @n1", "b1 b g1 @n2", "a2 a g2")
    assert t.rows() == ["a1 Running 1 n1", "b1 Running 1 n1", "a2 Running 2 n2"]
    t = settled("n1:2 n2:2", "a=4 b=4", "a1 a g1 np @n1", "b1 b g1 np @n2", "a2 a g2")
    assert t.rows("a2") == ["a2 Pending 0"] and not t.decisions()


def test_as_few_as_possible_move():
    t = settled("n1:4 n2:4 n3:4", "a=12", "x a g3 @n1", "y a g1 @n2", "z a g1 @n2", "w a g3 @n3", "big a g3")
    assert t.running()["big"] == 3
    assert len(t.decisions(verb="move")) == 1


def test_two_move_if_it_takes_two():
    t = settled(
        "n1:2 n2:2 n3:2", "a=6", "x a g1 @n1", "y a g1 @n2", "z a g1 @n3", "w a g1 @n1", "big a g2 x1"
    )
    assert t.running()["big"] == 2
    t = settled("n1:4 n2:4", "a=8", "x a g1 @n1", "y a g1 @n1", "v a g1 @n2", "w a g1 @n2", "big a g4")
    assert t.running()["big"] == 4 and len(t.decisions(verb="move")) == 2


def test_a_gang_is_served_by_moves():
    jobs = [f"j{i} a g1 @n{i}" for i in range(1, 5)]
    t = settled("n1:2 n2:2 n3:2 n4:2", "a=9", *jobs, "gang a g2 x2")
    assert t.running()["gang"] == 4 and len(t.running()) == 5
    assert len(t.decisions(verb="move")) == 2


@pytest.mark.parametrize("nodes", list(permutations(("n1", "n2", "n3"))))
def test_who_moves_for_a_gang_does_not_depend_on_what_nodes_are_called(nodes):
    """All three fit on one node; no job is moved to a node that the gang takes next."""
    jobs = [
        f"{name} a {size} @{node}"
        for name, size, node in zip("xyz", ("g0.25", "g0.3", "g0.35"), nodes, strict=True)
    ]
    t = settled("n1:1 n2:1 n3:1", "a=3", *jobs, "gang a g0.85 x2")
    assert {d.workload for d in t.decisions(verb="move")} == {"x", "y"} and len(t.running()) == 4


@pytest.mark.parametrize("nodes", ["n1,n1,n2", "n2,n2,n1"])
@pytest.mark.parametrize("victims", ["least", "youngest"])
def test_of_a_gang_the_fewest_gpus_move(nodes, victims):
    t = Ticker(
        world("n1:3 n2:3", "a=6", f"gang a g1 x3 @{nodes}", "big a g3"), settings=Settings(victims=victims)
    )
    t.settle()
    assert t.running() == {"gang": 3, "big": 3}
    (move,) = t.decisions(verb="move")
    assert move.tasks == ("main-2",)


def test_moves_before_evictions():
    """b could reclaim a1, which is over quota; moving it has no loss."""
    t = settled("n1:2 n2:2", "a=0 b=3", "a1 a g1 @n1", "b1 b g1 @n2", "b2 b g2")
    assert t.running() == {"a1": 1, "b1": 1, "b2": 2} and not t.decisions(verb="evict")


def test_it_can_be_turned_off_and_bounded():
    four = ("n1:4 n2:4", "a=8", "x a g1 @n1", "y a g1 @n1", "v a g1 @n2", "w a g1 @n2", "big a g4")
    for most, moves in ((0, 0), (1, 0), (2, 2), (-1, 2)):
        t = Ticker(world(*four), settings=Settings(consolidation_victims=most))
        t.settle()
        assert len(t.decisions(verb="move")) == moves, most


def test_limits_are_looked_at_before_anybody_moves():
    t = settled("n1:2 n2:2", "a=1:max=2 b=2", "a1 a g1 @n1", "b1 b g1 @n2", "a2 a g2")
    assert t.rows("a2") == ["a2 Pending 0"] and not t.decisions()


def test_non_preemptible_over_quota_moves_nobody():
    t = settled("n1:2 n2:2", "a=1 b=2", "a1 a g1 @n1", "b1 b g1 @n2", "a2 a g2 np")
    assert t.rows("a2") == ["a2 Pending 0"] and not t.decisions()


def test_minimum_run_time_protects_from_moves():
    t = Ticker(
        world(
            "n1:2 n2:2",
            "a=2 b=2",
            "a1 a g1 @n1 ran=10",
            "b1 b g1 @n2 ran=10",
            "a2 a g2",
            pools="default:min=60",
        )
    )
    t.settle()
    assert t.rows("a2") == ["a2 Pending 0"]
    t.settle(wait=60_000)
    assert t.running() == {"a1": 1, "b1": 1, "a2": 2}


def test_an_elastic_job_is_moved_with_what_it_wants():
    t = settled("n1:3 n2:3", "a=6", "e a g2 elastic @n1", "x a g1 @n2", "big a g3")
    assert t.running() == {"e": 2, "x": 1, "big": 3}


def test_bonus_is_given_up_before_anybody_moves():
    t = settled("n1:2 n2:2", "a=4", "e a g1 elastic @n1*2", "x a g1 @n2", "y a g1")
    assert t.running() == {"e": 2, "x": 1, "y": 1} and not t.decisions(verb="move")
    t.submit("z a g1")
    t.settle()
    assert t.running() == {"e": 1, "x": 1, "y": 1, "z": 1} and not t.decisions(verb="move")


def test_cores_are_consolidated_too():
    t = settled("n1:1:cpu=4 n2:1:cpu=4", "a=2", "x a c2 @n1", "y a c2 @n2", "wide a g1 c4")
    assert t.running() == {"x": 0, "y": 0, "wide": 1}


def test_fewest_devices_is_a_bound():
    """Never more than an exhaustive search needs, and at most one fewer."""
    for seed in range(200):
        dice = random.Random(seed)
        sizes = (1000, 810, 650, 500, 470, 320, 230, 190, dice.randint(1, 1000))
        portions = [dice.choice(sizes) for _ in range(dice.randint(0, 8))]
        exact = _packed(sorted(portions, reverse=True), [])
        assert exact - 1 <= fewest_devices(portions) <= exact, portions


def _packed(rest, devices):
    """The fewest devices that hold these portions, by exhaustive search."""
    if not rest:
        return len(devices)
    first, *others = rest
    tried = [_packed(others, [*devices, first])]
    for at, used in enumerate(devices):
        if used + first <= 1000 and used not in devices[:at]:
            tried.append(_packed(others, [*devices[:at], used + first, *devices[at + 1 :]]))
    return min(tried)


def test_a_hunt_that_cannot_succeed_tries_nothing(monkeypatch):
    """40 nodes, each with a share that has no other place: trying them would spend search steps."""
    nodes = " ".join(f"n{at}:1" for at in range(40))
    jobs = [f"w{at} a g0.6 @n{at}" for at in range(40)]
    scene = world(nodes, "a=50", *jobs, "late a g1")
    spent = []

    def counted(policy, prices):
        effort = policy.grounds.effort
        before, found = effort.steps, search(policy, prices)
        spent.append((policy.action, before - effort.steps))
        return found

    monkeypatch.setattr("pliant.sched.cycle.search", counted)
    t = Ticker(scene)
    t.settle()
    assert not t.decisions(verb="move")
    assert {steps for action, steps in spent if action == "consolidate"} == {0}


@pytest.mark.parametrize(("small", "moves"), [("g0.5", 0), ("g0.4", 1)])
def test_what_stays_may_change_its_device_and_what_goes_needs_room(small, moves):
    """A share of 0.4 has room beside one of 0.6 on another node; one of 0.5 has none anywhere."""
    t = settled("n1:1 n2:1", "a=3", f"w1 a {small} @n1", "w2 a g0.6 @n2", "late a g1")
    assert len(t.decisions(verb="move")) == moves
    assert ("late" in {line.split()[0] for line in t.rows() if "Running" in line}) == bool(moves)
