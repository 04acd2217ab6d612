"""What a job that takes all it can get costs its neighbour: nothing beyond what a well-behaved one costs."""

import statistics
import time

import pytest

from pliant.engines.local.warden import Walls
from tests.box.box_rig import PYTHON, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

MIB = 2**20
WALLS = Walls(memory=128 * MIB, cpu=1000, processes=64)
"""Of each of the two: equal requests."""

ROUNDS, SECONDS = 6, 2.0
WITHIN = {"fork bomb": 1.15, "memory hog": 1.05, "processor hog": 1.05}
"""Times as long for a step. A fork bomb costs the kernel more than processor time that is its group's."""

STEPS = """
import time
print("ready", flush=True)
while True:
    began, total = time.monotonic(), 0
    for number in range(100_000):
        total += number
    print(f"{time.monotonic():.6f} {time.monotonic() - began:.6f}", flush=True)
"""
"""A neighbour that prints when each of its steps ended, and how long it took."""

BUSY = "echo ready; while :; do :; done"
FILL = "b = bytearray(1 << 30)\nfor n in range(0, len(b), 4096): b[n] = 1"
HOGS = {
    "fork bomb": "echo ready; f() { f | f & }; while :; do f; done 2>/dev/null",
    "memory hog": f"echo ready; while :; do {PYTHON} -S -c '{FILL}'; done",
    "processor hog": "for n in $(seq 60); do (while :; do :; done) & done; echo ready; wait",
}


def steps(neighbour, since, until_then):
    """Seconds of each step that lay within that time."""
    found = []
    for line in neighbour.log().splitlines()[1:]:
        at, _, took = line.partition(" ")
        if took and float(at) - float(took) >= since and float(at) <= until_then:
            found.append(float(took))
    return found


@pytest.mark.parametrize("kind", HOGS)
def test_a_neighbour_steps_as_fast_as_beside_a_well_behaved_job(box, kind):
    neighbour = box.run(box.alice, [PYTHON, "-S", "-c", STEPS], walls=WALLS)
    until(lambda: "ready" in neighbour.log(), "the neighbour runs")
    ratios = []
    for _ in range(ROUNDS):
        took = {}
        for script in (BUSY, HOGS[kind]):
            other = box.shell(box.bob, script, walls=WALLS)
            until(lambda it=other: "ready" in it.log(), "the other runs")
            began = time.monotonic()
            until(lambda at=began: time.monotonic() > at + SECONDS, "it was beside it for a while")
            found = steps(neighbour, began, began + SECONDS)
            assert len(found) > 20
            took[script] = statistics.mean(found)
            other.stop()
        ratios.append(took[HOGS[kind]] / took[BUSY])
    neighbour.stop()
    print(f"{kind}: steps take {statistics.median(ratios):.3f} times as long; rounds: {sorted(ratios)}")
    assert statistics.median(ratios) <= WITHIN[kind], ratios
