"""A recorded day of a synthetic cluster on the virtual engine replays; the record stays in its bound."""

import os
import random
import time

import pytest

from pliant.store.rerun import lines_of, rerun
from pliant.store.ring import Ring
from tests.control.stage import Stage

SEED = int(os.environ.get("PLIANT_SEED", "5"))
DAY = 86_400_000


def play(tmp_path, capsys, simulate: str, jobs: int, span: int, most: int) -> None:
    """So many submissions spread over `span` ms, in two projects, with run times up to a few hours."""
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
    again = same = 0
    for path in files:
        found = rerun(lines_of(path.read_bytes()))
        again, same = again + found["cycles"], same + found["same"]
    with capsys.disabled():
        print(
            f"\n  {jobs} workloads, {cycles} cycles, seed {SEED}: {same} of {again} recorded cycles give the"
            f" same plan, {size} of {most} bytes; recording takes {100 * taken / spent:.2f} % of the time of"
            f" cycles, the writing thread {100 * ring.spent / spent:.2f} % of it"
        )
    assert again > jobs // 2 and same == again
    stage.store.close()


def test_an_hour_replays(tmp_path, capsys):
    play(tmp_path, capsys, "8x8", 80, DAY // 24, 2**20)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_a_day_of_500_gpus_and_5000_workloads_replays(tmp_path, capsys):
    play(tmp_path, capsys, "63x8", 5_000, DAY, 64 * 2**20)
