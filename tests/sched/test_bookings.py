"""Bookings: the GPUs are free when a booking begins; work in the way moves, shrinks, or at last stops."""

from dataclasses import replace

import pytest

from pliant.model.booking import Stage
from tests.sched.calendars import Calendar
from tests.sched.ticker import Ticker
from tests.sched.worlds import NOW, booking, world

MINUTE = 60_000


def played(nodes, projects, *jobs, bookings, wait=0):
    t = Ticker(world(nodes, projects, *jobs, bookings=bookings), judged=False)
    t.settle(wait)
    return t


# A node of four GPUs, two of which are booked for b from the tenth to the twentieth minute.
LATER = "vip b 600-1200 n1*2"

BEFORE = [
    # what is submitted, GPUs that run before the booking begins
    (["s a g4"], ["s Running 4 n1"]),  # preemptible work may use all of it until then
    (["s a g2 np"], ["s Running 2 n1"]),  # two are not booked
    (["s a g3 np"], ["s Pending 0"]),
    (["s a g3 np lasts=600"], ["s Running 3 n1"]),  # it has ended by then
    (["s a g3 np lasts=601"], ["s Pending 0"]),
    (["s a g2 np", "u a g1 np"], ["s Running 2 n1", "u Pending 0"]),
    (["s a g2 np", "u a g2"], ["s Running 2 n1", "u Running 2 n1"]),
    (["s b g4 np"], ["s Running 4 n1"]),  # its own
    (["s a g2 np", "u b g1 np", "v a g1 np"], ["s Running 2 n1", "u Running 1 n1", "v Pending 0"]),
    (["s a g3 semi"], ["s Pending 0"]),  # its core may not be taken
    (["s a g0.5 np", "u a g0.5 np", "v a g1 np", "w a g0.5 np"],
     ["s Running 0.5 n1", "u Running 0.5 n1", "v Running 1 n1", "w Pending 0"]),
]  # fmt: skip


@pytest.mark.parametrize(("jobs", "shown"), BEFORE)
def test_who_may_use_it_before_it_begins(jobs, shown):
    assert played("n1:4", "a=4 b=4", *jobs, bookings=LATER).rows() == shown


def test_why_it_waits_before_it_begins():
    reason = played("n1:4", "a=4 b=4", "s a g3 np lasts=900", bookings=LATER).verdict("s").reason
    assert (reason.code, reason.gpus, reason.project.id, reason.begun) == ("booked", 2000, "b", False)
    assert reason.text(NOW) == (
        "Needs 3 GPUs; the booking of 2 GPUs on n1 for project b begins in 10m, and the maximum runtime of "
        "this non-preemptible job is 15m. Submit it with --max-runtime 10m or less to start before."
    )


ACTIVE = "vip b 0-1200 n1*2"

DURING = [
    (["s a g4"], ["s Pending 0"]),
    (["s a g2", "u a g1"], ["s Running 2 n1", "u Pending 0"]),
    (["s a g2", "u b g2"], ["s Running 2 n1", "u Running 2 n1"]),
    (["s b g4"], ["s Running 4 n1"]),
    (["s b g1", "u a g2", "v a g1"], ["s Running 1 n1", "u Running 2 n1", "v Pending 0"]),
    (["s a g2 x2 c1"], ["s Pending 0"]),
    (["s a g1 c40"], ["s Pending 0"]),  # half of its 64 cores go with the two GPUs
    (["s a g1 c32"], ["s Running 1 n1"]),
    (["s a elastic g4"], ["s Running 2 n1"]),
]


@pytest.mark.parametrize(("jobs", "shown"), DURING)
def test_who_may_use_it_once_it_has_begun(jobs, shown):
    assert played("n1:4", "a=4 b=4", *jobs, bookings=ACTIVE).rows() == shown


def test_why_it_waits_once_it_has_begun():
    t = played("n1:4", "a=4 b=4", "s a g4", bookings=ACTIVE)
    text = t.verdict("s").reason.text(t.now)
    assert text == "Needs 4 GPUs; 2 GPUs are booked on n1 for project b (20m left)."


BEGINS = [
    # nodes, what runs, what runs once the booking has begun
    ("n1:4", ["s a g1 @n1", "u a g1 @n1"], ["s Running 1 n1", "u Running 1 n1"]),  # nothing is in the way
    ("n1:4 n2:2", ["s a g4 @n1"], ["s Pending 0"]),  # it has no other place
    ("n1:4 n2:4", ["s a g4 @n1"], ["s Running 4 n2"]),
    ("n1:4", ["s a elastic g4 @n1*4"], ["s Running 2 n1"]),  # it shrinks
    ("n1:4", ["s a elastic g2 @n1*4", "u a g1"], ["s Running 1 n1", "u Running 1 n1"]),
    ("n1:4 n2:1", ["s a g2 p60 @n1", "u a g1 p60 @n1", "v a g1 @n1"],
     ["s Running 2 n1", "u Running 1 n2", "v Pending 0"]),  # the more valuable one has the place elsewhere
    ("n1:4 n2:1", ["s a g2 @n1", "u a g1 @n1"], ["s Running 2 n1", "u Running 1 n2"]),
    ("n1:4", ["s a g2 p60 @n1", "u a g2 @n1"], ["s Running 2 n1", "u Pending 0"]),
    ("n1:4", ["s a g2 bg @n1", "u a g2 p10 @n1"], ["s Pending 0", "u Running 2 n1"]),
    ("n1:4", ["s b g2 @n1", "u a g2 @n1"], ["s Running 2 n1", "u Running 2 n1"]),  # its own work is in it
    ("n1:4", ["s a g1 x2-4 @n1,n1,n1,n1"], ["s Running 2 n1"]),  # tasks above its core
    ("n1:4 n2:2", ["s a g1 x4 @n1,n1,n1,n1"], ["s Running 4 n1+n2"]),  # only as much of a gang as necessary
    ("n1:4 n2:1", ["s a g1 x4 @n1,n1,n1,n1"], ["s Pending 0"]),
    ("n1:4", ["s a g3 np @n1"], ["s Running 3 n1"]),  # non-preemptible work that ran before keeps its place
    ("n1:4", ["s a g3 np lasts=60 @n1"], ["s Pending 0"]),  # it has overstayed
    ("n1:4", ["s a g0.5 @n1", "u a g0.5 @n1", "v a g2 @n1"],
     ["s Running 0.5 n1", "u Running 0.5 n1", "v Pending 0"]),
    ("n1:4", ["v a g2 @n1", "s a g0.5 @n1", "u a g0.5 @n1"],
     ["v Running 2 n1", "s Pending 0", "u Pending 0"]),  # both are on one device
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "jobs", "shown"), BEGINS)
def test_what_becomes_of_what_is_in_the_way(nodes, jobs, shown):
    t = played(nodes, "a=9 b=4", *jobs, bookings="vip b 60-1200 n1*2", wait=30_000)
    assert not t.decisions(verb="evict") and not t.decisions(verb="move")
    t.settle(60_000)
    assert t.rows() == shown


def test_maintenance_empties_a_node():
    t = played("n1:4 n2:2", "a=9", "s a g2 @n1", "u a g1 @n1", "c a g0 c1 @n1", bookings="fix - 60-120 n1")
    t.settle(60_000)
    assert t.rows() == ["s Running 2 n2", "u Pending 0", "c Running 0 n2"]
    assert t.verdict("u").reason.text(t.now) == "Needs 1 GPU; n1 is under maintenance (59s left)."
    t.settle(60_000)
    assert t.rows("u") == ["u Running 1 n1"]
    (move,) = t.decisions("s", "move")
    assert move.reason.text(NOW + MINUTE) == "Moved from n1 to n2: n1 is under maintenance for 1m."


def test_what_is_released_is_free_for_whom_it_is_booked():
    t = played("n1:4", "a=9 b=0", "s a g4 @n1", bookings="vip b 60-1200 n1*2")
    t.submit("v b g2")
    t.settle(60_000)
    assert t.rows() == ["s Pending 0", "v Running 2 n1"]


def test_it_is_not_taken_back_by_who_is_below_its_quota():
    """b is over its quota with the booked GPUs: a, which is below its own, takes none of them."""
    t = played("n1:4", "a=4 b=0", "v b g1", "w b g1", "x b g1", bookings=ACTIVE)
    assert t.rows() == ["v Running 1 n1", "w Running 1 n1", "x Running 1 n1"]
    t.submit("s a g1", "u a g1", "y a g1")
    t.settle()
    assert t.split() == {"a": 2, "b": 2}


def test_it_is_free_again_after_its_end():
    t = played("n1:4", "a=4 b=4", "s a g4", bookings="vip b 0-60 n1*2")
    assert t.rows() == ["s Pending 0"]
    t.settle(61_000)
    assert t.rows() == ["s Running 4 n1"]


def test_a_clock_that_is_set_back_does_not_end_what_has_begun():
    t = played("n1:4", "a=4 b=4", bookings="vip b 60-120 n1*2")
    t.change(replace(t.scene.bookings["vip"], stage=Stage.ACTIVE))  # as the loop records it
    t.submit("s a g4")
    t.settle()
    assert t.rows() == ["s Pending 0"]
    t.change(replace(t.scene.bookings["vip"], stage=Stage.ENDED))
    t.settle()
    assert t.rows() == ["s Running 4 n1"]


def test_of_a_project_that_is_gone_nothing_is_kept():
    assert played("n1:4", "a=4", "s a g4", bookings=ACTIVE).rows() == ["s Running 4 n1"]


def test_a_node_that_goes_during_a_booking():
    t = played("n1:4 n2:4", "a=8 b=4", "s a g4 @n2", bookings="vip b 0-1200 n1*2 n2*2")
    t.settle()
    t.lose("n2")
    t.vanish("n2")
    t.submit("u a g2")
    t.settle()
    assert t.split()["a"] == 2  # what is left of n1
    assert booking("vip b 0-1200 n1*2").gpus == 2


def test_two_bookings_of_one_node():
    t = played("n1:4", "a=4 b=4 c=4", "s a g1", "u a g1", bookings="v b 0-1200 n1*2;w c 0-600 n1*1")
    assert sorted(t.running().values()) == [1]
    t.submit("x b g2", "y c g1")
    t.settle()
    assert t.split() == {"a": 1, "b": 2, "c": 1}
    t.settle(601_000)
    assert t.split() == {"a": 1, "b": 2, "c": 1}


def test_beside_a_booking_others_take_what_they_are_due():
    """Two GPUs are kept for b; a holds the others beyond its quota: c reclaims two of those."""
    held = [f"s{at} a g1" for at in range(4)]
    t = played("n1:6", "a=0 b=2 c=2", *held, bookings=ACTIVE)
    assert t.split() == {"a": 4, "b": 0, "c": 0}
    t.submit("v c g2")
    t.settle()
    assert t.split() == {"a": 2, "b": 0, "c": 2}


def test_what_fills_a_booking_is_left_alone_and_the_rest_is_taken():
    """b's jobs are the youngest and would go first, but they fill the booking: both of a's go."""
    t = played("n1:4", "a=0 b=0 c=2", "s a g1", "t a g1", "u b g1", "v b g1", bookings=ACTIVE)
    t.submit("w c g2")
    t.settle()
    assert t.split() == {"a": 0, "b": 2, "c": 2}


def test_what_could_stay_where_it_was_is_not_restarted():
    """Stopping u is enough; stopping the smaller s is not."""
    t = played("n1:5", "a=9 b=4", "s a g1 x1-2 @n1,n1", "u a g3 @n1", bookings="vip b 60-1200 n1*3")
    t.settle(60_000)
    assert t.rows() == ["s Running 2 n1", "u Pending 0"]
    assert not t.decisions("s")


FEW, ALL, BLOCK = range(100), range(100, 1_100), 100


@pytest.mark.parametrize("seed", FEW)
def test_random_calendars(seed):
    Calendar(seed).play(25)


@pytest.mark.long
@pytest.mark.parametrize("first", ALL[::BLOCK])
def test_a_thousand_random_calendars(first):
    played = [Calendar(seed) for seed in range(first, first + BLOCK)]
    for calendar in played:
        calendar.play(40)
    print(
        f"{len(played)} calendars: {sum(it.booked for it in played)} bookings, "
        f"{sum(it.refused for it in played)} refused, {sum(it.moved for it in played)} moves, "
        f"{sum(it.evicted for it in played)} stopped"
    )
