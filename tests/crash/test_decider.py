"""The decider is killed at random instants under load; PLIANT_SEED repeats a storm.

Nothing is lost, nothing runs twice, every accepted request is kept, and every question is answered.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pliant.client.errors import NotFound, PliantError
from tests.crash.rig import Rig
from tests.house.seeds import seed_or


def decider_of(rig: Rig) -> int | None:
    """The decider's process; None while there is none."""
    assert rig.server is not None
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            if entry.name.isdigit() and b"pliant.control.decider.process" in (entry / "cmdline").read_bytes():
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == rig.server.pid:
                    return int(entry.name)
    return None


class Asker(threading.Thread):
    """Repeatedly asks why a workload waits."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig
        self.done = threading.Event()
        self.answers = 0
        self.failures: list[str] = []

    def run(self) -> None:
        with self._rig.client() as client:
            while not self.done.wait(0.05):
                for identity in list(self._rig.submitted.values())[-1:]:
                    try:
                        client.why(identity)
                        self.answers += 1
                    except NotFound:
                        pass  # it was deleted meanwhile
                    except PliantError as error:
                        self.failures.append(str(error))


def storm(rig: Rig, kills: int) -> None:
    seed = seed_or(20261122)
    dice = random.Random(seed)
    rig.start()
    asker, made, killed = Asker(rig), 0, 0
    asker.start()
    try:
        while killed < kills:
            for _ in range(dice.randint(1, 3)):
                crowded = len(rig.submitted) > 6
                if rig.submitted and (crowded or dice.random() < 0.4):
                    rig.delete(dice.choice(sorted(rig.submitted)))
                else:
                    made += 1
                    name = f"job-{made}"
                    accepted = rig.submit(name, dice.randint(1, 3), elastic=dice.random() < 0.5)
                    assert accepted, f"{name} was refused"
            time.sleep(dice.uniform(0, 1.2))
            pid = decider_of(rig)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            assert not rig.died(), "the server ended with its decider"
    finally:
        asker.done.set()
        asker.join()

    rig.until(rig.calm, "all runs or waits", seen=rig.phases)
    rig.verify()
    assert set(rig.items()) == set(rig.submitted)
    assert not asker.failures, asker.failures[:3]
    print(f"seed {seed}: {killed} kills, {made} submissions, {asker.answers} questions answered")


def test_the_decider_is_killed_a_few_times(rig: Rig) -> None:
    storm(rig, 8)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_decider_is_killed_a_hundred_times(rig: Rig) -> None:
    storm(rig, 100)


def test_a_decider_that_ends_while_nothing_happens_is_told_all_at_once(rig: Rig) -> None:
    rig.start()
    rig.submit("first", 4)
    second = rig.submit("second", 4)
    assert second is not None
    rig.settled({"first": "Running", "second": "Pending"})
    before = decider_of(rig)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    rig.until(lambda: decider_of(rig) not in (None, before), "there is another one")
    with rig.client() as client:
        assert client.why(second)["unblock"] is not None


def test_while_the_decider_hangs_the_server_says_so_and_answers(rig: Rig) -> None:
    rig.start()
    first = rig.submit("first", 4)
    rig.until(lambda: rig.items()["first"]["phase"] == "Running", "the first one runs")
    rig.submit("second", 4)
    pid = decider_of(rig)
    assert pid is not None and first is not None
    os.kill(pid, signal.SIGSTOP)
    third = rig.submit("third", 1)
    assert third is not None, "a request is accepted all the same"
    with rig.client() as client:
        rig.until(lambda: client.call("GET", "/healthz")["status"] == "degraded", "it says so")
        detail = client.call("GET", "/healthz")["detail"]
        assert "has not answered for" in detail
        assert {"first", "second", "third"} <= set(rig.items())
        said = client.why(third)
        assert client.trouble and said["unblock"] is None
    os.kill(pid, signal.SIGCONT)
    rig.delete("first")
    rig.until(lambda: rig.items()["second"]["phase"] == "Running", "it goes on where it was")
    with rig.client() as client:
        assert client.call("GET", "/healthz") == {"status": "ok"}
        assert client.trouble == ""
    rig.verify()
