"""What waiting adds to a priority, as a table."""

from dataclasses import replace

import pytest

from pliant.model.workload import Phase
from pliant.sched.settings import Settings
from pliant.sched.shares.ageing import aged, waited
from tests.sched.worlds import NOW, world

EACH_MINUTE = Settings(ageing=60_000, ageing_max=5)


def job(**more):
    return replace(world("n1:1", "a=1", "j a g1").world().workloads["j"], **{"phase_since": 0, **more})


@pytest.mark.parametrize(
    ("more", "ms"),
    [
        ({"created": NOW - 500}, 500),
        ({"created": NOW - 500, "phase_since": NOW - 200}, 200),
        ({"created": NOW - 500, "phase_since": NOW - 200, "pending_ms": 300}, 500),
        ({"created": NOW}, 0),
        ({"created": NOW + 500}, 0),  # a clock that was set back
        ({"created": NOW - 500, "phase": Phase.RUNNING, "phase_since": NOW - 200, "pending_ms": 300}, 300),
        ({"created": NOW - 500, "phase": Phase.RUNNING, "phase_since": NOW - 200}, 0),
    ],
)
def test_it_counts_all_stays_in_the_queue(more, ms):
    assert waited(job(**{"phase": Phase.PENDING, **more}), NOW) == ms


@pytest.mark.parametrize(
    ("priority", "minutes", "settings", "found"),
    [
        (50, 3, EACH_MINUTE, 53),
        (50, 60, EACH_MINUTE, 55),
        (97, 60, EACH_MINUTE, 99),  # 100 and more is never preempted
        (100, 3, EACH_MINUTE, 103),  # a priority already above stays
        (50, 60, Settings(), 50),
    ],
)
def test_it_lifts_up_to_a_bound(priority, minutes, settings, found):
    row = job(phase=Phase.PENDING, created=NOW - minutes * 60_000)
    assert aged(row, priority, NOW, settings) == found
