"""Groups that a submission names, in levels: what runs, its phase, and what is evicted first."""

from pathlib import Path

import pytest

from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.placing import Placing
from pliant.control.submit.submission import Distribution, GroupAsk, Submission
from pliant.control.submit.variables import Variables
from pliant.model.topology import Within
from pliant.model.workload import Kind, Launch, SubGroup
from tests.control.stage import Stage

LAUNCH = Launch("ubuntu", ("sleep", "infinity"))
REPLICAS = (SubGroup("one"), SubGroup("two"))


def each(**more) -> Submission:
    return Submission("", LAUNCH, gpus=1000, **more)


def pair(level: str) -> tuple[GroupAsk, ...]:
    """An encoder and a decoder of that level."""
    return tuple(GroupAsk(f"{part}-{level}", each(), parent=level) for part in ("encoder", "decoder"))


def submission(name: str, **more) -> Submission:
    return Submission(
        "default", LAUNCH, Kind.DISTRIBUTED, name, distribution=Distribution("", lead=False, **more)
    )


BOTH = {"groups": (*pair("one"), *pair("two")), "levels": REPLICAS, "least_groups": 1}


def show(stage: Stage, identity: str) -> tuple[str, list[str]]:
    view = stage.view(identity)
    return view.workload.phase.value, [task.name for task in view.tasks if task.carries is not None]


def test_one_of_two_is_enough_to_run(stage: Stage) -> None:
    job = stage.accept(submission("job", **BOTH)).id
    stage.run(1000)
    assert show(stage, job) == ("Running", ["encoder-one-0", "decoder-one-0"])
    stage.run(600_000)
    assert show(stage, job)[0] == "Running", "it is whole as it is: nothing of it is stale"


def test_both_run_where_there_is_room_and_the_second_goes_first(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "1x4")
    job = stage.accept(submission("job", **BOTH)).id
    stage.run(1000)
    assert show(stage, job)[0] == "Running"
    assert len(show(stage, job)[1]) == 4
    stage.submit("person", 1, interactive=True)
    stage.run(1000)
    phase, left = show(stage, job)
    assert (phase, len({name.split("-")[1] for name in left}), len(left)) == ("Running", 1, 2)
    stage.store.close()


def test_without_its_least_it_does_not_start(stage: Stage) -> None:
    job = stage.accept(submission("job", **BOTH | {"least_groups": None})).id
    stage.run(1000)
    assert show(stage, job) == ("Pending", [])


def test_it_is_over_when_its_least_is(stage: Stage) -> None:
    short = Variables((("PLIANT_VIRTUAL_SECONDS", "5"),))
    groups = (
        GroupAsk("a", Submission("", LAUNCH, gpus=1000, variables=short)),
        GroupAsk("b", Submission("", LAUNCH, gpus=1000)),
    )
    job = stage.accept(submission("job", groups=groups, least_groups=1)).id
    stage.run(1000)
    assert show(stage, job) == ("Running", ["a-0", "b-0"])
    stage.run(10_000)
    assert show(stage, job) == ("Completed", [])


def test_groups_have_numbers_priorities_and_places_of_their_own(stage: Stage) -> None:
    stage.service.create_topology("room", ["rack"], "me")
    near = Placing(topology="room", required="rack", apart="kubernetes.io/hostname")
    groups = (
        GroupAsk("lead", each(priority="high"), parent="all"),
        GroupAsk("work", each(placing=near), 3, 1, 5, "all"),
    )
    levels = (SubGroup("all", within=Within("room", preferred="rack")),)
    ask = submission("job", groups=groups, levels=levels)
    made = stage.accept(ask)
    lead, work = made.groups
    assert (lead.priority, lead.min, lead.max, work.priority) == (125, 1, 1, None)
    assert (work.min, work.wanted, work.max, work.apart) == (1, 3, 5, near.apart)
    assert (work.within, made.subgroups) == (Within("room", "rack"), levels)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"groups": (*pair("one"), *pair("one")), "levels": REPLICAS}, "encoder-one is named twice."),
        ({"groups": (GroupAsk("Big", each()),)}, "'Big' cannot be the name of a group."),
        ({"groups": pair("one")}, "encoder-one belongs to 'one', which is not a level."),
        ({"groups": pair("one"), "levels": REPLICAS}, "Nothing belongs to level two."),
        (
            {"groups": pair("one"), "levels": (SubGroup("one", "x"), SubGroup("x", "one"))},
            "Level one is above itself.",
        ),
        (BOTH | {"least_groups": 3}, "The workload cannot need 3 of 2."),
        (BOTH | {"levels": (SubGroup("one", min=0), SubGroup("two"))}, "Level one cannot need 0 of 2."),
        (
            {"groups": (GroupAsk("a", each(), 2, 3),)},
            "Task counts of a must satisfy min ≤ requested ≤ max; got 3, 2, 2",
        ),
        (
            {"groups": (GroupAsk("a", each(), 20_000),)},
            "Task counts of a must satisfy min ≤ requested ≤ max; got 20000, 20000, 20000",
        ),
        (
            {"groups": (GroupAsk("a", each(placing=Placing(required="rack"))),)},
            "Topology level rack needs the name of its topology.",
        ),
    ],
)
def test_groups_that_cannot_be(stage: Stage, more, said: str) -> None:
    with pytest.raises(BadRequest) as error:
        stage.accept(submission("job", **more))
    assert str(error.value).startswith(said)
    assert stage.service.board.workloads == {}


def test_a_level_of_a_topology_that_is_none(stage: Stage) -> None:
    groups = (GroupAsk("a", each(placing=Placing(topology="moon", required="rack"))),)
    with pytest.raises(NotFound, match="There is no topology 'moon'"):
        stage.accept(submission("job", groups=groups))
