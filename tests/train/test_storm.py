"""Random signals and joins from a printed seed; afterwards every record must count exactly once."""

import itertools
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.house.seeds import seed_or
from tests.train.jobs import PATIENT, Running
from tests.train.test_churn import check
from tests.train.zygote import Zygote

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure
EPOCH_STEPS = 8
QUICK = replace(PATIENT, silence=1_500, reconnect=500, adopt=3_000)  # short, so that SIGSTOP is noticed


def storm(job: Running, workers: int, seconds: float, number: int) -> dict[str, int]:
    """Sends signals and resizes until the time is over, leaving 2 workers alive; returns how many of each."""
    dice = random.Random(number)
    done = {"SIGKILL": 0, "SIGTERM": 0, "SIGSTOP": 0, "resize": 0}
    stopped: list[tuple[float, int]] = []
    names = itertools.count()
    devices = [f"cpu-{next(names)}" for _ in range(workers)]
    job.fleet.hold(devices)
    job.until(lambda s: s["world"] >= 2, 120)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        job.fleet.poll()
        for when, pid in stopped:
            if time.monotonic() > when:
                _signal(pid, signal.SIGCONT)
        stopped = [(when, pid) for when, pid in stopped if time.monotonic() <= when]
        members = job.member_pids()
        what = dice.choice(["SIGKILL", "SIGKILL", "SIGTERM", "SIGSTOP", "resize"])
        if len(members) <= 2 or what == "resize":
            what, size = "resize", dice.randint(2, workers)
            # New names: a device whose worker left by itself is not used again.
            devices = devices[:size] + [f"cpu-{next(names)}" for _ in range(size - len(devices))]
            devices[0] = f"cpu-{next(names)}"
            job.fleet.hold(devices)
        else:
            victim = dice.choice(members)
            _signal(victim, getattr(signal, what))
            if what == "SIGSTOP":
                stopped.append((time.monotonic() + dice.choice([0.2, 3.0]), victim))
        done[what] += 1
        time.sleep(dice.uniform(0.05, 0.6))
    for _, pid in stopped:
        _signal(pid, signal.SIGCONT)
    job.fleet.hold([f"cpu-{next(names)}" for _ in range(workers)])
    return done


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def run(
    zygote: Zygote, folder: Path, workers: int, seconds: float, epochs: int, slow_s: float = 0.05
) -> None:
    spec = {"records": 250, "batch": 32, "micro": 8, "epochs": epochs, "own_start": True, "digests": True}
    spec["slow_s"] = slow_s
    with Running(zygote, folder, spec, times=QUICK) as job:
        done = storm(job, workers, seconds, seed_or(20261121))
        status = job.status()
        assert status["state"] != "failed", status["error"]
        job.finish(300)
        print(f"{done}, {job.status()['generation']} generations, {epochs * EPOCH_STEPS} steps")
        check(job, epochs)
        digests: dict[tuple[int, int], set[str]] = {}
        for lines in job.lines().values():
            for line in lines:
                if "step" in line:
                    digests.setdefault((line["generation"], line["step"]), set()).add(line["digest"])
        assert {key: found for key, found in digests.items() if len(found) > 1} == {}


def test_storm(zygote: Zygote, tmp_path: Path) -> None:
    run(zygote, tmp_path, 4, 8, 30, slow_s=0.2)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_long_storm(zygote: Zygote, tmp_path: Path) -> None:
    run(zygote, tmp_path, 8, 300, 150, slow_s=0.8)
