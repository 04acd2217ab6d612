"""Parts of a GPU: portions and exact memory on shared devices."""

import pytest

from tests.sched.ticker import settled
from tests.sched.worlds import GIB


def _devices(t, name):
    return [share.gpu for task in t.scene.tasks_of(name) if task.claims for share in task.claims.shares]


def test_a_shared_device_before_a_new_one():
    t = settled("n1:2", "a=2", "h1 a g0.5", "h2 a g0.5", "h3 a g0.5")
    assert _devices(t, "h1") == _devices(t, "h2") == ["n1.0"] and _devices(t, "h3") == ["n1.1"]


def test_the_fullest_device_with_room():
    t = settled("n1:3", "a=3", "x a g0.3 @n1.0", "y a g0.6 @n1.1", "new a g0.4")
    assert _devices(t, "new") == ["n1.1"]
    t = settled("n1:3", "a=3", "x a g0.3 @n1.0", "y a g0.6 @n1.1", "new a g0.5")
    assert _devices(t, "new") == ["n1.0"]
    t = settled("n1:3", "a=3", "x a g0.3 @n1.0", "y a g0.6 @n1.1", "new a g0.8")
    assert _devices(t, "new") == ["n1.2"]


def test_a_node_with_a_shared_device_that_has_room_before_other_nodes():
    t = settled("n1:2 n2:2", "a=4", "full a g1 @n1", "half a g0.5 @n2", "new a g0.5")
    assert _devices(t, "new") == ["n2.0"]


def test_too_much_for_the_rest():
    t = settled("n1:1", "a=1", "h1 a g0.5 @n1", "h2 a g0.5 @n1", "six a g0.6")
    assert t.rows("six") == ["six Pending 0"]


def test_whole_jobs_need_whole_devices():
    t = settled("n1:2", "a=2", "h1 a g0.1 @n1", "pair a g2", "one a g1")
    assert t.rows() == ["h1 Running 0.1 n1", "pair Pending 0", "one Running 1 n1"]
    assert _devices(t, "one") == ["n1.1"]


def test_several_devices_of_a_fraction_each():
    t = settled("n1:2", "a=2", "duo a g0.5x2", "h a g0.5", "late a g0.5x2")
    assert t.rows() == ["duo Running 1 n1", "h Running 0.5 n1", "late Pending 0"]
    assert _devices(t, "duo") == ["n1.0", "n1.1"]


@pytest.mark.parametrize(("memory", "gpus"), [(16, 0.5), (32, 0.25), (24, 0.334)])
def test_memory_becomes_the_portion_of_the_device_it_lands_on(memory, gpus):
    t = settled(f"n1:1:mem={memory}", "a=1", "m a m8Gi")
    assert t.rows() == [f"m Running {gpus} n1"]
    (share,) = t.scene.tasks_of("m")[0].claims.shares
    assert share.memory == 8 * GIB


def test_memory_is_exact():
    """Three times 5 GB fit into 16 GiB; a fourth does not, and 1 GiB more is still there."""
    t = settled("n1:1", "a=1", *(f"m{i} a m5G" for i in range(4)), "small a m1Gi")
    assert t.running() == {"m0": 0.292, "m1": 0.292, "m2": 0.292, "small": 0.063}


def test_portion_and_memory_share_a_device():
    t = settled("n1:1", "a=1", "half a g0.5", "m8 a m8Gi", "m1 a m1Gi")
    assert t.rows() == ["half Running 0.5 n1", "m8 Running 0.5 n1", "m1 Pending 0"]


def test_portions_book_their_part_of_the_memory():
    t = settled("n1:1", "a=1", "third a g0.333")
    (share,) = t.scene.tasks_of("third")[0].claims.shares
    assert (share.portion, share.memory) == (333, 16 * GIB * 333 // 1000)


def test_more_memory_than_any_device_has():
    assert settled("n1:4", "a=4", "m a m17Gi").rows() == ["m Pending 0"]
    assert settled("n1:4 n2:1:mem=24", "a=4", "m a m17Gi").rows() == ["m Running 0.709 n2"]


def test_fractions_count_as_their_portion():
    t = settled("n1:2", "a=0.5", "f1 a g0.5 np", "f2 a g0.5 np", "f3 a g0.5")
    assert t.rows() == ["f1 Running 0.5 n1", "f2 Pending 0", "f3 Running 0.5 n1"]
    t = settled("n1:2", "a=0:max=0.6", "f1 a g0.5", "f2 a g0.5", "f3 a g0.1")
    assert t.rows() == ["f1 Running 0.5 n1", "f2 Pending 0", "f3 Running 0.1 n1"]


def test_memory_counts_as_its_portion():
    t = settled("n1:1", "a=0:max=0.5", "m1 a m8Gi", "m2 a m1Gi")
    assert t.rows() == ["m1 Running 0.5 n1", "m2 Pending 0"]


def test_reclaim_takes_one_sharer_if_one_is_enough():
    t = settled("n1:1", "a=0 b=1", "a1 a g0.5 @n1", "a2 a g0.5 @n1", "b1 b g0.5")
    assert t.rows() == ["a1 Running 0.5 n1", "a2 Pending 0", "b1 Running 0.5 n1"]


def test_reclaim_of_a_whole_device_takes_sharers_of_one_device():
    t = settled(
        "n1:2",
        "a=0 b=1",
        "a1 a g0.5 @n1.0",
        "a2 a g0.5 @n1.1",
        "a3 a g0.5 @n1.0",
        "a4 a g0.5 @n1.1",
        "b1 b g1",
    )
    assert t.running()["b1"] == 1
    gone = {decision.workload for decision in t.decisions(verb="evict")}
    assert gone in ({"a1", "a3"}, {"a2", "a4"})


def test_reclaim_prefers_the_device_with_fewer_sharers():
    t = settled(
        "n1:2",
        "a=0 b=1",
        "a1 a g0.3 @n1.0",
        "a2 a g0.3 @n1.0",
        "a3 a g0.3 @n1.0",
        "a4 a g0.9 @n1.1",
        "b1 b g1",
    )
    assert {decision.workload for decision in t.decisions(verb="evict")} == {"a4"}


def test_sharers_are_moved_together_to_free_a_device():
    t = settled("n1:2", "a=2", "h1 a g0.5 @n1.0", "h2 a g0.5 @n1.1", "one a g1")
    assert t.rows() == ["h1 Running 0.5 n1", "h2 Running 0.5 n1", "one Running 1 n1"]
    assert sorted((t.attempts("h1"), t.attempts("h2"))) == [1, 2]


def test_fractions_in_a_gang():
    t = settled("n1:1 n2:1", "a=2", "g a g0.4 x4", "late a g0.3")
    assert t.rows() == ["g Running 1.6 n1+n2", "late Pending 0"]
    assert settled("n1:1 n2:1", "a=2", "g a g0.4 x5").rows() == ["g Pending 0"]


def test_fractions_share_devices_in_a_spread_pool_too():
    t = settled("n1:1 n2:1", "a=2", "h1 a g0.3", "h2 a g0.3", "h3 a g0.5", pools="default:spread")
    assert [row.split()[-1] for row in t.rows()] == ["n1", "n1", "n2"]


def test_foreign_devices_are_not_shared():
    t = settled("n1:2:foreign=0", "a=2", "h a g0.5", "i a g0.6")
    assert t.rows() == ["h Running 0.5 n1", "i Pending 0"] and _devices(t, "h") == ["n1.1"]


def test_gpu_memory_on_a_device_on_which_it_keeps_the_limit():
    """A quarter of the large card, half of the small one: the limit allows a quarter."""
    t = settled("n1:1:mem=16 n2:1:mem=32", "a=1:max=0.25", "x a m8Gi")
    assert t.rows() == ["x Running 0.25 n2"]


ASKED = [
    # what is asked for, and how many milli-GPUs that counts as where 0.4 GPUs are the limit
    ("m8Gi", 500),
    ("m8Gix2", 1000),
    ("m8Gi x2", 1000),
    ("m4Gi +worker g0.5x2", 1250),
]


@pytest.mark.parametrize(("asks", "milli"), ASKED)
def test_memory_and_portions_of_several_devices_count_on_each(asks, milli):
    t = settled("n1:2:mem=16", "a=0:max=0.4", f"j a {asks}")
    assert (t.verdict("j").reason.code, t.verdict("j").reason.asked) == ("over-limit", milli)
