"""Short cuts of the search for victims change no decision: with and without them the plan is the same."""

import pytest

from pliant.sched.actions.reclaim import BelowDue
from pliant.sched.cycle import decide
from pliant.sched.preemption import search
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
def test_prices_kept_from_hunt_to_hunt_change_nothing(name, monkeypatch):
    plan = plan_of(name)
    monkeypatch.setattr(search, "taken_over", lambda *_: None)
    assert plan_of(name) == plan


@pytest.mark.parametrize("name", WORLDS)
def test_the_bound_on_what_can_be_had_changes_nothing(name, monkeypatch):
    plan = plan_of(name)
    assert plan.empty == (name == "a gang that cannot be had")
    monkeypatch.setattr(BelowDue, "within_reach", lambda self: True)
    assert plan_of(name) == plan


def test_the_bound_says_no_before_anything_is_tried(monkeypatch):
    monkeypatch.setattr(search.Hunt, "_search", lambda *_: pytest.fail("it searched"))
    assert plan_of("a gang that cannot be had").empty
