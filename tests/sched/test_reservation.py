"""A large waiting gang reserves GPUs that come free; others use them only if they end in time."""

import pytest

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker
from tests.sched.worlds import NOW, world

MINUTE = 60_000
ON = Settings(reservation=4000)  # gangs of four GPUs and more


def played(nodes, projects, *jobs, settings=ON):
    t = Ticker(world(nodes, projects, *jobs), settings=settings)
    t.settle()
    return t


# Two nodes of two GPUs; x runs on n1 with a declared end in ten minutes; the gang needs all four.
BUSY = ["x a g2 np ran=60 lasts=660 @n1", "gang a g2 x2"]


def test_without_it_small_work_goes_first_for_ever():
    t = played("n1:2 n2:2", "a=9", *BUSY, "s a g1", settings=Settings())
    assert t.rows("gang", "s") == ["gang Pending 0", "s Running 1 n2"]


FILLS = [
    # the workload that would fill in, whether it may
    ("s a g1", False),  # no declared run time
    ("s a g1 lasts=600", True),
    ("s a g1 lasts=601", False),
    ("s a g2 lasts=300", True),
    ("s a g0.5 lasts=601", False),
    ("s a g0.5 lasts=600", True),
    ("s a g1 x1-2 lasts=600", True),
    ("s a c1", True),  # it needs no reserved GPU, and cores are left
]


@pytest.mark.parametrize(("job", "may"), FILLS)
def test_who_may_fill_in(job, may):
    t = played("n1:2 n2:2", "a=9", *BUSY, job)
    assert ("s" in t.running()) == may
    if not may:
        reason = t.verdict("s").reason
        assert (reason.code, reason.gang.id, reason.gpus) == ("reserved", "gang", 4000)
        assert reason.until == NOW + 10 * MINUTE


def test_it_starts_when_it_was_expected_to():
    t = played("n1:2 n2:2", "a=9", *BUSY, "s a g1", "f a g2 lasts=300")
    assert t.rows() == ["x Running 2 n1", "gang Pending 0", "s Pending 0", "f Running 2 n2"]
    t.advance(5 * MINUTE)
    t.finish("f")
    t.settle()
    assert t.rows("gang", "s") == ["gang Pending 0", "s Pending 0"]
    t.advance(4 * MINUTE)
    t.finish("x")
    t.settle()
    assert t.rows("gang", "s") == ["gang Running 4 n1+n2", "s Pending 0"]
    assert t.verdict("s").reason.code != "reserved"


def test_other_nodes_are_not_kept():
    t = played("n1:2 n2:2 n3:1", "a=9", *BUSY, "s a g1")
    assert t.rows("s") == ["s Running 1 n3"]


def test_nobody_knows_when_it_starts():
    """Running work has no declared end: nothing fills in, and GPUs that come free are kept."""
    t = played("n1:2 n2:2", "a=9", "x a g2 np @n1", "gang a g2 x2", "s a g1 lasts=1")
    assert t.rows("s") == ["s Pending 0"]
    reason = t.verdict("s").reason
    assert (reason.code, reason.until) == ("reserved", None)


def test_the_nodes_that_empty_first_are_kept():
    jobs = ["x a g2 np ran=60 lasts=660 @n1", "y a g2 np ran=60 lasts=360 @n2", "gang a g2 x2", "s a g2"]
    t = played("n1:2 n2:2 n3:2", "a=9", *jobs)
    assert t.rows("s") == ["s Pending 0"]
    assert t.verdict("s").reason.until == NOW + 5 * MINUTE
    assert "f" in played("n1:2 n2:2 n3:2", "a=9", *jobs[:3], "f a g2 lasts=299").running()


def test_who_overstays_is_not_counted_on():
    t = played("n1:2 n2:2", "a=9", "x a g2 np ran=700 lasts=660 @n1", "gang a g2 x2", "s a g1 lasts=1")
    assert t.verdict("s").reason.until is None


NOT_RESERVED = [
    ("n1:2 n2:2", "a=9", ["x a g2 np @n1", "gang a g1 x3"], "too small for the setting"),
    ("n1:2 n2:2", "a=1 b=9", ["x b g2 np @n1", "gang a g2 x2"], "more than its project is due"),
    ("n1:2 n2:2", "a=9:max=3", ["x a g2 np @n1", "gang a g2 x2"], "over its limit"),
    ("n1:2 n2:2", "a=9", ["x a g2 np @n1", "gang a g4 x1"], "never fits"),
    ("n1:2 n2:2", "a=9", ["x a g2 np @n1", "gang a g2 x2 np p20"], "its turn comes later"),
]


@pytest.mark.parametrize(("nodes", "projects", "jobs", "why"), NOT_RESERVED)
def test_what_is_not_reserved(nodes, projects, jobs, why):
    project = "b" if "b=" in projects else "a"
    assert "s" in played(nodes, projects, *jobs, f"s {project} g1").running()


def test_who_comes_before_it_in_order_uses_what_is_kept():
    t = played("n1:2 n2:2", "a=9", *BUSY, "top a g1 p90")
    assert t.rows("top") == ["top Running 1 n2"]


def test_reclaim_uses_what_is_kept_for_the_gang_itself():
    jobs = ["x b g1 @n1", "y b g1 p99 @n1", "gang a g2 x2", "s b g1"]
    t = played("n1:2 n2:2", "a=4 b=0", *jobs)
    assert t.rows() == ["x Pending 0", "y Pending 0", "gang Running 4 n1+n2", "s Pending 0"]


def test_bonus_is_not_lent_out_of_it():
    t = played("n1:2 n2:2", "a=9", *BUSY, "e a g1 elastic lasts=60")
    assert t.rows("e") == ["e Running 1 n2"]


def test_a_constant_world_rests_and_nothing_stays_behind():
    t = played("n1:2 n2:2", "a=9", *BUSY, "s a g1")
    assert t.cycle().empty
    assert all(not key[0].startswith("\0") for key in t.world.tasks)
    t.world.check()


def test_what_its_own_project_gives_back_by_then_does_not_count():
    """The gang fits into the project's quota, which is the whole cluster, only once x has ended."""
    t = played("n1:2 n2:2", "a=4", *BUSY, "s a g1")
    assert t.rows("gang", "s") == ["gang Pending 0", "s Pending 0"]
    assert t.verdict("s").reason.code == "reserved"
