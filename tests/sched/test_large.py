"""Shortcuts of the victim search change no decision: with and without them the plan is the same."""

import pytest

from pliant.sched import cycle
from pliant.sched.actions.preempt import Preempt
from pliant.sched.actions.reclaim import Reclaim
from pliant.sched.cycle import decide
from pliant.sched.preemption.policy import Policy
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


LIMITED = {
    "a limit for which enough is there": (
        "n1:8 n2:8",
        "a=8:max=8",
        *(f"a{i} a g1 p40 @n1" for i in range(8)),
        "more a g6 p90",
    ),
    "a limit for which too little is there": (
        "n1:8 n2:8",
        "a=8:max=8",
        *(f"a{i} a g1 p{40 if i < 3 else 90} @n1" for i in range(8)),
        "more a g6 p80",
    ),
    "a share for which too little is there": (
        "n1:8",
        "a=4 b=4",
        *(f"a{i} a g1 p{40 if i < 3 else 90} @n1" for i in range(4)),
        *(f"b{i} b g1 @n1" for i in range(4)),
        "more a g4 p80",
    ),
    "a limit that bonus and background work are above": (
        "n1:8 n2:8",
        "d1/=8:max=8 d1/a=4 d1/b=4",
        "b0 d1/b g1 elastic @n1*4",
        "b1 d1/b g2 bg @n2*2",
        "a0 d1/a g2 p90 @n2*2",
        "more d1/a g4 p90",
    ),
    "protected for some time": (
        "n1:8",
        "a=8:max=8",
        *(f"a{i} a g1 p40 ran=5 @n1" for i in range(8)),
        "more a g6 p90",
    ),
}


@pytest.mark.parametrize("name", LIMITED)
def test_the_bound_on_what_a_queue_can_give_changes_nothing(name, monkeypatch):
    scene = world(*LIMITED[name], pools="default:min=60" if name.startswith("protected") else "")
    plan = decide(scene.world(), NOW, Settings())
    monkeypatch.setattr(Preempt, "within_reach", lambda self: True)
    assert decide(scene.world(), NOW, Settings()) == plan


@pytest.mark.parametrize("name", [name for name in LIMITED if "too little" in name])
def test_no_search_begins_where_a_queue_has_too_little_to_give(name, monkeypatch):
    monkeypatch.setattr(cycle, "search", lambda *_: pytest.fail("it searched"))
    assert decide(world(*LIMITED[name]).world(), NOW, Settings()).empty


def _questions(size, monkeypatch):
    """Calls of Policy.unit for a job of `size` GPUs whose queue is full of small jobs."""
    asked = []
    unit = Policy.unit
    with monkeypatch.context() as patched:
        patched.setattr(Policy, "unit", lambda self, *key: asked.append(key) or unit(self, *key))
        small = [f"a{i} a g1 p40 @n1" for i in range(size)]
        scene = world(f"n1:{size} n2:{size}", f"a={size}:max={size}", *small, f"more a g{size} p90")
        plan = decide(scene.world(), NOW, Settings())
    assert len(plan.stops) == size
    return len(asked)


def test_a_full_queue_is_not_asked_again_for_each_that_goes(monkeypatch):
    """Twice the jobs in the queue and twice the victims: at most 2.5 times the calls, not four times."""
    few, many = _questions(32, monkeypatch), _questions(64, monkeypatch)
    assert many <= 2.5 * few


@pytest.mark.parametrize("had", ["g18 @n2*18", "g1 x1-18 @" + ",".join(["n2"] * 18), "g1 elastic @n2*18"])
def test_of_many_victims_one_that_is_not_needed_keeps_what_it_has(had):
    """c is taken first, for the limit; then clearing the job's only node is enough for both."""
    small = [f"a{i} a g1 p40 @n1" for i in range(18)]
    scene = world("n1:18:type=x n2:18", "a=36:max=36", *small, f"c a p40 {had}", "more a g18 p90 type=x")
    plan = decide(scene.world(), NOW, Settings())
    assert {stop.attempt.workload for stop in plan.stops} == {f"a{i}" for i in range(18)}


def _each(name, numbers, words):
    return [f"{name}{i} b {words}" for i in numbers]


SURPLUS = "e b g1 x1-40 @" + ",".join(["n1"] * 40)
TO_A_LIMIT = {
    # the limit of d, what b has, what w of a asks for on a free node, who loses something
    "one that is enough alone": (40, ["v b g20 @n1", *_each("x", range(20), "g1 @n2")], 20, {"v"}),
    "the largest": (
        40,
        [*_each("v", range(3), "g5 @n1"), "o b g5 np @n1", *_each("x", range(20), "g1 @n2")],
        18,
        {"v0", "v1", "v2", "x17", "x18", "x19"},
    ),
    "of those that are enough the least": (
        100,
        [*_each("v", range(19), "g5 @n1"), "u b g2 @n2", "o b g3 np @n2"],
        87,
        {"u", *(f"v{i}" for i in range(2, 19))},
    ),
    "surplus tasks and no core": (
        80, [*_each("v", range(18), "g2 @n2"), "o b g4 np @n2", SURPLUS], 36, {"e"}
    ),
    "surplus tasks, whatever is enough alone": (60, ["v b g20 @n2", SURPLUS], 19, {"e"}),
    "no surplus task if a core must go": (
        40, ["v b g20 @n2", "e b g1 x1-18 @" + ",".join(["n1"] * 18), "o b g2 np @n2"], 20, {"v"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TO_A_LIMIT)
def test_what_goes_to_meet_a_limit(name):
    most, had, asked, losers = TO_A_LIMIT[name]
    scene = world("n1:100 n2:100 n3:100", f"d/={most}:max={most} d/a={most} d/b=0", *had, f"w a g{asked}")
    plan = decide(scene.world(), NOW, Settings())
    assert {it.workload for it in plan.decisions if it.gpu_after < it.gpu_before} == losers
