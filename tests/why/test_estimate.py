"""Estimated starts on simulated clusters with known run times: the range covers the true start."""

import os
import random
import statistics

import pytest

from pliant.model.reason import Estimate
from pliant.sched.cycle import decide
from pliant.sched.explain.eta_replay import foretell
from tests.why import simulated
from tests.why.simulated import Asked, Cluster

SEED = int(os.environ.get("PLIANT_SEED", "7"))
COVERED, WIDTH = 90, 2.0
"""Least percentage of true starts in the range; largest median of its width over the true wait."""

IN_A_BURST = (75, 3.0)
"""The same while the queue grows far faster than it is served: later arrivals are unknown."""


def judge(
    capsys, clusters: int, jobs: int, seed: int, ask: float, meanwhile: float = 0.0, bounds=(COVERED, WIDTH)
) -> None:
    asked: list[Asked] = []
    for number in range(clusters):
        dice = random.Random(seed + number)
        cluster = Cluster(dice, nodes=2, projects=dice.choice((1, 2, 3)), load=60)
        asked += cluster.play(jobs, ask, meanwhile)
    known = [one for one in asked if one.said.known]
    assert all(one.true is not None for one in known)
    good = sum(one.said.earliest <= one.true <= one.said.latest for one in known)
    widths = [(one.said.latest - one.said.earliest) / max(60_000, one.true - one.at) for one in known]
    width = statistics.median(widths)
    with capsys.disabled():
        print(
            f"\n  {clusters} clusters from seed {seed}: {len(known)} of {len(asked)} starts estimated,"
            f" {good} ({100 * good // len(known)} %) in their range; median width {width:.2f} x the wait"
        )
    assert len(known) * 10 >= len(asked) * 9
    assert good * 100 >= len(known) * bounds[0]
    assert width <= bounds[1]


@pytest.fixture
def by_the_core(monkeypatch):
    def ask(world, now, wid, lasting):
        found = foretell(world, now, simulated.Settings(), decide, wid, lasting, 600)
        return found or Estimate(unknown="too far away")

    monkeypatch.setattr(simulated, "estimate", ask)


def test_starts_are_in_their_range(capsys, by_the_core):
    judge(capsys, 2, 24, SEED, 0.3)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_starts_are_in_their_range_in_many_clusters(capsys, by_the_core):
    judge(capsys, 15, 40, SEED + 100, 0.2)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_starts_are_in_their_range_while_a_burst_is_submitted(capsys, by_the_core):
    """Estimates made while the queue still grows; later arrivals are unknown then."""
    judge(capsys, 15, 40, SEED + 200, 0.0, 0.3, IN_A_BURST)
