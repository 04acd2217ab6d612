"""Gangs: the core starts together or not at all, and is lost together."""

from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world


def test_all_or_none():
    t = settled("n1:2", "a=2", "dist a g1 x3")
    assert t.rows() == ["dist Pending 0"]
    t = settled("n1:2 n2:1", "a=3", "dist a g1 x3")
    assert t.rows() == ["dist Running 3 n1+n2"]


def test_a_waiting_gang_blocks_nobody():
    t = settled("n1:2", "a=2", "dist a g1 x3", "one a g1")
    assert t.rows() == ["dist Pending 0", "one Running 1 n1"]


def test_tasks_that_need_whole_nodes():
    t = settled("n1:2 n2:3 n3:1", "a=6", "dist a g2 x2")
    assert t.rows() == ["dist Running 4 n1+n2"]
    t = settled("n1:3 n2:1 n3:1", "a=6", "dist a g2 x2")
    assert t.rows() == ["dist Pending 0"]


def test_master_and_workers():
    t = settled("n1:2", "a=2", "mpi a c1 x1 +worker g1 x2")
    assert t.rows() == ["mpi Running 2 n1"]
    assert t.attempts("mpi") == 3
    t = settled("n1:2", "a=2", "mpi a c1 x1 +worker g1 x3")
    assert t.rows() == ["mpi Pending 0"] and t.attempts("mpi") == 0


def test_groups_of_different_shape_find_their_nodes():
    """The small task must leave the big node to the big one."""
    t = settled("n1:2 n2:1", "a=3", "pair a g1 +big g2")
    assert t.rows() == ["pair Running 3 n1+n2"]
    t = settled("n1:2 n2:1", "a=3", "pair a g2 +small g1")
    assert t.rows() == ["pair Running 3 n1+n2"]


def test_surplus_is_added_one_by_one():
    t = settled("n1:3", "a=3", "dist a g1 x1-3")
    assert t.rows() == ["dist Running 3 n1"]
    t = settled("n1:4", "a=3", "f a g2 np @n1", "dist a g1 x1-3")
    assert t.rows("dist") == ["dist Running 2 n1"]


def test_bonus_tasks_use_what_is_idle():
    t = settled("n1:4", "a=1", "dist a g1 x1-2-4")
    assert t.rows() == ["dist Running 4 n1"]
    t.submit("late a g1 p25")
    t.settle()
    assert t.rows() == ["dist Running 3 n1", "late Running 1 n1"], "bonus goes back whatever the priority"
    t.submit("later a g2 p25")
    t.settle()
    assert t.rows() == ["dist Running 3 n1", "late Running 1 n1", "later Pending 0"], "one would not help it"


def test_surplus_growth_and_shrink_restart_nobody_else():
    t = settled("n1:3", "a=3", "dist a g1 x1-3")
    t.submit("high a g1 p90")
    t.settle()
    assert t.rows() == ["dist Running 2 n1", "high Running 1 n1"]
    assert t.attempts("dist") == 3, "the other tasks ran on"
    t.finish("high")
    t.settle()
    assert t.rows("dist") == ["dist Running 3 n1"] and t.attempts("dist") == 4


def test_workers_with_minimum_zero():
    """The master alone is the core; workers come and go."""
    t = settled("n1:2", "a=2 b=1", "el a c1 x1 +worker g1 x0-2")
    assert t.rows() == ["el Running 2 n1"]
    t.submit("b1 b g2")
    t.settle()
    assert t.rows() == ["el Running 2 n1", "b1 Pending 0"], "a is inside its quota"
    t.submit("b2 b g1 np")
    t.settle()
    assert t.rows("el", "b2") == ["el Running 2 n1", "b2 Pending 0"]


def test_minimum_zero_starts_without_a_gpu():
    t = settled("n1:1", "a=1", "f a g1 np @n1", "el a c1 x1 +worker g1 x0-2")
    assert t.rows() == ["f Running 1 n1", "el Running 0 n1"]
    t.finish("f")
    t.settle()
    assert t.rows("el") == ["el Running 1 n1"]


def test_a_gang_is_evicted_as_a_whole():
    t = settled("n1:2 n2:2", "a=0 b=1", "dist a g1 x4 @n1,n1,n2,n2", "b1 b g1")
    assert t.rows() == ["dist Pending 0", "b1 Running 1 n1"]


def test_an_elastic_gang_loses_surplus_first():
    t = settled("n1:2 n2:2", "a=0 b=1", "dist a g1 x2-4 @n1,n1,n2,n2", "b1 b g1")
    assert t.rows()[0].startswith("dist Running 3") and t.running()["b1"] == 1
    assert t.attempts("dist") == 4, "the others were left alone"


def test_the_gang_starts_when_the_last_of_its_places_is_free():
    t = Ticker(world("n1:1 n2:1", "a=0 b=2", "a1 a g1 @n1", "dist b g1 x2"), stop=30_000)
    t.cycle()
    t.advance(10_000)
    t.cycle()
    assert t.attempts("dist") == 0, "one of its two places is still held"
    t.settle()
    assert t.rows() == ["a1 Pending 0", "dist Running 2 n1+n2"]
    starts = [entry.at for entry in t.log if entry.kind == "start" and entry.attempt.workload == "dist"]
    assert len(starts) == 2 and len(set(starts)) == 1


def test_all_tasks_in_one_pool():
    t = settled("n1:1 n2:1:pool=fast n3:1:pool=fast", "a=3", "dist a g1 x2", pools="fast")
    assert t.rows() == ["dist Running 2 n2+n3"]
    t = settled("n1:1 n2:1:pool=fast", "a=3", "dist a g1 x2", pools="fast")
    assert t.rows() == ["dist Pending 0"]


def test_a_broken_gang_gives_up_its_remains_after_the_grace():
    """A node is lost for good: the surviving tasks wait a minute for the others, then become pending."""
    t = settled("n1:1 n2:1", "a=2", "dist a g1 x2")
    t.lose("n2")
    t.settle()
    assert t.show()["dist"][1] == 1, "inside the grace the survivor stays"
    t.settle(wait=59_000 - 2_000)
    assert t.show()["dist"][1] == 1
    t.settle(wait=5_000)
    assert t.rows() == ["dist Pending 0"]
    assert [d.action for d in t.decisions("dist", "evict")][-1] == "stale"
    t.find("n2")
    t.settle()
    assert t.rows() == ["dist Running 2 n1+n2"]


def test_a_broken_gang_is_mended_inside_the_grace():
    t = settled("n1:1 n2:1 n3:1", "a=2", "dist a g1 x2")
    assert t.rows() == ["dist Running 2 n1+n2"]
    t.lose("n2")
    t.settle()
    assert t.rows() == ["dist Running 2 n1+n3"] and t.attempts("dist") == 3


def test_negative_grace_keeps_the_remains_for_ever():
    t = Ticker(world("n1:1 n2:1", "a=2", "dist a g1 x2 @n1,n2"), settings=Settings(stale_grace=-1))
    t.lose("n2")
    t.settle(wait=3_600_000)
    assert t.show()["dist"][1] == 1
