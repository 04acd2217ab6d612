"""Times that a workload sets for itself: how long its broken gang keeps the remains."""

from dataclasses import replace

import pytest

from pliant.model.workload import Desired, Phase, TaskPhase
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from tests.sched.stage import Stage


@pytest.mark.parametrize(
    ("own", "common", "evicted"),
    [(None, 60_000, False), (30_000, 60_000, True), (-1, 0, False), (90_000, 0, False), (None, 0, True)],
)
def test_grace_of_a_broken_gang(own: int | None, common: int, evicted: bool) -> None:
    """It has been broken for 40 s; its own grace overrides the common one."""
    stage = Stage([2], {"a": 2})
    stage.submit("gang", "a", 1, tasks=2)
    row = stage.world.tasks["gang", "main-1"]
    stage.world.put(
        replace(row, phase=TaskPhase.WAITING, carries=None, claims=None, retry_at=stage.now + 10**6)
    )
    workload = stage.world.workloads["gang"]
    assert workload.desired is Desired.RUNNING
    stage.world.put(replace(workload, phase=Phase.DEGRADED, phase_since=stage.now - 40_000, stale_grace=own))
    plan = decide(stage.world, stage.now, Settings(stale_grace=common))
    assert [decision.action for decision in plan.decisions] == (["stale"] if evicted else [])
