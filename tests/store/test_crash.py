"""kill -9 at any instant: acknowledged batches are stored, none is stored in part, and work continues."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from threading import Thread

import pytest

from pliant.control.ports import Saved, StaleEpoch
from pliant.model.workload import Attempt, Task, Workload
from pliant.store import StoreBusy, connect, open_store
from tests.house.seeds import seed_or
from tests.store.samples import running

KILLS = 15  # per store
PATIENCE = 180  # seconds for a process to end


class Writer:
    """A process that commits in a loop and prints the number of each batch after its commit."""

    def __init__(self, where: str | Path, threads: int) -> None:
        read, write = os.pipe()
        fork = multiprocessing.get_context("fork")  # a fresh interpreter takes most of the test's time
        self.process = fork.Process(target=commit_without_end, args=(where, threads, write))
        self.process.start()
        os.close(write)
        self.lines: TextIOWrapper = os.fdopen(read)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def rest(self) -> list[str]:
        """Its output until it ends, without an unfinished last line."""
        said = self.lines.read().split("\n")[:-1]
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None
        return said


def commit_without_end(where: str | Path, threads: int, out: int) -> None:
    connect.HANGS = 60_000  # a pause of seconds on a busy machine must not count as a hung leader
    store = open_store(where)
    epoch = store.lead()
    first = int(store.load().settings["serial"]) + 1
    os.write(out, b"ready\n")

    def write(number: int) -> None:
        try:
            while True:
                store.commit(epoch, replace(running(number), durable=number % 3 > 0))
                os.write(out, b"%d\n" % number)
                number += threads
        except StaleEpoch as error:
            os.write(out, f"stale {error}\n".encode())

    lanes = [Thread(target=write, args=(first + lane,)) for lane in range(threads)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    store.close()


@contextmanager
def writer(where: str | Path, threads: int) -> Iterator[Writer]:
    made = Writer(where, threads)
    try:
        assert made.lines.readline() == "ready\n"
        yield made
    finally:
        made.process.kill()
        made.process.join(PATIENCE)
        made.lines.close()


def whole(saved: Saved) -> set[int]:
    """Numbers of the stored batches; asserts that none is stored in part."""
    numbers = {w.serial for w in saved.of(Workload)}
    assert (
        {t.workload for t in saved.of(Task)}
        == {a.id.workload for a in saved.of(Attempt)}
        == {f"w-{n}" for n in numbers}
    )
    return numbers


def test_killed_at_random_instants_it_keeps_what_it_answered(where: str | Path) -> None:
    chance = random.Random(seed_or(20261121))
    known: set[int] = set()
    for _ in range(KILLS):
        with writer(where, threads=chance.choice([1, 4])) as child:
            # The instant: after a number of answers, which holds on any machine, and a little later.
            heard = {int(child.lines.readline()) for _ in range(chance.choice([0, 1, 2, 5, 10]))}
            time.sleep(chance.uniform(0, 0.02))
            child.signal(signal.SIGKILL)
            known |= heard | {int(line) for line in child.rest()}
        store = open_store(where)
        saved = store.load()
        store.close()
        there = whole(saved)
        assert known <= there
        assert int(saved.settings["serial"]) == max(there, default=0)
    assert len(known) > KILLS


def test_a_writer_whose_epoch_is_over_stops(where: str | Path) -> None:
    """It is suspended at work, another server takes over, and it wakes up again."""
    with writer(where, 3) as child:
        for _ in range(5):
            child.lines.readline()
        store = open_store(where)
        epoch = store.lead()
        there = whole(store.load())
        said = child.rest()
        assert child.process.exitcode == 0
        assert said.count(f"stale epoch {epoch - 1} is over: epoch {epoch} leads now") == 3
        assert whole(store.load()) == there  # nothing was written after the epoch was raised
        store.close()


def test_a_writer_that_sleeps_wakes_up_stale(where: str | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP may come while it holds the write lock: until that is free, lead() raises StoreBusy."""
    monkeypatch.setattr(connect, "WAIT", 200)
    with writer(where, 1) as child:
        child.signal(signal.SIGSTOP)
        store = open_store(where)
        epoch = None
        while epoch is None:
            try:
                epoch = store.lead()
            except StoreBusy:
                child.signal(signal.SIGCONT)
                child.lines.readline()
                child.signal(signal.SIGSTOP)
        there = whole(store.load())
        child.signal(signal.SIGCONT)
        assert f"stale epoch {epoch - 1} is over: epoch {epoch} leads now" in child.rest()
        assert whole(store.load()) == there
        store.close()
