"""Elastic tasks: wanted portions compete, bonus portions are given last and taken first."""

import itertools

import pytest

from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import NOW, world


@pytest.mark.parametrize(
    ("free", "words", "gpus"),
    [(1, "g1", 1), (2, "g1", 2), (3, "g1", 3), (3, "g1 double", 2), (4, "g1 double", 4), (3, "g2", 3),
     (1, "g2", 1), (1, "g4", 1), (3, "g4", 3), (3, "g4 double", 2), (4, "g4", 4)],
)  # fmt: skip
def test_takes_what_its_node_can_spare(free, words, gpus):
    t = settled(f"n1:{free}", "a=4", f"e a {words} elastic")
    assert t.rows() == [f"e Running {gpus} n1"] and t.attempts("e") == 1


def test_a_core_needs_one_gpu_whatever_was_asked():
    t = settled("n1:2", "a=4", "f a g2 np @n1", "e a g2 elastic")
    assert t.rows() == ["f Running 2 n1", "e Pending 0"]


def test_goes_where_most_of_its_request_fits():
    t = settled("n1:2 n2:2", "a=4", "f a g1 np @n1", "e a g2 elastic")
    assert t.rows("e") == ["e Running 2 n2"]


def test_packs_where_its_request_fits_equally():
    t = settled("n1:4 n2:2", "a=4", "e a g2 elastic", "plain a g4")
    assert t.rows() == ["e Running 2 n2", "plain Running 4 n1"]


def test_bonus_respects_limits():
    t = settled("n1:4", "a=1:max=2", "e a g1 elastic")
    assert t.rows() == ["e Running 2 n1"]


def test_bonus_may_go_over_quota():
    assert settled("n1:4", "a=1", "e a g1 elastic").rows() == ["e Running 4 n1"]


def test_bonus_is_given_only_when_nobody_waits_for_it():
    t = settled("n1:2", "a=2", "e a g1 elastic", "plain a g1 p25")
    assert t.rows() == ["e Running 1 n1", "plain Running 1 n1"]


def test_wanted_of_another_before_bonus():
    t = settled("n1:4", "a=4", "e1 a g1 elastic p90", "e2 a g3 elastic p25")
    assert t.rows() == ["e1 Running 1 n1", "e2 Running 3 n1"]


def test_bonus_goes_back_to_a_wanted_portion():
    t = settled("n1:4", "a=4", "e1 a g1 elastic p90")
    assert t.rows() == ["e1 Running 4 n1"]
    t.submit("e2 a g3 elastic p25")
    t.settle()
    assert t.rows() == ["e1 Running 1 n1", "e2 Running 3 n1"]


def test_gives_back_no_more_than_is_needed():
    t = settled("n1:4", "a=4", "e a g1 elastic")
    t.submit("f1 a g1 np")
    t.settle()
    assert t.rows() == ["e Running 3 n1", "f1 Running 1 n1"]
    t.submit("f2 a g1 p25")
    t.settle()
    assert t.rows() == ["e Running 2 n1", "f1 Running 1 n1", "f2 Running 1 n1"]


def test_what_it_asked_for_is_taken_by_halves_too_when_it_doubles():
    t = settled("n1:4", "a=0 b=4", "e a g4 elastic double @n1*4", "w b g1")
    assert [(d.gpu_before, d.gpu_after) for d in t.decisions("e")] == [(4000, 2000)]


def test_gives_back_by_halves_when_it_doubles():
    t = settled("n1:4", "a=4", "e a g1 elastic double")
    t.submit("f1 a g1 np")
    t.settle()
    assert t.rows() == ["e Running 2 n1", "f1 Running 1 n1"]


def test_bonus_is_given_back_down_to_the_request_even_if_half_were_less():
    t = settled("n1:5", "a=5", "e a g3 elastic double @n1*5", "f a g1 np")
    assert t.rows() == ["e Running 3 n1", "f Running 1 n1"]
    assert [(d.gpu_before, d.gpu_after) for d in t.decisions(verb="shrink")] == [(5000, 3000)]


def test_nothing_goes_back_for_what_would_still_not_fit():
    t = settled("n1:3", "a=8", "e a g1 elastic")
    t.submit("f a g3")
    t.settle()
    assert t.rows() == ["e Running 3 n1", "f Pending 0"] and not t.decisions(verb="shrink")


def test_bonus_never_claims_bonus():
    """Two elastic jobs on one node come to rest, whichever has more, and stay so."""
    t = settled("n1:4", "a=4", "e1 a g1 elastic @n1*3", "e2 a g1 elastic @n1*1")
    assert t.rows() == ["e1 Running 3 n1", "e2 Running 1 n1"]
    t.settle(wait=3_600_000)
    assert not t.decisions()


def test_bonus_does_not_move_anybody():
    """Room for growth could be made by moving b1; it is not."""
    t = settled("n1:2 n2:2", "a=4 b=4", "e a g1 elastic @n1", "b1 b g1 @n1", "b2 b g1 @n2")
    t.settle(wait=60_000)
    assert t.rows() == ["e Running 1 n1", "b1 Running 1 n1", "b2 Running 1 n2"]


def test_bonus_reclaims_from_nobody():
    t = settled("n1:4", "a=4 b=0", "e a g1 elastic @n1", "b1 b g3 @n1")
    assert t.rows() == ["e Running 1 n1", "b1 Running 3 n1"]


def test_wanted_reclaims_as_entitled():
    t = settled("n1:2", "a=2 b=0", "b1 b g1 @n1", "e a g2 elastic")
    assert t.rows() == ["b1 Pending 0", "e Running 2 n1"]


def test_wanted_preempts_lower_priority():
    t = settled("n1:2", "a=2", "low a g1 p25 @n1", "e a g2 elastic p80")
    assert t.rows() == ["low Pending 0", "e Running 2 n1"]


def test_a_victim_loses_wanted_before_core():
    t = settled("n1:2", "a=0 b=1", "e a g2 elastic @n1", "b1 b g1")
    assert t.rows() == ["e Running 1 n1", "b1 Running 1 n1"]


def test_a_victim_loses_its_core_when_it_must():
    t = settled("n1:2", "a=0 b=2", "e a g2 elastic @n1", "b1 b g2")
    assert t.rows() == ["e Pending 0", "b1 Running 2 n1"]


def test_shrinking_beats_evicting():
    """One GPU can come from a whole job or from an elastic one's surplus."""
    t = settled("n1:3", "a=0 b=1", "e a g2 elastic @n1", "plain a g1 @n1", "b1 b g1")
    assert t.rows() == ["e Running 1 n1", "plain Running 1 n1", "b1 Running 1 n1"]


def test_live_resizes_need_no_new_attempt():
    t = settled("n1:4", "a=4", "e a g1 elastic live")
    t.submit("f1 a g2 np")
    t.settle()
    assert t.rows() == ["e Running 2 n1", "f1 Running 2 n1"]
    t.delete("f1")
    t.settle(wait=60_000)
    assert t.rows() == ["e Running 4 n1"] and t.attempts("e") == 1


def _growths(t, name):
    """Times at which its task was stopped to grow by bonus."""
    return [
        plan_at
        for plan_at, kind in ((e.at, e.kind) for e in t.log if e.attempt.workload == name)
        if kind == "stop"
    ]


def test_growth_by_bonus_is_slowed_down_and_giving_back_is_not():
    t = Ticker(world("n1:6", "a=8", "e a g1 elastic @n1", *(f"f{i} a g1 np @n1" for i in range(5))))
    t.settle()
    begun = t.now
    for i in range(5):
        t.finish(f"f{i}")
        t.settle()
    assert t.rows("e") == ["e Running 2 n1"], "the first step at once, the next not before its time"
    t.settle(wait=600_000)
    assert t.rows("e") == ["e Running 6 n1"]
    stops = _growths(t, "e")
    assert stops[0] == begun
    gaps = [later - earlier for earlier, later in itertools.pairwise(stops)]
    assert gaps and all(gap >= 5_000 for gap in gaps), gaps
    now = t.now
    t.submit("back a g1 np")
    t.settle()
    assert t.running()["back"] == 1 and t.now - now < 5_000


def test_the_wait_doubles_with_each_growth():
    t = Ticker(world("n1:6", "a=8", "e a g1 elastic @n1", *(f"f{i} a g1 np @n1" for i in range(5))))
    t.settle()
    for i in range(5):
        t.finish(f"f{i}")
        plan = t.settle()
        if plan.wake is not None:
            t.settle(wait=plan.wake - t.now)
        assert t.rows("e") == [f"e Running {2 + i} n1"]
    stops = _growths(t, "e")
    gaps = [later - earlier for earlier, later in itertools.pairwise(stops)]
    assert len(gaps) == 4
    assert [gap >= 5_000 * 2**i for i, gap in enumerate(gaps)] == [True] * 4, gaps
    assert gaps[-1] < 300_000


def test_growth_to_the_request_is_not_slowed_down():
    t = Ticker(world("n1:4", "a=8", "e a g4 elastic @n1*1", *(f"f{i} a g1 np @n1" for i in range(3))))
    t.settle()
    begun = t.now
    for i in range(3):
        t.finish(f"f{i}")
        t.settle()
        assert t.rows("e") == [f"e Running {2 + i} n1"]
    assert t.now - begun < 5_000


def test_a_growth_that_waits_tells_when():
    t = Ticker(world("n1:3", "a=8", "e a g1 elastic @n1", "f0 a g1 np @n1", "f1 a g1 np @n1"))
    t.settle()
    t.finish("f0")
    t.settle()
    t.finish("f1")
    plan = t.settle()
    assert t.rows("e") == ["e Running 2 n1"]
    assert plan.wake is not None and t.now < plan.wake <= t.now + 10_000


def test_all_portions_are_taken_at_once():
    """Its core of two, and two more in the same cycle."""
    scene = world("n1:4", "a=0:w=0 b=4", *(f"a{i} a g1 @n1" for i in range(4)), "b1 b g1 x2-4")
    t = Ticker(scene)
    t.cycle()
    assert len(t.decisions(verb="evict")) == 4
    t.settle()
    assert t.running() == {"b1": 4}


def test_elastic_wants_tell_why_they_wait():
    t = settled("n1:2", "a=2", "f a g1 np @n1", "e a g2 elastic")
    assert t.rows("e") == ["e Running 1 n1"] and t.verdict("e").reason.code


def test_a_started_shrink_is_not_undone_when_its_cause_goes_away():
    """f ends while the elastic job restarts smaller: the job returns at full size, with one restart."""
    t = Ticker(world("n1:2", "a=2", "e a g1 elastic @n1*2"), stop=20_000)
    t.submit("f a g1 np")
    t.cycle()
    t.advance(1_000)
    t.delete("f")
    t.settle(wait=60_000)
    assert t.rows() == ["e Running 2 n1"] and t.attempts("e") == 2


def test_a_portion_that_fits_nowhere_refuses_none_of_another_kind():
    """A portion asked for after a start exists for a moment only; no other kind inherits its refusal."""
    count = 20
    there = [f"a{i} a g1 x1-2 type=a p90" for i in range(count)]  # their second tasks fit nowhere
    here = [f"b{i} a g1 x1-2 type=b" for i in range(count)]
    scene = world(f"n1:{count}:type=a n2:{2 * count}:type=b", f"a={4 * count}", *there, *here)
    started = {task.key for task in decide(scene.world(), NOW, Settings()).tasks}
    assert {key for key in started if key[0].startswith("b")} == {
        (f"b{i}", f"main-{task}") for i in range(count) for task in range(2)
    }
