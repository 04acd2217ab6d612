"""Random worlds: the referee watches every cycle (safety), and what must come of it in the end (liveness)."""

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pliant.model.workload import TaskPhase
from tests.sched import liveness
from tests.sched.scenarios import Drawn, Seeded, play, scenario

LONG = os.environ.get("PLIANT_LONG") == "1"
KINDS = ("reclaim", "preempt", "move", "fraction", "gang", "shrink", "grow")
seen: Counter[str] = Counter()
"""How many worlds there were, and in how many of them each kind of thing happened."""


@st.composite
def _scenarios(draw):
    return scenario(Drawn(draw))


def _profile(examples):
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(max_examples=examples, suppress_health_check=quiet, deadline=None)


def _count(t):
    kinds = {decision.action for decision in t.decisions()} | {str(d.verb) for d in t.decisions()}
    for entry in t.log:
        request = t.requests[entry.attempt.workload, entry.attempt.task]
        kinds |= {"fraction"} if request.shared else set()
        kinds |= {"gang"} if entry.attempt.workload in t.gangs else set()
    seen["worlds"] += 1
    seen.update(kinds & set(KINDS))


def _live(found):
    note(repr(found))
    t = play(found)
    t.settle(wait=7_200_000, cycles=400)
    assert not t.busy and not any(task.phase is TaskPhase.STOPPING for task in t.scene.tasks.values())
    liveness.rests(t)
    liveness.works(t)
    liveness.entitled(t)
    _count(t)


@pytest.mark.timeout(7_200 if LONG else 110)
@_profile(20_000 if LONG else 300)
@given(_scenarios())
def test_worlds(found):
    _live(found)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@_profile(3_000)
@given(_scenarios())
def test_many_worlds(found):
    _live(found)


@pytest.mark.parametrize("steps", [0, 3, 30])
def test_a_small_search_budget_costs_answers_not_rules(steps):
    """Whatever is left unsearched, the referee finds nothing wrong and the world comes to rest."""
    for seed in range(25):
        found = scenario(Seeded(seed))
        t = play(replace(found, settings=replace(found.settings, search_steps=steps)))
        t.settle(wait=7_200_000, cycles=400)
        liveness.rests(t)


def test_shares_of_kinds(capsys):
    """Prints what the worlds above were made of. Runs after them; alone it has nothing to say."""
    total = seen["worlds"]
    if total:
        shares = ", ".join(f"{kind} {100 * seen[kind] // total} %" for kind in KINDS)
        with capsys.disabled():
            print(f"\n{total} worlds: {shares}")
    for kind in KINDS[:5] if total >= 1_000 else ():
        assert seen[kind] * 10 >= total, f"only {seen[kind]} of {total} worlds have {kind}"
