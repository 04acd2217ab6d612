"""Required and preferred topology levels: placement, victims, and why work waits."""

from dataclasses import replace

import pytest

from pliant.model.topology import Topology, Within
from pliant.model.workload import SubGroup
from tests.sched.stage import Stage
from tests.sched.test_subgroups import running, tasks

LEVELS = ("zone", "rack")
RACK, ZONE = Within("hall", "rack"), Within("hall", "zone")


def hall(places, projects, **more):
    """Nodes n1, n2, ... as `zone/rack:GPUs`; a rack of - has no label."""
    stage = Stage([int(place.split(":")[1]) for place in places], projects, **more)
    stage.world.put(Topology("hall", LEVELS))
    for number, place in enumerate(places, 1):
        values = zip(LEVELS, place.split(":")[0].split("/"), strict=True)
        labels = tuple((key, value) for key, value in sorted(values) if value != "-")
        stage.world.put(replace(stage.world.nodes[f"n{number}"].row, labels=labels))
    return stage


def gang(stage, name, count, within, gpus=1, project="a", groups=None, subs=()):
    from tests.sched.test_subgroups import submit

    groups = groups or [tasks("t", least=count, devices=gpus)]
    # The row is replaced by one with its level before the first cycle.
    run, stage.run = stage.run, lambda: None
    submit(stage, name, groups, subs, project=project)
    stage.run = run
    stage.world.put(replace(stage.world.workloads[name], within=within))
    stage.run()


FOUR = ["z1/r1:2", "z1/r2:2", "z2/r3:2", "z2/r4:2"]


@pytest.mark.parametrize(
    ("places", "count", "within", "nodes"),
    [
        (["z/r1:1", "z/r1:1", "z/r2:1"], 2, RACK, "n1+n2"),
        (["z/r2:1", "z/r1:1", "z/r2:1"], 2, RACK, "n1+n3"),
        (["z/r1:2", "z/r2:2"], 3, RACK, ""),
        (FOUR, 3, ZONE, "n1+n2"),
        (FOUR, 5, ZONE, ""),
        (
            ["z1/r1:3", "z2/r1:2"],
            2,
            RACK,
            "n2",
        ),  # equal rack names in two zones are two racks; the fuller first
        (["z1/r1:3", "z2/r1:3"], 4, RACK, ""),
        (["z1/-:4", "z1/r1:1"], 2, RACK, ""),  # no label, no domain
        (["z1/-:4", "z1/r1:1"], 2, ZONE, "n1+n2"),
        (FOUR, 2, Within("hall", "", "rack"), "n1"),
        (FOUR, 3, Within("hall", "", "rack"), "n1+n2"),  # the next wider level
        (FOUR, 6, Within("hall", "", "rack"), "n2+n3+n4"),
        (FOUR, 5, Within("hall", "zone", "rack"), ""),
        (["z/r1:1", "z/r2:2", "z/r2:2"], 4, Within("hall", "", "rack"), "n2+n3"),
        (FOUR, 1, Within("elsewhere", "rack"), ""),
        (FOUR, 1, Within("elsewhere", "", "rack"), "n1"),
        (FOUR, 1, Within("hall", "row"), ""),
    ],
)
def test_where_a_gang_lies(places, count, within, nodes):
    stage = hall(places, {"a": 8})
    gang(stage, "job", count, within)
    assert stage.shown()["job"] == (count if nodes else 0, nodes)


def test_parts_of_a_workload_have_levels_of_their_own():
    stage = hall(["z1/r1:3", "z1/r2:2", "z2/r3:2", "z2/r4:2"], {"a": 9})
    stage.submit("other", "a", 2)  # packs: the nodes of two GPUs first
    subs = [SubGroup("one", within=RACK), SubGroup("two", within=RACK)]
    gang(stage, "job", 0, ZONE, groups=[tasks("x", "one", 2), tasks("y", "two", 2)], subs=subs)
    where = {task.group: {task.claims.node} for task in stage.world.tasks_of("job")}
    assert stage.shown()["other"] == (2, "n2")
    assert sorted(map(sorted, where.values())) == [["n3"], ["n4"]]


def test_a_later_portion_goes_to_the_domain_of_the_rest():
    stage = hall(["z/r1:2", "z/r2:2"], {"a": 8})
    stage.submit("other", "a", 1)
    gang(stage, "job", 0, RACK, groups=[tasks("t", least=1, wanted=2)])
    assert stage.shown() == {"other": (1, "n1"), "job": (1, "n1")}
    stage.delete("other")
    assert stage.shown()["job"] == (2, "n1")


def test_room_is_taken_in_the_cheapest_domain_that_can_hold_it():
    stage = hall(["z/r1:2", "z/r1:2", "z/r2:2", "z/r2:2", "z/r3:1"], {"a": 0, "b": 4})
    for number in range(3):
        stage.submit(f"big{number}", "a", 2)
    gang(stage, "job", 4, RACK, project="b")
    shown = stage.shown()
    assert shown["job"] == (4, "n3+n4")  # r2 has only one of them
    assert sorted(shown[f"big{number}"][0] for number in range(3)) == [0, 2, 2]


def test_what_is_moved_keeps_to_its_own_level():
    stage = hall(["z/r1:2", "z/r2:2"], {"a": 4})
    gang(stage, "pair", 0, RACK, groups=[tasks("t", least=2)])
    stage.submit("one", "a", 1)
    stage.submit("two", "a", 2)
    assert stage.shown()["pair"] == (2, "n1")
    assert running(stage, "pair") == {"t": 2}
    assert stage.gpus()["two"] == 0
