"""Many processes at once, a third of them killed: the card's own counter decides."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from pliant.devices import ledger
from tests.shim.stage import DRIVERS, GIB, HERE, MIB, OOM, Stage, compile_c


def built(tools: Path) -> Path:
    program = tools / "storm"
    if not program.exists():
        compile_c(program, HERE / "storm.c", DRIVERS / "libcuda.so.1")
    return program


def storm(stage: Stage, tools: Path, processes: int, ops: int, limit: int, unit: int) -> int:
    """Plays a storm; returns the number of refused allocations of the processes that survived."""
    program = built(tools)
    env = stage.env | stage.grant(limit)
    random.seed(processes * ops)
    gate, opened = os.pipe()
    pipe = {"stdin": gate, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    running = [
        subprocess.Popen([program, str(ops), str(seed), str(unit)], env=env, **pipe)
        for seed in range(processes)
    ]
    os.close(gate)
    try:
        for process in running:  # contexts need room: the first processes would leave none for the last
            assert process.stdout is not None and process.stdout.readline() == "up\n"
        os.close(opened)
        doomed = random.sample(running, processes // 3)
        for process in doomed:
            time.sleep(random.uniform(0, 0.02))
            process.kill()
        refused = 0
        for process in running:
            said, _ = process.communicate(timeout=3000)
            assert process.returncode == (-9 if process in doomed and process.returncode else 0)
            refused += int(said or 0)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return refused


def verdict(stage: Stage, limit: int) -> None:
    assert stage.tag()[1] <= limit
    assert not ledger.alive(stage.ledger())
    said = stage.probe("soname", "init", "ctx", "info", "fill:alloc:1M", env=stage.grant(limit))
    assert said["info"] == [0, limit, limit]  # nothing leaked
    assert said["fill"] == [OOM, limit]
    assert stage.count().peak == limit


def test_who_was_killed_counts_no_more_once_another_has_its_place(stage: Stage, tools: Path) -> None:
    stage.cards(4 * GIB)
    env = stage.env | stage.grant(2 * MIB)
    program, quiet = built(tools), dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    chosen = random.Random(7)
    alive: list[subprocess.Popen[bytes]] = []
    for number in range(1500):
        alive.append(subprocess.Popen([program, "4000", str(number), "8192"], env=env, **quiet))
        while len(alive) >= 8:
            chosen.choice(alive).kill()
            alive = [process for process in alive if process.poll() is None]
    for process in alive:
        process.kill()
        process.wait()
    verdict(stage, 2 * MIB)


def test_a_short_storm(stage: Stage, tools: Path) -> None:
    """16 processes of 7,000 calls; `make test-long` plays 64 of 100,000."""
    stage.cards(4 * GIB)
    refused = storm(stage, tools, 16, 7_000, 64 * MIB, 20_480)  # each alone wants more than the limit
    assert refused > 0  # the limit had an effect
    verdict(stage, 64 * MIB)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_whole_storm(stage: Stage, tools: Path) -> None:
    stage.cards(4 * GIB)
    refused = storm(stage, tools, 64, 100_000, 1 * GIB, 8192)
    assert refused > 0
    verdict(stage, 1 * GIB)
