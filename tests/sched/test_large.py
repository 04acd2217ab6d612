"""Short cuts of the search for victims change no decision: with and without them the plan is the same."""

import pytest

from pliant.sched import cycle
from pliant.sched.actions.reclaim import Reclaim
from pliant.sched.cycle import decide
from pliant.sched.preemption.price_cache import PriceCache
from pliant.sched.settings import Settings
from tests.sched.worlds import NOW, world

WORLDS = {
    "one queue gives": (
        "n1:4 n2:4",
        "a=0 b=8",
        *(f"a{i} a g1 @n{1 + i % 2}" for i in range(8)),
        *(f"b{i} b g1" for i in range(8)),
    ),
    "two queues give in turn": (
        "n1:4 n2:4",
        "a=0 c=1 b=5",
        *(f"a{i} a g1 @n{1 + i % 2}" for i in range(4)),
        *(f"c{i} c g1 p{40 + i} @n{1 + i % 2}" for i in range(4)),
        *(f"b{i} b g1" for i in range(6)),
    ),
    "pairs of different shapes": (
        "n1:4 n2:4 n3:2",
        "a=1 b=8",
        *(f"a{i} a g2 @n{1 + i % 2}" for i in range(4)),
        "a5 a g1 elastic @n3*2",
        *(f"b{i} b g{1 + i % 2}" for i in range(6)),
    ),
    "a gang that cannot be had": (
        "n1:4 n2:4",
        "a=1 b=8",
        *(f"a{i} a g1 @n{1 + i % 2}" for i in range(8)),
        "gang b g4 x2",
    ),
}


def plan_of(name):
    return decide(world(*WORLDS[name]).world(), NOW, Settings())


@pytest.mark.parametrize("name", WORLDS)
def test_prices_kept_from_search_to_search_change_nothing(name, monkeypatch):
    plan = plan_of(name)
    monkeypatch.setattr(PriceCache, "still_holds", lambda self: False)
    assert plan_of(name) == plan


@pytest.mark.parametrize("name", WORLDS)
def test_the_bound_on_what_can_be_had_changes_nothing(name, monkeypatch):
    plan = plan_of(name)
    assert plan.empty == (name == "a gang that cannot be had")
    monkeypatch.setattr(Reclaim, "within_reach", lambda self: True)
    assert plan_of(name) == plan


def test_the_bound_says_no_before_anything_is_tried(monkeypatch):
    monkeypatch.setattr(cycle, "search", lambda *_: pytest.fail("it searched"))
    assert plan_of("a gang that cannot be had").empty
