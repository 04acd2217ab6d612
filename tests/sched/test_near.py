"""Work bound to one topology domain stays in it when it moves, grows or starts early."""

from dataclasses import replace

import pytest

from pliant.model.topology import Within
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import world

ROOM = "n1:2:zone=z:rack=a n2:2:zone=z:rack=a n3:2:zone=z:rack=b n4:2:zone=z:rack=b"


def where(t: Ticker) -> dict[str, str]:
    """The nodes of the tasks of j that have one."""
    claims = {key[1]: t.world.claim_of(key) for key in t.world.keys_of("j")}
    return {name: claim.node for name, claim in claims.items() if claim is not None}


LIES = [
    # nodes, jobs, rows of `j`
    (ROOM, ["j a g2 x2 within=rack"], "j Running 4 n1+n2"),
    (ROOM, ["x a g1 np @n1", "j a g2 x2 within=rack"], "j Running 4 n3+n4"),
    (ROOM, ["x a g1 np @n1", "y a g1 np @n3", "j a g2 x2 within=rack"], "j Pending 0"),
    (ROOM, ["x a g1 np @n1", "y a g1 np @n3", "j a g2 x2 near=rack"], "j Running 4 n2+n4"),
    (ROOM, ["x a g1 np @n1", "j a g2 x2 near=rack"], "j Running 4 n3+n4"),
    (ROOM, ["x a g1 np @n1", "j a g1 x2 near=rack"], "j Running 2 n1+n2"),  # the fullest that holds all
    (  # no rack holds all: the emptiest first, so that it uses two racks
        f"{ROOM} n5:2:zone=z:rack=c n6:2:zone=z:rack=c",
        ["x a g1 np @n1", "j a g2 x3 near=rack"],
        "j Running 6 n3+n5+n6",
    ),
    (ROOM, ["j a g1 x1-4 within=rack @n3"], "j Running 4 n3+n4"),
    (  # one that grows by moving stays in the rack of the others
        ROOM,
        ["j a g2 elastic within=rack @n1*1 +worker g1 @n2", "x a g1 np @n1", "f a g1 np @n2"],
        "j Running 2 n1+n2",
    ),
    (  # alone, all of it may go to another rack
        ROOM,
        ["x a g1 np @n1", "f a g2 np @n2", "j a g2 elastic within=rack @n1*1"],
        "j Running 2 n3",
    ),
]


@pytest.mark.parametrize(("nodes", "jobs", "row"), LIES)
def test_where_it_lies(nodes, jobs, row):
    assert settled(nodes, "a=99", *jobs).rows("j") == [row]


def test_a_move_keeps_the_others_rack():
    """w needs a whole node: a move keeps x in one rack; where that is impossible, w waits."""
    jobs = ["x a g1 x2 within=rack @n1,n2", "y a g1 np @n3", "z a g1 np @n4", "w a g2"]
    assert settled(ROOM, "a=99", *jobs).rows("x", "w") in (
        ["x Running 2 n2", "w Running 2 n1"],
        ["x Running 2 n1", "w Running 2 n2"],
    )
    jobs = ["x a g1 x2 within=rack @n1,n2", "f a g1 np @n1", "y a g1 np @n3", "w a g2"]
    assert settled(ROOM, "a=99", *jobs).rows("x", "w") == ["x Running 2 n1+n2", "w Running 2 n4"]
    jobs = ["x a g1 x2 within=rack @n1,n2", "f a g1 np @n1", "y a g1 np @n3", "z a g1 np @n4", "w a g2"]
    assert settled(ROOM, "a=99", *jobs).rows("x", "w") == ["x Running 2 n1+n2", "w Pending 0"]


@pytest.mark.parametrize("near", ["", "near=zone", "near=rack", "within=zone"])
def test_room_is_taken_for_each_part_where_it_may_lie(near):
    """The cheapest three nodes are in three racks: the workers get the two of rack a, main one of b."""
    victims = [f"v{node} b g2 p{at}0 @n{node}" for at, node in enumerate("135246", 1)]
    nodes = f"{ROOM} n5:2:zone=z:rack=c n6:2:zone=z:rack=c"
    t = settled(nodes, "a=6 b=2", *victims, f"j a g2 {near} +worker g2 x2 within=rack")
    assert {d.workload for d in t.decisions(verb="evict") if d.action == "reclaim"} == {"v1", "v2", "v3"}
    assert where(t) == {"main-0": "n3", "worker-0": "n1", "worker-1": "n2"}


def test_many_go_for_a_rack_only_if_none_of_them_could_come_back():
    """Without these 18 jobs b has 0.45 GPU; with a quota of 0.5 a small one would reclaim the rest."""
    nodes = "n1:1:zone=z:rack=a:type=x n2:1:zone=z:rack=a:type=x n3:1:zone=z:rack=b"
    first = [f"m{i} b g0.1 p1{i} type=x @n1.0" for i in range(9)]
    second = [*(f"s{i} b g0.05 p2{i} type=x @n2.0" for i in range(8)), "big b g0.6 p50 type=x @n2.0"]
    jobs = [*first, *second, "rest b g0.45 p60 @n3.0", "j a g1 x2 within=rack"]
    assert settled(nodes, "a=0:w=5 b=0.5:w=1", *jobs).rows("j") == ["j Pending 0"]
    assert settled(nodes, "a=0:w=5 b=0.45:w=1", *jobs).rows("j") == ["j Running 2 n1+n2"]


def test_room_is_taken_for_what_is_missing_of_a_part():
    """The workers have all they ask for; an elastic task grows on its node, whatever its rack."""
    t = settled(ROOM, "a=8 b=0", "j a g2 +worker g2 within=rack +more g2 x1-2 @n1,n2,n3", "w b g2 @n4")
    assert where(t) == {"main-0": "n1", "worker-0": "n2", "more-0": "n3", "more-1": "n4"}
    jobs = ["x b g1 @n1", "y b g2 @n2", "v b g2 @n3", "f b g1 np @n4", "j a g2 elastic within=rack @n1*1"]
    assert settled(ROOM, "a=4 b=2", *jobs).rows("x", "j") == ["x Running 1 n4", "j Running 2 n1"]


def test_gpu_memory_that_must_go_to_larger_devices_stays_in_its_rack():
    nodes = "n1:1:mem=16:rack=a:zone=z n2:1:mem=64:rack=a:zone=z n3:1:mem=64:rack=b:zone=z"
    others = ["x b g0.7 np @n2", "y b g0.7 np @n3"]
    t = settled(nodes, "a=1:max=1 b=9", *others, "j a m15G x2 within=rack")
    assert t.rows("j") == ["j Pending 0"]  # in rack a it is 1.09 GPUs, in b there is room for one of two
    t = settled(nodes, "a=1:max=1 b=9", *others, "j a m15G x2")
    assert t.show()["j"][2] == "n2+n3"


def test_what_starts_elsewhere_at_once_stays_with_its_own():
    t = Ticker(world(ROOM, "a=99", "x a g2 ~n1", "j a g2 x2 within=rack >n1.0.1,n2", "y a g2 np @n4"))
    t.settle()
    assert t.rows("j") == ["j Running 4 n1+n2"]


def test_who_names_no_topology_means_that_of_its_pool():
    for topology, row in (("room", "j Running 4 n3+n4"), ("", "j Pending 0")):
        scene = world(ROOM, "a=99", "x a g1 np @n1", "j a g2 x2 within=rack")
        scene.put(replace(scene.pools["default"], topology=topology))
        scene.put(replace(scene.workloads["j"], within=Within("", "rack")))
        t = Ticker(scene)
        t.settle()
        assert t.rows("j") == [row]
