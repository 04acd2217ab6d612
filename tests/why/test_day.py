"""The record of a synthetic cluster's day on the virtual engine replays and stays within its size limit."""

import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pliant.store.ring import Ring
from tests.control.stage import Stage

SEED = int(os.environ.get("PLIANT_SEED", "5"))
DAY = 86_400_000


def play(tmp_path, capsys, simulate: str, jobs: int, span: int, most: int) -> None:
    """Submits jobs of two projects, spread over `span` ms, with run times up to a few hours."""
    began_at = time.monotonic()
    dice = random.Random(SEED)
    stage = Stage(tmp_path, simulate)
    stage.project("team-a", 200)
    ring = stage.loop.recorder = Ring(tmp_path / "replay", most=most)
    stage.loop.state.rebuilt = True
    spent = cycles = 0
    inner = stage.loop.cycle

    def timed(news=None) -> None:
        nonlocal spent, cycles
        began = time.thread_time_ns()
        inner(news)
        spent += time.thread_time_ns() - began
        cycles += 1

    stage.loop.cycle = timed
    stage.loop.settle = lambda: settle(stage)
    check, checks = stage.loop.world.check, 0

    def sometimes() -> None:
        """Checks every 50th time: the check builds a fresh world, which costs more than the day."""
        nonlocal checks
        checks += 1
        if checks % 50 == 1:
            check()

    stage.loop.world.check = sometimes
    taken = 0
    take = ring.take

    def told(cycled) -> None:
        nonlocal taken
        began = time.thread_time_ns()
        take(cycled)
        taken += time.thread_time_ns() - began

    ring.take = told
    for number in range(jobs):
        lasts = min(span // 3000, int(dice.lognormvariate(8.0, 0.8) * span / DAY))
        project = dice.choice(("default", "team-a"))
        stage.submit(
            f"w{number}", dice.choice((1, 1, 1, 2, 4, 8)), project, virtual={"seconds": max(1, lasts)}
        )
        stage.run(int(dice.expovariate(jobs / span)))
    assert ring.drained()
    held = ring.held()
    files = sorted((tmp_path / "replay").iterdir())
    size = sum(path.stat().st_size for path in files)
    assert size <= held.size <= most
    ring.close()
    replaying = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        found = list(workers.map(replayed, files))
    again, same = sum(cycles for cycles, _ in found), sum(same for _, same in found)
    ended = time.monotonic()
    with capsys.disabled():
        print(
            f"\n  {jobs} workloads, {cycles} cycles, seed {SEED}: {same} of {again} recorded cycles give the"
            f" same plan, {size} of {most} bytes; recording takes {100 * taken / spent:.2f} % of the time of"
            f" cycles, the writing thread {100 * ring.spent / spent:.2f} % of it; played in"
            f" {replaying - began_at:.0f} s, decided again in {ended - replaying:.0f} s"
        )
    assert again == cycles and same == again
    stage.store.close()


def settle(stage: Stage) -> None:
    """Runs cycles as the loop does: one for arrived work, more while plans change something."""
    for _ in range(100):
        news = stage.loop._wait(0)
        wakes = (stage.loop.plan.wake, stage.loop._facts.wake)
        due = any(at is not None and at <= stage.timeline.now() for at in wakes)
        if not news and stage.loop.plan.empty and not due:
            return
        stage.loop.cycle(news)
    raise AssertionError(f"no rest after 100 cycles: {stage.loop.plan}")


def replayed(path: Path) -> tuple[int, int]:
    """(cycles in a file of the record, those of them that gave the same plan)."""
    words = [sys.executable, "-m", "pliant.store.rerun", str(path)]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found["cycles"], found["same"]


def test_an_hour_replays(tmp_path, capsys):
    play(tmp_path, capsys, "8x8", 80, DAY // 24, 2**20)


@pytest.mark.long
@pytest.mark.timeout(10_800)
def test_a_day_of_500_gpus_and_5000_workloads_replays(tmp_path, capsys):
    play(
        tmp_path, capsys, "63x8", 5_000, DAY, 256 * 2**20
    )  # room for the whole day, so that every cycle is replayed
