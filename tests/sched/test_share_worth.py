"""Values of the free rest of a device: prices of a linear program, and their effect on placement."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from pliant.model.quantity import GPU
from pliant.model.workload import Desired, Request
from pliant.sched.world.share_worth import LEAST, UNITS, mix_of, worth
from tests.sched.test_score import _arrive, _job, _world

MIX = {810: 1056, 650: 248, 470: 733, 320: 321, 160: 90}


def test_shares_are_worth_what_they_take_up():
    found = worth(mix_of(MIX))
    rests = {rest: found[rest * UNITS // GPU] for rest in (190, 210, 340, 480, 660, 1000)}
    assert rests == {190: 0, 210: 0, 340: 333, 480: 500, 660: 666, 1000: 1000}


def test_of_few_shares_nothing_is_concluded():
    assert worth(mix_of({500: LEAST - 1})) == ()
    assert worth(mix_of({500: LEAST}))[UNITS // 2] == 500


@given(st.dictionaries(st.integers(1, 999), st.integers(1, 500), min_size=1, max_size=12))
def test_prices_are_those_of_the_program(counts):
    """Another solver finds no prices under which the mix needs more devices."""
    mix = mix_of(counts)
    found = worth(mix)
    if not mix:
        assert found == ()
        return
    assert list(found) == sorted(found) and found[0] == 0 and found[UNITS] == 1000
    solver = pywraplp.Solver.CreateSolver("GLOP")
    value = [solver.NumVar(0, 1, "") for _ in range(UNITS + 1)]  # value of free room, at most one device
    prices = {units: solver.NumVar(0, 1, "") for units, _ in mix}
    for room in range(1, UNITS + 1):
        solver.Add(value[room] >= value[room - 1])
        for units, price in prices.items():
            if units <= room:
                solver.Add(value[room] >= value[room - units] + price)
    solver.Maximize(sum(part * prices[units] for units, part in mix))
    assert solver.Solve() == solver.OPTIMAL
    # A size is worth what a device of exactly that size holds, or less where others fill it better.
    mine = sum(part * found[units] for units, part in mix)
    assert mine >= solver.Objective().Value() * 1000 - len(mix) * 64


@pytest.mark.parametrize("known", [True, False])
def test_a_share_goes_where_the_rest_loses_least(known):
    """320 fits beside 470, on the fuller device; once the mix is known, the rest there is worthless."""
    world = _world([(1, 0, 0, "A"), (1, 0, 0, "A")])
    for serial, (portion, count) in enumerate(MIX.items() if known else ()):
        waits = replace(_job(100 + serial, Request(1, portion)), desired=Desired.RUNNING)
        world.put(replace(waits, groups=(replace(waits.groups[0], min=1, max=count, wanted=count),)))
    assert _arrive(world, _job(0, Request(1, 470)))
    assert _arrive(world, _job(1, Request(1, 320)))
    places = [world.tasks[f"w{serial}", "main-0"].claims.node for serial in (0, 1)]
    assert (places[0] == places[1]) is not known
    world.check()
