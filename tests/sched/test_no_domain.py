"""Why work that is bound to one topology domain waits."""

import pytest

from pliant.model.reason import NoDomain
from pliant.model.topology import Topology
from tests.sched.test_topology import LEVELS, RACK, gang, hall


@pytest.mark.parametrize(
    ("busy", "count", "why"),
    [
        (0, 3, NoDomain("rack", 3, 2, "r1", 2, ever=False)),
        (1, 2, None),
        (2, 2, NoDomain("rack", 2, 1, "r1", 2)),
    ],
)
def test_why_it_waits(busy, count, why):
    stage = hall(["z/r1:2", "z/r2:2"], {"a": 4})
    for name in ("r1", "r2")[:busy]:
        gang(stage, f"busy-{name}", 1, RACK)
        stage.submit(f"fixed-{name}", "a", 1, interactive=True)
    stage.delete(*(f"busy-{name}" for name in ("r1", "r2")[:busy]))
    gang(stage, "job", count, RACK)
    verdicts = [verdict.reason for verdict in stage.plans[-1].verdicts if verdict.workload == "job"]
    assert verdicts == ([why] if why else [])


def test_the_world_forgets_a_topology():
    stage = hall(["z/r1:2"], {"a": 4})
    stage.world.drop(Topology("hall", LEVELS))
    gang(stage, "job", 1, RACK)
    assert stage.why("job") == NoDomain("rack", 1, 0, "", 0, ever=False)
