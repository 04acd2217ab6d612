"""Work in flight: GPUs being released, promised places, and orders not yet confirmed."""

import pytest

from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world


def _slow(*text, stop=60_000, **more):
    return Ticker(world(*text, **more), stop=stop)


def test_one_victim_for_one_need():
    t = _slow("n1:2", "a=0 b=1", "a1 a g1 @n1", "a2 a g1 @n1", "b1 b g1")
    for _ in range(10):
        t.cycle()
        t.advance(3_000)
    assert len(t.decisions(verb="evict")) == 1 and t.show()["a1"][0] == "Running"
    assert t.verdict("b1").reason.code == "waiting-for-release"


def test_what_is_releasing_is_promised_once():
    """Two GPUs come free and one is needed; the next workload gets the other, without another victim."""
    t = _slow("n1:2", "a=0 b=2", "a0 a g2 @n1", "b1 b g1")
    t.cycle()
    t.advance(1_000)
    t.submit("b2 b g1")
    t.cycle()
    claims = [share.gpu for name in ("b1", "b2") for share in t.scene.tasks_of(name)[0].claims.shares]
    assert sorted(claims) == ["n1.0", "n1.1"] and len(t.decisions(verb="evict")) == 1
    t.settle()
    assert t.running() == {"b1": 1, "b2": 1}


def test_a_stopping_job_is_room_enough():
    t = _slow("n1:2", "a=1 b=1", "gone a g1 ~n1", "a1 a g1 @n1", "b1 b g1")
    t.cycle()
    assert not t.decisions(verb="evict") and t.scene.tasks_of("b1")[0].claims
    t.settle()
    assert t.running() == {"a1": 1, "b1": 1}


def test_the_beneficiary_goes_and_the_victim_returns():
    """A sent stop is not revoked: the victim starts again once it has ended."""
    t = _slow("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1")
    t.cycle()
    t.advance(1_000)
    t.delete("b1")
    t.settle()
    assert t.rows() == ["a1 Running 1 n1"] and t.attempts("a1") == 2


def test_a_promise_is_kept_against_later_comers_of_equal_right():
    t = _slow("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1")
    t.cycle()
    t.advance(1_000)
    t.submit("b2 b g1")
    t.settle()
    assert t.rows() == ["a1 Pending 0", "b1 Running 1 n1", "b2 Pending 0"]


def test_a_promise_yields_to_higher_priority():
    """b1's promise is not started; b2 of the same project outranks it."""
    t = _slow("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1 p25")
    t.cycle()
    t.advance(1_000)
    t.submit("b2 b g1 p80")
    t.settle()
    assert t.rows() == ["a1 Pending 0", "b1 Pending 0", "b2 Running 1 n1"]
    assert t.attempts("b1") == 0


def test_a_shrink_while_restarting_changes_what_is_held_and_not_the_order():
    """e stops to grow to 3; before its end f wants one of them: e stops once, and attempt 2 has 2."""
    t = _slow("n1:3", "a=4", "e a g1 elastic @n1", "f0 a g2 np @n1")
    t.settle()
    t.finish("f0")
    t.cycle()
    assert [entry.kind for entry in t.log if entry.attempt.workload == "e"] == ["stop"]
    t.advance(10_000)
    t.submit("f a g1 np")
    t.settle()
    assert t.rows("e", "f") == ["e Running 2 n1", "f Running 1 n1"]
    assert [entry.kind for entry in t.log if entry.attempt.workload == "e"] == [
        "stop",
        "ended",
        "start",
        "started",
    ]


def test_room_that_came_while_restarting_is_taken_at_once():
    t = _slow("n1:3", "a=4", "e a g1 elastic @n1*2", "f0 a g1 np @n1")
    t.submit("f1 a g1 np")
    t.cycle()
    assert t.scene.tasks_of("e")[0].claims.gpu == 1000
    t.advance(10_000)
    t.finish("f0")
    t.settle()
    assert t.rows("e", "f1") == ["e Running 2 n1", "f1 Running 1 n1"] and t.attempts("e") == 2


def test_a_restart_is_one_stop():
    t = _slow("n1:2", "a=2", "e a g1 elastic @n1*2", "f a g1 np")
    for _ in range(5):
        t.cycle()
        t.advance(2_000)
    assert [entry.kind for entry in t.log if entry.attempt.workload == "e"] == ["stop"]


def test_suspended_while_stopping_for_a_resize():
    t = _slow("n1:2", "a=2", "e a g1 elastic @n1*2", "f a g1 np")
    t.cycle()
    t.suspend("e")
    t.settle()
    assert t.rows() == ["e Stopped 0", "f Running 1 n1"] and t.attempts("e") == 1
    t.resume("e")
    t.settle()
    assert t.rows("e") == ["e Running 1 n1"]


def test_deleted_while_ordered():
    t = Ticker(world("n1:1", "a=1", "x a g1", "y a g1"), start=5_000)
    t.cycle()
    t.delete("x")
    t.settle()
    assert t.rows() == ["y Running 1 n1"]


def test_resumed_before_its_stop_is_seen():
    t = _slow("n1:1", "a=1", "x a g1 @n1")
    t.suspend("x")
    t.cycle()
    t.advance(1_000)
    t.resume("x")
    t.settle()
    assert t.rows() == ["x Running 1 n1"] and t.attempts("x") == 2


def test_back_off():
    t = Ticker(world("n1:1", "a=1", "x a g1"))
    t.settle()
    t.fail("x")
    failed = t.now
    plan = t.settle()
    assert t.rows() == ["x Pending 0"] and t.verdict("x").reason.code == "back-off"
    assert plan.wake == failed + 10_000
    t.settle(wait=10_000)
    assert t.rows() == ["x Running 1 n1"] and t.now >= failed + 10_000


def test_back_off_blocks_nobody():
    t = settled("n1:1", "a=1", "x a g1 p90")
    t.fail("x")
    t.submit("y a g1 p50")
    t.settle()
    assert t.rows() == ["x Pending 0", "y Running 1 n1"]
    t.settle(wait=20_000)
    assert t.rows() == ["x Running 1 n1", "y Pending 0"], "its priority counts again"


def test_back_off_evicts_nobody():
    t = settled("n1:2", "a=0 b=1", "b1 b g1")
    t.fail("b1")
    t.submit("a1 a g2")
    t.settle()
    assert t.rows() == ["b1 Pending 0", "a1 Running 2 n1"]
    t.settle(wait=20_000)
    assert t.rows() == ["b1 Running 1 n1", "a1 Pending 0"]


def test_a_bonus_task_in_back_off_holds_nothing():
    t = settled("n1:2", "a=2", "dist a g1 x1-1-2")
    assert t.rows() == ["dist Running 2 n1"]
    t.fail("dist", index=1)
    t.settle()
    assert t.scene.tasks_of("dist")[1].claims is None, "its GPU is for others until its pause is over"
    t.settle(wait=20_000)
    assert t.rows() == ["dist Running 2 n1"]


def test_a_lost_node():
    t = settled("n1:1 n2:2", "a=3", "x a g2 @n2", "y a g1 @n1")
    t.lose("n2")
    t.settle()
    assert t.rows() == ["x Pending 0", "y Running 1 n1"]
    t.find("n2")
    t.settle()
    assert t.rows() == ["x Running 2 n2", "y Running 1 n1"] and t.attempts("x") == 2


def test_what_a_lost_node_ran_competes_again():
    t = settled("n1:1 n2:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1 @n2")
    t.lose("n2")
    t.settle()
    assert t.rows() == ["a1 Pending 0", "b1 Running 1 n1"]


def test_a_promise_on_a_lost_node_is_void():
    t = _slow("n1:1 n2:1", "a=0 b=1", "a1 a g1 @n1", "a2 a g1 @n2", "b1 b g1")
    t.cycle()
    claim = t.scene.tasks_of("b1")[0].claims
    t.lose(claim.node)
    t.settle()
    assert t.running() == {"b1": 1}
    assert t.show()["b1"][2] != claim.node


def test_a_node_that_vanishes():
    t = settled("n1:1 n2:1", "a=2", "x a g1 @n1", "y a g1 @n2")
    t.lose("n2")
    t.vanish("n2")
    t.settle()
    assert t.rows() == ["x Running 1 n1", "y Pending 0"]


def test_draining_moves_nobody_by_itself():
    t = settled("n1:1 n2:1", "a=2", "x a g1 @n1")
    t.drain("n1")
    t.settle(wait=60_000)
    assert t.rows() == ["x Running 1 n1"]


def test_a_promise_on_a_draining_node_is_given_elsewhere_or_kept():
    """Nothing new starts there: what was promised waits or finds another place."""
    t = _slow("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1")
    t.cycle()
    t.drain("n1")
    t.settle()
    assert t.show()["b1"][0] == "Pending"
    t.drain("n1", False)
    t.settle()
    assert t.rows("b1") == ["b1 Running 1 n1"]


def test_suspended_jobs_are_not_placed():
    t = Ticker(world("n1:1", "a=1", "x a g1"))
    t.suspend("x")
    t.settle()
    assert t.rows() == ["x Stopped 0"] and t.attempts("x") == 0


def test_starts_go_out_when_the_place_is_free():
    """The moment the victim's end is seen, not before and not later."""
    t = _slow("n1:1", "a=0 b=1", "a1 a g1 @n1", "b1 b g1", stop=7_000)
    t.settle()
    ended = next(entry.at for entry in t.log if entry.kind == "ended")
    start = next(entry.at for entry in t.log if entry.kind == "start")
    assert start == ended


@pytest.mark.parametrize("words", ["g1 elastic", "g1 elastic live"])
def test_growth_over_what_another_still_holds_waits(words):
    """What f0 still carries may be claimed, but nothing starts or resizes there before f0 ends."""
    t = _slow("n1:2", "a=2", f"e a {words} @n1*1", "f0 a g1 @n1")
    t.delete("f0")
    t.settle(wait=120_000)
    assert t.rows() == ["e Running 2 n1"]
    told = [e for e in t.log if e.attempt.workload == "f0" or e.kind in ("start", "resize")]
    kinds = [e.kind for e in told]
    assert kinds in (["stop", "ended", "resize"], ["stop", "ended", "start"])


def test_a_live_task_comes_onto_another_device_only_once_that_is_free():
    """j2 takes a device of j0 and j1's bonus devices; j1 gets another one only after j0 has left it."""
    t = _slow("n1:4", "a=4", "j0 a g0.5x2 @n1", "j1 a g1 elastic live", stop=5_000)
    t.settle()
    t.submit("j2 a g1 x1-3 p65")
    t.settle()
    assert t.running()["j1"] == 1 and t.running()["j2"] == 3


def test_what_waits_for_a_release_starts_where_there_is_room_before():
    """a1 takes long to stop; then x ends, and b1 starts in its place."""
    t = _slow("n1:1 n2:1", "a=0 b=2", "a1 a g1 @n1", "x b g1 @n2", "b1 b g1", stop=30_000)
    t.cycle()
    assert t.scene.tasks_of("b1")[0].claims.node == "n1" and t.show()["a1"][0] == "Stopping"
    t.finish("x")
    t.advance(1_000)
    t.cycle()
    assert t.scene.tasks_of("b1")[0].carries.node == "n2", "it starts now"
    (told,) = t.decisions("b1", "move")
    assert (told.reason.source, told.reason.target) == ("n1", "n2")
    t.settle(wait=60_000)
    assert t.rows("a1", "b1") == ["a1 Running 1 n1", "b1 Running 1 n2"] and t.attempts("b1") == 1


def test_who_has_no_place_at_all_goes_before_who_waits_for_one():
    t = _slow("n1:1 n2:1", "a=0 b=2", "a1 a g1 @n1", "x b g1 @n2", "b1 b g1", stop=30_000)
    t.cycle()
    t.submit("late b g1")
    t.finish("x")
    t.cycle()
    assert t.scene.tasks_of("late")[0].carries.node == "n2" and not t.decisions("b1", "move")
