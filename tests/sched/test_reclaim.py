"""Reclaim: a project's GPUs above its due go to projects below theirs."""

import pytest

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, world


def test_what_waits_in_the_others_quota_is_left_its_place():
    """a1, above a's quota, would take big's place, low, in b's quota, would take a1's, and big low's."""
    jobs = ("a0 a g0.7 np @n1.0", "big b g0.7 p80 @n2.0", "low b g0.5", "a1 a g0.6")
    t = settled("n1:1 n2:1", "a=1 b=0.5:w=0", *jobs)
    assert t.running() == {"a0": 0.7, "big": 0.7} and not t.decisions(verb="evict")


def test_only_from_projects_above_their_quota():
    t = settled("n1:2", "a=2 b=2", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g1")
    assert t.rows("b1") == ["b1 Pending 0"], "a is inside its quota, though the quotas exceed the machine"
    t = settled("n1:3", "a=2 b=1 c=0", "a1 a g2 @n1", "c1 c g1 @n1", "b1 b g1")
    assert t.running() == {"a1": 2, "b1": 1}


def test_only_for_projects_within_their_fair_share():
    t = settled("n1:4", "a=2 b=2", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g2 @n1", "b2 b g1")
    assert t.rows("b2") == ["b2 Pending 0"]


def test_over_quota_is_shared_too():
    """No project has quota; b reclaims its fair half from a."""
    t = settled("n1:4", "a=0 b=0", *(f"a{i} a g1 @n1" for i in range(4)), *(f"b{i} b g1" for i in range(4)))
    assert t.split() == {"a": 2, "b": 2} and {"a0", "a1"} <= set(t.running())


@pytest.mark.parametrize(
    ("running", "pending", "victims"),
    [
        (["old a g1 @n1", "young a g1 @n1"], "b1 b g1", {"young"}),
        (["low a g1 p25 @n1", "high a g1 p90 @n1"], "b1 b g1", {"low"}),
        (["small a g1 @n1", "large a g3 @n1"], "b1 b g1", {"small"}),
        (["one a g1 @n1", "two a g2 @n1", "uno a g1 @n1"], "b1 b g2", {"two"}),
        (["pair a g1 x2 @n1,n1", "one a g1 @n1"], "b1 b g1", {"one"}),
        (["e a g2 elastic @n1", "one a g1 @n1"], "b1 b g1", {"e"}),
        (["np a g1 np @n1", "one a g1 @n1"], "b1 b g1", {"one"}),
    ],
    ids=[
        "youngest",
        "lowest priority",
        "fewest GPUs",
        "fewest workloads",
        "no gang",
        "surplus first",
        "preemptible",
    ],
)
def test_who_loses(running, pending, victims):
    size = sum(
        int(word[1]) * (2 if "x2" in job else 1) for job in running for word in job.split() if word[0] == "g"
    )
    quota = 1 if "np" in running[0] else 0
    t = settled(f"n1:{size}", f"a={quota} b=2", *running, pending)
    assert "b1" in t.running()
    assert {
        decision.workload for decision in t.decisions() if decision.verb in ("evict", "shrink")
    } == victims


def test_a_victim_that_the_next_one_makes_needless_stays():
    """One GPU could come from small, the other only from pair; pair alone gives both."""
    t = settled("n1:2 n2:1", "a=0 b=2", "small a g1 @n1", "pair a g1 x2 @n1,n2", "b1 b g1 x2")
    assert t.running() == {"small": 1, "b1": 2}
    assert t.attempts("small") == 1


def test_a_portion_that_the_next_victim_makes_needless_stays():
    t = settled("n1:2 n2:3", "a=0 b=3", "e a g2 elastic @n1", "big a g3 @n2", "gang b g1 x3")
    assert t.rows() == ["e Running 2 n1", "big Pending 0", "gang Running 3 n2"]


def test_what_is_told_of_victims_is_in_the_order_in_which_it_was_rightful():
    """b keeps half a GPU: e's bonus goes first, then small, then e's core, so small is named before e."""
    t = settled("n1:4", "a=4 b=0.5", "e b g1 elastic live", "small b g0.2")
    t.submit("gang a g2 x2")
    told = [(d.workload, d.gpu_before) for d in t.cycle().decisions if d.beneficiary]
    assert told == [("small", 200), ("e", 3000)]


def test_nobody_is_moved_who_is_not_in_the_way():
    """The department is at its limit: GPUs have to go; j0 has none and stays where it is."""
    t = settled(
        "n1:3:cpu=2 n2:2:type=a n3:3:type=a",
        "d0/=3:max=7 d0/a=0 d0/b=2 d0/c=2",
        "j0 a c2 @n1",
        "j1 a g1 x3 @n2,n2,n1",
        "j2 c g1 x3 type=a @n3,n3,n3",
        "j3 c g1 elastic live p65 @n1",
        "j5 b m3Gi type=a",
    )
    assert t.attempts("j0") == 1 and t.running()["j5"] == 0.188


def test_over_quota_goes_in_quota_stays():
    """a2 and a1 together have 3 of 2: one GPU has to go, and a2 can stay."""
    t = settled("n1:2 n2:2", "a=2 b=2", "a1 a g1 @n2", "a2 a g2 @n1", "b1 b g1 @n2", "b2 b g1")
    assert t.running() == {"a2": 2, "b1": 1, "b2": 1}


def test_priority_protects_from_nobody_else():
    t = settled("n1:1", "a=0 b=1", "a1 a g1 p90 @n1", "b1 b g1 p25")
    assert t.running() == {"b1": 1}


def test_the_non_preemptible_is_safe():
    t = settled("n1:2", "a=1 b=2", "a1 a g1 np @n1", "a2 a g1 @n1", "b1 b g2")
    assert t.rows() == ["a1 Running 1 n1", "a2 Running 1 n1", "b1 Pending 0"]


def test_the_most_over_loses_first():
    t = settled(
        "n1:6",
        "a=1 b=1 c=1",
        *(f"a{i} a g1 @n1" for i in range(4)),
        *(f"b{i} b g1 @n1" for i in range(2)),
        "c0 c g1",
        "c1 c g1",
    )
    assert t.split() == {"a": 2, "b": 2, "c": 2}


def test_the_order_between_siblings_is_kept():
    """b may take up to its fair half, but not for a workload that would lift it above a."""
    t = settled("n1:6", "a=0 b=0", *(f"a{i} a g1 @n1" for i in range(6)), "big b g4", "small b g3")
    assert t.rows("big", "small") == ["big Pending 0", "small Running 3 n1"]


def test_the_order_between_departments_is_kept():
    """a's quota would allow it, but its department would have twice its due and b's department less."""
    jobs = ("b1 b g2 p25 @n1", "b2 b g3 @n1", "a1 a g2")
    assert settled("n1:5", "d1/=1 d2/=3 d1/a=2 d2/b=3", *jobs).rows("a1") == ["a1 Pending 0"]
    assert settled("n1:5", "d1/=2 d2/=3 d1/a=2 d2/b=3", *jobs).rows("a1") == ["a1 Running 2 n1"]


def test_departments():
    """a and b are in d1, which has two more than it deserves; c's department has nothing."""
    t = settled(
        "n1:4",
        "d1/=2 d2/=2 d1/a=1 d1/b=1 d2/c=2",
        "a1 a g2 @n1",
        "b1 b g1 @n1",
        "b2 b g1 @n1",
        "c1 c g1",
        "c2 c g1",
    )
    assert t.running() == {"b1": 1, "b2": 1, "c1": 1, "c2": 1}, "b is left with its quota, so a1 has to go"


def test_inside_a_department_the_rest_is_safe():
    t = settled(
        "n1:4", "d1/=2 d2/=2 d1/a=0 d1/b=2 d2/c=2", "a1 a g2 @n1", "c1 c g2 @n1", "b1 b g1", "b2 b g1"
    )
    assert t.running() == {"c1": 2, "b1": 1, "b2": 1}


def test_a_department_is_not_robbed_for_a_project_over_it():
    """b has quota, its department has none left; d2 is inside its own."""
    t = settled("n1:4", "d1/=2 d2/=2 d1/a=2 d1/b=2 d2/c=2", "a1 a g2 np @n1", "c1 c g2 @n1", "b1 b g1")
    assert t.rows() == ["a1 Running 2 n1", "c1 Running 2 n1", "b1 Pending 0"]


def test_pools_are_apart():
    """b has quota in the fast pool only and no claim to a's over-quota use in the default pool."""
    t = settled(
        "n1:1 n2:1:pool=fast", "a=0+fast=1 b=0+fast=1", "a1 a g1 @n1", "a2 a g1 @n2", "b1 b g1", pools="fast"
    )
    assert t.rows() == ["a1 Running 1 n1", "a2 Running 1 n2", "b1 Pending 0"]


def test_only_where_it_helps():
    """a1 is over quota too, but on a node that b1 may not use."""
    t = settled("n1:1:type=x n2:1:type=y", "a=0 b=1", "a0 a g1 @n2", "a1 a g1 @n1", "b1 b g1 type=y")
    assert t.rows() == ["a0 Pending 0", "a1 Running 1 n1", "b1 Running 1 n2"]


def test_a_victim_that_fits_elsewhere_is_moved():
    t = settled("n1:2 n2:1", "a=0 b=2", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g2")
    assert t.running()["b1"] == 2 and len(t.running()) == 2
    assert len(t.decisions(verb="evict")) == 1, "one of the two finds room on n2"


@pytest.mark.parametrize(
    ("spare", "rows"),
    [("n2:1", ["e Running 1 n3", "f Running 1 n2"]), ("n2:1 n4:1", ["e Running 2 n3+n4", "f Running 1 n2"])],
    ids=["a core goes before a surplus task", "both"],
)
def test_what_fits_elsewhere_is_kept_surplus_tasks_too(spare, rows):
    jobs = ("e a g1 x1-2 @n3,n1", "k c g1 @n3", "f a g1 @n1", "b1 b g2")
    t = Ticker(world(f"n1:2 {spare} n3:2", "a=1 b=2 c=1", *jobs), settings=Settings(consolidation_victims=0))
    verbs = [d.verb for d in t.cycle().decisions if d.workload == "e"]
    assert verbs == ["move" if "+" in rows[0] else "shrink"]
    t.settle()
    assert t.rows("e", "f") == rows


def test_gangs_reclaim_across_nodes():
    t = settled(
        "n1:2 n2:2", "a=0 b=4", *(f"a{i} a g1 @n{1 + i % 2}" for i in range(4)), "gang b g2 x2", "late b g1"
    )
    assert t.running() == {"gang": 4}


def test_a_gang_that_would_not_fit_evicts_nobody():
    t = settled(
        "n1:2 n2:2", "a=1 b=4", "np a g1 np @n1", *(f"a{i} a g1 @n2" for i in range(2)), "gang b g2 x2"
    )
    assert t.running() == {"np": 1, "a0": 1, "a1": 1} and not t.decisions()


def test_victims_come_back_when_there_is_room():
    t = settled("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1")
    assert t.running() == {"b1": 1}
    t.finish("b1")
    t.settle()
    assert t.running() == {"a1": 1} and t.attempts("a1") == 2


def test_minimum_run_time_protects_the_core_only():
    t = settled(
        "n1:3",
        "a=0 b=3",
        "e a g3 elastic @n1 ran=10",
        "b1 b g1",
        "b2 b g1",
        "b3 b g1",
        pools="default:min=60",
    )
    assert t.rows("e") == ["e Running 1 n1"] and t.split() == {"a": 1, "b": 2}


def test_minimum_run_time_of_the_pool():
    """Protected in the fast pool, not in the default one."""
    t = settled(
        "n1:1 n2:1:pool=fast",
        "a=0+fast=0 b=1+fast=1",
        "a1 a g1 @n1 ran=10",
        "a2 a g1 @n2 ran=10",
        "b1 b g1 pool=default",
        "b2 b g1 pool=fast",
        pools="fast:min=60",
    )
    assert t.rows() == ["a1 Pending 0", "a2 Running 1 n2", "b1 Running 1 n1", "b2 Pending 0"]
    t.settle(wait=60_000)
    assert t.rows("a2", "b2") == ["a2 Pending 0", "b2 Running 1 n2"]


def test_whoever_has_had_its_time_first_goes():
    """a2 is younger, but a1's protection ends 40 s earlier: a1 goes then."""
    t = settled(
        "n1:2", "a=0 b=1", "a1 a g1 @n1 ran=50", "a2 a g1 @n1 ran=10", "b1 b g1", pools="default:min=60"
    )
    assert t.rows() == ["a1 Running 1 n1", "a2 Running 1 n1", "b1 Pending 0"]
    assert t.plans[-1].wake == NOW + 10_000
    t.settle(wait=10_000)
    assert t.rows() == ["a1 Pending 0", "a2 Running 1 n1", "b1 Running 1 n1"]


def test_equal_splits_do_not_swing():
    t = settled("n1:3", "a=0 b=0", *(f"{p}{i} {p} g1" for p in "ab" for i in range(3)))
    assert sorted(t.split().values()) == [1, 2]
    plans = len(t.plans)
    t.settle(wait=3_600_000)
    assert all(plan.empty for plan in t.plans[plans:])


def test_what_the_quota_would_take_straight_back_is_not_taken():
    """Without b2 and b1 b would be below its quota, and the waiting b2 could reclaim a2's place."""
    b = ("b0 b m12Gi @n2.1", "b1 b g1 @n1.0", "b2 b m12Gi @n1.1")
    t = settled("n1:2:mem=80 n2:2", "a=2 b=1", "a1 a g1 np @n2.0", *b, "a2 a g2")
    assert t.running() == {"a1": 1, "a2": 2, "b1": 1}
    assert [d.workload for d in t.decisions() if d.verb == "evict"] == ["b0", "b2"]


def test_a_bonus_on_a_draining_node_is_no_reason_to_take_what_comes_straight_back():
    """a has 4 of 3, but one is e's bonus: not counting it, a1's loss would leave a below its quota."""
    running = ("e a g1 elastic @n2*2", "a1 a g1 type=y @n1", "a2 a g1 @n3", "b1 b g1 @n3")
    t = settled("n1:1:type=y n2:2:drain n3:2 n4:2", "a=3 b=1", *running, "b2 b g1 type=y")
    assert t.rows("b2") == ["b2 Pending 0"] and t.split() == {"a": 4, "b": 1}


def test_who_has_its_quota_gives_its_bonus_and_nothing_else():
    """Without e's bonus b holds just its quota, so only the bonus may be taken."""
    t = settled("n1:4", "b=3 c=3:rank=200", "d b g2 elastic @n1*2", "e b g1 elastic p65 @n1*2", "w c g1 x2")
    assert t.running() == {"d": 2, "e": 2}


def test_what_would_come_back_in_two_steps_is_not_taken():
    """Without hi, big and lo, wide runs, for which hi was moved; hi preempts wide, and b's quota has room for
    lo again."""
    b = ("hi b m12Gi p65 @n2.1", "big b g1 @n1.0", "lo b m12Gi @n1.1", "wide b g1")
    t = settled("n1:2:mem=80 n2:2", "a=2 b=1", "a1 a g1 np @n2.0", *b, "a2 a g2")
    assert t.running() == {"a1": 1, "hi": 0.15, "big": 1, "lo": 0.15, "wide": 1}


def test_departments_that_are_due_nothing_do_not_take_from_one_another():
    """b and c have quota, their departments none: the project that has the last GPU keeps it."""
    t = settled(
        "n1:2",
        "d0/=0 d1/=0 d2/=1 d0/c=2 d1/b=2 d2/a=1",
        "a1 a g1 np @n1",
        "a2 a g1 x2",
        "c1 c g1 @n1",
        "b1 b g1",
    )
    assert t.running() == {"a1": 1, "c1": 1}


def test_own_bonus_does_not_count_against_what_is_due():
    """b runs on 1 of 3 and has 1 as bonus; with b2 it is at its quota, so a's over-quota use gives way."""
    t = settled(
        "n1:2:type=x n2:2",
        "a=0:w=1 b=3:w=0",
        "a1 a g2 @n1",
        "b1 b g1 elastic @n2*2",
        "b2 b g2 type=x",
    )
    assert t.rows("a1", "b2") == ["a1 Pending 0", "b2 Running 2 n1"]


def test_what_finds_its_place_again_counts_as_well():
    """With c1 stopped d would be below its share and could take from e; but c1 would start again at once."""
    queues = "d/=3:w=1 e/=1:w=1 d/b=4:w=0 d/c=1:w=0 e/a=3:w=0"
    t = settled("n1:4", queues, "c1 c g1 @n1", "a1 a g2 @n1", "c2 c g0.6 @n1", "b1 b g2 np p100")
    assert t.rows("a1", "b1") == ["a1 Running 2 n1", "b1 Pending 0"] and not t.decisions()


def test_weight_0_has_no_claim_to_what_nobody_is_due():
    """No project is due the third GPU: the one that has it keeps it, though the older project asks for it."""
    t = settled("n1:3", "b=1:w=0 a=1:w=0", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g1 @n1", "b2 b g1")
    assert t.running() == {"a1": 1, "a2": 1, "b1": 1}


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ("a=0:w=1 b=0:w=0", {"a1": 1, "b1": 1}),  # weight 0 has no due beyond its quota
        ("a=0:w=1 b=0:w=0:rank=200", {"b1": 1, "b2": 1}),  # a lower rank takes nothing from a higher one ...
        ("a=1:w=1 b=0:w=0:rank=200", {"a1": 1, "b1": 1}),  # ... except for its quota
        ("a=0:w=1 b=1:w=1:rank=25", {"a1": 1, "b1": 1}),
    ],
)
def test_weight_0_and_rank(queues, expected):
    assert settled("n1:2", queues, "b1 b g1 @n1", "b2 b g1 @n1", "a1 a g1").running() == expected


@pytest.mark.parametrize(
    ("ranks", "victim"),
    [(("", ":rank=25"), "c1"), ((":rank=25", ""), "b3"), (("", ""), "b3")],
)
def test_the_department_s_rank_comes_before_its_projects_excess(ranks, victim):
    """b is further above its due than c, but work in the department of the lower rank goes first."""
    b, c = ranks
    t = settled(
        "n1:4", f"x/=1 y/=0:w=0{b} z/=0:w=0{c} x/a=1 y/b=0 z/c=0",
        "b1 b g1 @n1", "b2 b g1 @n1", "b3 b g1 @n1", "c1 c g1 @n1", "a1 a g1",
    )  # fmt: skip
    assert {d.workload for d in t.decisions(verb="evict")} == {victim}


def test_a_limit_stops_reclaim():
    t = settled("n1:2", "a=0 b=2:max=1", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g1", "b2 b g1")
    assert t.split() == {"a": 1, "b": 1}


def test_a_non_preemptible_job_reclaims_inside_quota_only():
    t = settled("n1:2", "a=0 b=1", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g1 np", "b2 b g1 np")
    assert t.rows() == ["a1 Running 1 n1", "a2 Pending 0", "b1 Running 1 n1", "b2 Pending 0"]


def test_what_was_reclaimed_is_told():
    t = settled("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1")
    (decision,) = t.decisions(verb="evict")
    numbers = dict(decision.reason.numbers)
    assert decision.reason.code == "reclaimed" and numbers, decision


def test_reclaim_waits_for_the_stop():
    t = Ticker(world("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1"), stop=30_000)
    t.cycle()
    assert t.attempts("b1") == 0 and t.show()["a1"][0] == "Stopping"
    t.settle()
    assert t.rows() == ["a1 Pending 0", "b1 Running 1 n1"]


def test_who_is_cheapest_is_not_in_the_way_of_who_is_enough():
    """a is half a GPU above its quota: once its small job is gone, its large one is protected."""
    t = settled(
        "n1:4", "a=3 b=2", "x a g0.5 p65 @n1.0", "y b g0.5 @n1.0", "z a g3 p65 @n1.1.2.3", "w b g0.5 x2"
    )
    assert t.running() == {"x": 0.5, "y": 0.5, "w": 1}


def test_what_this_very_cycle_gave_makes_nobody_above_its_due():
    """b's new job gets the last GPU; without it b has just its quota, so b loses nothing to a's pair."""
    scene = world(
        "n1:3 n2:3:mem=24", "a=4 b=3",
        "x b g0.5 @n1.0", "y b g0.5 @n1.0", "z a g0.5 @n1.1", "m a m12Gi p80 @n1.2", "np b g2 p99 np @n2",
        "pair a g1 x2", "new b g1",
    )  # fmt: skip
    assert {d.workload for d in Ticker(scene).cycle().decisions} == {"new"}


def test_a_bonus_makes_nobodys_due_smaller():
    """If e's bonus counted as asked for, a's due would fall below its use: e and big took turns."""
    t = settled("n1:2 n2:2 n3:1", "a=1 d=3:w=2", "part a m3Gi @n3", "pair d g1 x2 @n1,n1", "big d g2")
    t.submit("e a g1 elastic live")
    t.settle()
    assert t.rows()[-2:] == ["big Pending 0", "e Running 2 n2"]


def test_one_that_loses_more_than_is_asked_for_is_weighed_against_several():
    """Evicting big alone would lose 2 GPUs for 1. If half goes first, two may give a portion: 1.5 in all."""
    t = settled(
        "n0:2 n1:4", "a=2 b=1",
        "big b g2 @n0", "half b g0.5 @n1", "x a g1 @n1", "y a g0.5 p25 @n1", "two b g1 x1-2 @n1,n1",
        "w a g0.5x2 p80",
    )  # fmt: skip
    assert t.running() == {"big": 2, "half": 0.5, "x": 1, "y": 0.5, "two": 1, "w": 1}


def test_who_has_lost_something_is_compared_anew():
    """b and c have four GPUs each: the second loss falls on the one that has more after the first."""
    jobs = [f"{project}{number} {project} g1 @n1" for project in "bc" for number in range(4)]
    t = Ticker(world("n1:8", "a=2 b=1 c=1", *jobs, "first a g1", "second a g1"))
    t.cycle()
    assert {d.workload for d in t.decisions(verb="evict")} == {"b3", "c3"}


def test_a_small_victim_that_is_soon_free_is_waited_for():
    """y may be evicted now and has 4 GPUs; x has one, and its minimum run time ends in 50 s."""
    t = settled("n1:5", "a=1 b=0", "y b g4 @n1", "x b g1 ran=10 @n1", "w a g1", pools="default:min=60")
    assert t.verdict("w").reason.code == "min-runtime"
    t.settle(wait=60_000)
    assert t.rows() == ["y Running 4 n1", "x Pending 0", "w Running 1 n1"]
