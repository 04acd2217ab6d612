"""Preemption: higher priority inside one project."""

import pytest

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world


def test_higher_priority_takes_from_lower():
    t = settled("n1:1", "a=1", "low a g1 p50 @n1", "high a g1 p80")
    assert t.rows() == ["low Pending 0", "high Running 1 n1"]
    (decision,) = t.decisions(verb="evict")
    assert decision.action == "preempt" and decision.reason.code == "preempted"


def test_equal_priority_takes_nothing():
    t = settled("n1:1", "a=1", "first a g1 p50 @n1", "second a g1 p50")
    assert t.rows() == ["first Running 1 n1", "second Pending 0"]


def test_other_projects_are_left_alone():
    t = settled("n1:2", "a=1 b=1", "b1 b g1 p25 @n1", "a1 a g1 p25 @n1", "a2 a g1 p90")
    assert t.rows() == ["b1 Running 1 n1", "a1 Pending 0", "a2 Running 1 n1"]


def test_the_lowest_then_the_youngest_goes():
    t = settled("n1:3", "a=3", "x a g1 p40 @n1", "y a g1 p25 @n1", "z a g1 p25 @n1", "high a g1 p80")
    assert {d.workload for d in t.decisions(verb="evict")} == {"z"}


def test_the_non_preemptible_is_safe_from_any_priority():
    t = settled("n1:1", "a=1", "np a g1 np p25 @n1", "high a g1 p99")
    assert t.rows() == ["np Running 1 n1", "high Pending 0"]


def test_a_non_preemptible_job_preempts_inside_quota_only():
    t = settled(
        "n1:2", "a=1", "low1 a g1 p25 @n1", "low2 a g1 p25 @n1", "build1 a g1 np p100", "build2 a g1 np p100"
    )
    assert t.rows() == ["low1 Running 1 n1", "low2 Pending 0", "build1 Running 1 n1", "build2 Pending 0"]


def test_even_inside_quota():
    t = settled("n1:2", "a=2", "low a g2 p25 @n1", "high a g1 p80")
    assert t.rows() == ["low Pending 0", "high Running 1 n1"]


def test_surplus_goes_first():
    t = settled("n1:3", "a=3", "wide a g1 x1-3 p25 @n1,n1,n1", "high a g1 p80")
    assert t.rows() == ["wide Running 2 n1", "high Running 1 n1"]
    t = settled("n1:3", "a=3", "e a g3 elastic p25 @n1", "high a g2 p80")
    assert t.rows() == ["e Running 1 n1", "high Running 2 n1"]


def test_bonus_of_others_and_lower_priority_together():
    """One GPU is a's bonus and b's low job holds two: neither is enough alone."""
    t = settled("n1:4", "a=4 b=2", "e a g1 elastic @n1*2", "low b g2 p25 @n1", "high b g3 p99")
    assert t.rows() == ["e Running 1 n1", "low Pending 0", "high Running 3 n1"]


def test_a_small_job_in_quota_is_no_door_for_a_large_one_beyond_it():
    """Each project's small job is in quota; its large one has higher priority and would exceed the quota."""
    t = settled("n1:2", "a=1 b=1", "b2 b g2 p80 @n1", "a1 a g1", "a2 a g2 p80", "b1 b g1")
    assert t.running() == {"a1": 1, "b1": 1}


def test_nor_one_beyond_the_share_of_its_department():
    """The project's quota is larger than its department's: others would reclaim what exceeds the latter."""
    queues = "d0/=1 d1/=1 d0/a=2 d1/b=2"
    t = settled("n1:2", queues, "b2 b g2 p80 @n1", "a1 a g1", "a2 a g2 p80", "b1 b g1")
    assert t.running() == {"a1": 1, "b1": 1}


def test_a_surplus_task_that_must_go_runs_on_where_there_is_room():
    """high may use only its node; the other node has a free GPU."""
    t = settled("n1:2:type=x n2:1", "a=3", "low a g1 x1-2 p25 @n1", "high a g1 p80 type=x")
    assert t.running() == {"low": 2, "high": 1} and not t.decisions(verb="evict")


@pytest.mark.parametrize(("most", "served"), [(-1, True), (1, True), (0, False)])
def test_who_stands_in_the_way_is_moved_aside(most, served):
    """Each node has one task that may be taken and one of another project, inside its quota."""
    jobs = ("a1 a g1 @n1", "b1 b g1 @n1", "a2 a g1 @n2", "b2 b g1 @n2", "a3 a g2 p80")
    t = Ticker(world("n1:2 n2:2", "a=2 b=2", *jobs), settings=Settings(consolidation_victims=most))
    t.settle()
    assert {"b1", "b2"} <= t.running().keys() and ("a3" in t.running()) == served


def test_who_stands_in_the_way_is_not_moved_within_its_minimum_run_time():
    jobs = ("a1 a g1 @n1", "b1 b g1 ran=30 @n1", "a2 a g1 @n2", "b2 b g1 ran=30 @n2", "a3 a g2 p80")
    t = settled("n1:2 n2:2", "a=2 b=2", *jobs, pools="default:min=120")
    assert t.running().keys() == {"a1", "a2", "b1", "b2"}
    t.settle(wait=120_000)
    assert {"a3", "b1", "b2"} <= t.running().keys()


def test_no_preemption_beyond_the_fair_share():
    """With high, a would have 2 of 3, but its quota is 1 and b, below its own quota, asks for more."""
    jobs = ("low a g1 p25 @n1", "b1 b g1 @n1", "b2 b g2", "high a g2 p80")
    t = Ticker(world("n1:3", "a=1 b=2", *jobs))
    t.cycle()
    assert not t.decisions(verb="evict")


def test_weight_0_preempts_into_what_nobody_is_due():
    """high takes low's GPU and the idle one, which no project is due."""
    assert settled("n1:2", "a=1:w=0", "low a g1 p25 @n1", "high a g2 p80").running() == {"high": 2}


def test_equal_priority_is_not_taken_from_where_a_lower_one_is_of_no_use():
    t = settled("n1:2 n2:1", "a=3", "same a g2 @n1", "low a g1 p25 @n2", "j a g2")
    assert t.running() == {"same": 2, "low": 1}


def test_a_gang_goes_as_a_whole():
    t = settled("n1:1 n2:1", "a=2", "pair a g1 x2 p25 @n1,n2", "high a g1 p80")
    assert t.rows()[0] == "pair Pending 0" and t.running() == {"high": 1}


def test_moving_is_better():
    t = settled("n1:2 n2:2", "a=4", "x a g1 p25 @n1", "y a g1 p25 @n2", "high a g2 p80")
    assert t.running() == {"x": 1, "y": 1, "high": 2}


def test_reclaim_from_others_comes_before_preemption():
    """a is below its quota: b's surplus pays, not a's own low job."""
    t = settled("n1:2", "a=2 b=0", "low a g1 p25 @n1", "b1 b g1 @n1", "high a g1 p80")
    assert t.running() == {"low": 1, "high": 1}


def test_nobody_goes_for_what_would_still_not_fit():
    t = settled("n1:3", "a=3", "np a g1 np @n1", "low a g2 p25 @n1", "high a g3 p80")
    assert t.rows() == ["np Running 1 n1", "low Running 2 n1", "high Pending 0"]


def test_no_more_than_needed():
    t = settled("n1:4", "a=4", *(f"l{i} a g1 p25 @n1" for i in range(4)), "high a g2 p80")
    assert {d.workload for d in t.decisions(verb="evict")} == {"l2", "l3"}


def test_minimum_run_time():
    t = settled("n1:1", "a=1", "low a g1 p25 @n1 ran=10", "high a g1 p80", pools="default:min=60")
    assert t.rows() == ["low Running 1 n1", "high Pending 0"]
    t.settle(wait=60_000)
    assert t.rows() == ["low Pending 0", "high Running 1 n1"]


def test_nobody_waits_for_an_equally_large_one_of_lower_priority():
    """low would go before mid, but is protected for now; mid is as large and may go at once."""
    jobs = ("low a g1 p10 @n1 ran=10", "mid a g1 p20 @n2 ran=100", "high a g1 p80")
    t = settled("n1:1 n2:1", "a=2", *jobs, pools="default:min=60")
    assert t.running() == {"low": 1, "high": 1}


def test_a_preempted_job_does_not_take_its_turn_from_others():
    t = settled("n1:1", "a=1", "low a g1 p25 @n1", "mid a g1 p50", "high a g1 p80")
    assert t.running() == {"high": 1}
    t.finish("high")
    t.settle()
    assert t.running() == {"mid": 1}
    assert t.attempts("mid") == 1, "it never started only to be stopped"


@pytest.mark.parametrize(
    ("running", "pending", "expected"),
    [
        ("j a c1 p80 +w g1 x0-1 q20", "k a g1 p50", {"k": 1, "j": 0}),
        ("j a c1 p10 +w g1 x0-1 q90", "k a g1 p50", {"j": 1}),
        ("j a g1 p50", "k a c1 p10 +w g1 x0-1 q90", {"k": 1}),
        ("j a g1 p50", "k a g1 x1 q90 p10", {"k": 1}),
        ("j a g1 x1 q90 p10", "k a g1 p50", {"j": 1}),
    ],
)
def test_a_group_s_own_priority_counts(running, pending, expected):
    t = settled("n1:1:cpu=8", "a=1", running)
    t.submit(pending)
    t.settle()
    assert t.running() == expected


def test_groups_get_portions_by_their_own_priority():
    t = settled("n1:1", "a=1", "j a c1 +slow g1 x0-1 +quick g1 x0-1 q80")
    assert [task.name for task in t.scene.tasks_of("j") if task.claims] == ["main-0", "quick-0"]


@pytest.mark.parametrize("queues", ["b=3 c=2", "d0/=3 d1/=2 d0/b=3 d1/c=4"])
def test_what_is_cheapest_may_not_be_enough_for_the_queue(queues):
    """The cheapest device has too little of c's own work: c would then exceed its fair share."""
    t = settled(
        "n1:2 n2:2", queues,
        "one c g1 @n1.0", "e b g4 elastic @n1*1", "s c g0.2 @n2.0", "m b g0.75 @n2.0", "t c g0.2 @n2.1",
        "high c g1 p80 np",
    )  # fmt: skip
    assert t.running() == {"e": 1, "s": 0.2, "m": 0.75, "t": 0.2, "high": 1}


def test_who_need_not_go_in_the_end_stays():
    """For the first portion above the limit two small jobs would go; then a large one replaces them."""
    t = settled("n1:4 n2:4", "a=1:max=5", "x a g0.5 @n1.0", "y a g0.5 @n1.0", "z a g3 @n2", "w a g1 x1-3 p99")
    assert t.rows() == ["x Running 0.5 n1", "y Running 0.5 n1", "z Pending 0", "w Running 3 n1+n2"]
    assert {d.workload for d in t.decisions(verb="evict")} == {"z"} and t.attempts("x") == 1


def test_who_got_its_place_in_this_very_cycle_goes_before_one_that_runs():
    """y is the oldest, so it would go last; but taking back what it was just given costs nothing."""
    t = settled("n1:3", "a=9", "y a g1", "x1 a g1 @n1", "x2 a g1 @n1", "w a g2 p90")
    assert t.rows("y", "x1", "x2") == ["y Pending 0", "x1 Running 1 n1", "x2 Pending 0"]


def test_of_those_on_one_device_nobody_goes_without_need():
    """In eviction order all three would go, largest first y and x; z and y suffice and lose less."""
    jobs = ("z a g0.2 p10 @n1.0", "x a g0.3 p20 @n1.0", "y a g0.5 p30 @n1.0", "w a g0.7 p80")
    t = Ticker(world("n1:1", "a=1", *jobs), settings=Settings(refine=False))
    t.settle()
    assert t.running() == {"x": 0.3, "w": 0.7} and t.attempts("x") == 1


def test_of_a_node_with_free_devices_the_victim_goes_that_frees_most_for_its_price():
    """Two GPUs are free, two more are needed: one workload with two goes, not two with one each."""
    jobs = ("kept a g4 np @n1", "b a g1 @n1", "c a g1 @n1", "big a g2 @n1", "w a g4 p90")
    t = Ticker(world("n1:10", "a=10", *jobs), settings=Settings(refine=False))
    t.settle()
    assert t.running() == {"kept": 4, "b": 1, "c": 1, "w": 4}


def test_what_is_given_meanwhile_makes_its_own_queue_no_earlier_to_lose():
    """a was further above its due than b before w came; placing w's first task does not change that."""
    jobs = ["low b g1 p25 @n1", "big b g2 @n0", "e a g1 x1-1-2 p65 @n1,n1", "w b g1 x3 p80"]
    t = settled("n0:2 n1:4", "a=2 b=1", *jobs)
    assert t.rows("low", "big", "w") == ["low Pending 0", "big Running 2 n0", "w Running 3 n1"]


def test_where_one_that_must_move_has_no_other_place_another_moves():
    """w needs one job of a evicted and one of b moved. v1 and m1 cost less, but no node has 0.6 for m1."""
    t = settled(
        "n1:2 n2:1 n3:1", "a=2 b=3",
        "v1 a g0.25 p25 @n1.0", "m1 b g0.6 @n1.0", "v2 a g0.4 p25 @n1.1", "m2 b g0.5 @n1.1",
        "f b g0.5 np @n2", "g b g1 np @n3", "w a g0.8 p80",
    )  # fmt: skip
    assert t.running()["w"] == 0.8 and t.rows("v2") == ["v2 Pending 0"]
    assert [d.workload for d in t.decisions(verb="move")] == ["m2"]


def test_on_one_node_another_moves_where_the_first_has_no_other_place():
    """w needs 3 of n1's 4: both of a's and one of b's. m1 would go first, but only n1 is of its type."""
    t = settled(
        "n1:4:type=b n2:1", "a=4 b=2",
        "m2 b g1 @n1", "m1 b g1 type=b @n1", "v1 a g1 p25 @n1", "v2 a g1 p25 @n1", "w a g3 p80",
    )  # fmt: skip
    assert t.rows("m1", "m2", "w") == ["m2 Running 1 n2", "m1 Running 1 n1", "w Running 3 n1"]


def test_of_many_victims_each_gets_back_its_place_if_there_is_room():
    """On each node the cheapest two are too small; beside the new task there is room for one victim."""
    nodes = range(9)
    jobs = [
        line
        for i in nodes
        for line in (f"u{i} a g0 c1 p10 @n{i}", f"t{i} a g0 c2 p15 @n{i}", f"s{i} a g0 c5 p20 @n{i}")
    ]
    t = settled(" ".join(f"n{i}:1:cpu=8" for i in nodes), "a=9", *jobs, "high a g0 c6 x9 p80")
    evicted = {d.workload for d in t.decisions(verb="evict")}
    assert evicted == {f"{kind}{i}" for i in nodes for kind in "us"}, "the more valuable of the two stays"


def test_where_its_own_queue_must_give_first_the_least_moves_aside():
    """c must lose three jobs for w on either node. On n1 two GPUs would move, on n2 half of one."""
    t = settled(
        "n1:4 n2:4", "a=2 b=2 c=3",
        "v1 c g1 p25 @n2", "v2 c g1 p25 @n2", "s c g1 @n2", "m c g0.5 @n2",
        "v3 c g1 p25 @n1", "o b g1 @n1", "v4 c g1 p25 @n1", "x a g1 @n1", "w c g3",
    )  # fmt: skip
    assert t.rows("w") == ["w Running 3 n2"] and [d.workload for d in t.decisions(verb="move")] == ["m"]
