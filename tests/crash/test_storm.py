"""kill -9 at random instants while jobs come, stretch, shrink and go; PLIANT_SEED repeats a storm."""

import random
import signal
import time

import pytest

from tests.crash.rig import Rig
from tests.house.seeds import seed_or

POINTS = (
    "recorded:start",
    "recorded:stop",
    "recorded:resize",
    "ordered",
    "claimed",
    "forked",
    "stop-ordered",
    "stop-signalled",
    "exited",
)
"""The points between "recorded" and "confirmed"."""


def storm(rig: Rig, kills: int, least: int = 0) -> None:
    """Kills the server `kills` times, and on until `least` kills fell between "recorded" and "confirmed"."""
    dice = random.Random(seed_or(20261121))
    between, made, round_ = 0, 0, 0
    while round_ < kills or between < least:
        assert round_ < 3 * kills, f"only {between} of {round_} kills fell where most of them should"
        round_ += 1
        point = dice.choice(POINTS) if dice.random() < 0.6 else ""
        rig.start(halt=f"{point}#{dice.randint(1, 3)}" if point else "")
        lives_until = time.monotonic() + (5 if point else dice.uniform(0.05, 1.2))
        while not rig.died() and time.monotonic() < lives_until:
            crowded = len(rig.submitted) > 6  # otherwise all would wait, and nothing would change
            if rig.submitted and (crowded or dice.random() < 0.4):
                rig.delete(dice.choice(sorted(rig.submitted)))
            else:
                made += 1
                rig.submit(f"job-{made}", dice.randint(1, 3), elastic=dice.random() < 0.5)
            time.sleep(dice.uniform(0, 0.1))
        assert not rig.died() or rig.exit_code() == -signal.SIGKILL, "it ended by itself"
        between += rig.died()
        rig.kill()
        doubled = {attempt: count for attempt, count in rig.starts().items() if count > 1}
        assert not doubled, f"round {round_}: attempts that ran twice: {doubled}"
    rig.start()
    known = set(rig.items())
    assert set(rig.submitted) <= known, f"accepted and lost: {set(rig.submitted) - known}"

    rig.until(rig.calm, "all runs or waits", seen=rig.phases)
    rig.verify()
    print(f"{round_} kills, {between} of them between recorded and confirmed, {made} submissions")


def test_short_storm(rig: Rig) -> None:
    storm(rig, 8)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_long_storm(rig: Rig) -> None:
    storm(rig, 50, least=20)
