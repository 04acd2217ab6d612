"""Processes that use a GPU without a job: reported after two looks, ended only if the setting says so."""

import errno
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator

import pytest

from pliant.devices.strays import GRACE_SECONDS, Strays
from pliant.engines.local.observe.processes import started
from pliant.model.workload import AttemptId


class Stage:
    """Real processes of this account; the test decides what the driver reports of them."""

    def __init__(self) -> None:
        self.on: dict[str, dict[int, int]] = {}
        self.ours: set[int] = set()
        self.now = 100.0
        self.sent: list[tuple[int, int]] = []
        self.refuses = False

    def end(self, pid: int, start: int, number: int) -> None:
        assert start == started(pid)
        if self.refuses:
            raise OSError(errno.EPERM, f"process {pid} is of uid 0")
        self.sent.append((pid, number))

    def strays(self, stop: bool = False) -> Strays:
        task = AttemptId("w", "task-0", 1)
        return Strays(
            lambda: self.on,
            lambda pid: task if pid in self.ours else None,
            started,
            self.end if stop else None,
            clock=lambda: self.now,
        )


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "100000"]) as made:
        yield made
        made.kill()


def test_what_is_there_twice_is_named_and_left_alone(process: subprocess.Popen[bytes]) -> None:
    stage = Stage()
    strays = stage.strays()
    stage.on = {"GPU-0": {process.pid: 5, os.getpid(): 7}, "GPU-1": {process.pid: 6}, "GPU-2": {2**22 + 1: 1}}
    stage.ours = {os.getpid()}
    strays.look()
    assert strays.found == (), "the end of a job may fall between two looks"
    strays.look()
    (one,) = strays.found
    assert (one.pid, one.user, one.program) == (process.pid, pwd.getpwuid(os.getuid()).pw_name, "sleep")
    assert one.memory == {"GPU-0": 5, "GPU-1": 6}
    stage.on = {"GPU-1": {process.pid: 9}}
    strays.look()
    assert strays.found[0].memory == {"GPU-1": 9}
    stage.on = {}
    strays.look()
    assert strays.found == () and process.poll() is None


def test_another_process_with_its_number_is_not_the_same(
    process: subprocess.Popen[bytes],
) -> None:
    stage = Stage()
    starts = iter([1, 2, 3])
    on = {"GPU-0": {process.pid: 5}}
    strays = Strays(lambda: on, lambda pid: None, lambda pid: next(starts), stage.end)
    for _ in range(3):
        strays.look()
    assert strays.found == () and stage.sent == []


def test_where_it_is_wanted_it_is_asked_to_end_and_then_ended(process: subprocess.Popen[bytes]) -> None:
    stage = Stage()
    strays = stage.strays(stop=True)
    stage.on = {"GPU-0": {process.pid: 5}}
    strays.look()
    assert stage.sent == []
    strays.look()
    assert stage.sent == [(process.pid, signal.SIGTERM)]
    stage.now += GRACE_SECONDS - 1
    strays.look()
    assert len(stage.sent) == 1
    stage.now += 1
    strays.look()
    assert stage.sent[1:] == [(process.pid, signal.SIGKILL)]


def test_what_may_not_be_ended_stays_named_and_is_asked_once(
    process: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    stage.refuses = True
    strays = stage.strays(stop=True)
    stage.on = {"GPU-0": {process.pid: 5}}
    for _ in range(4):
        strays.look()
        stage.now += GRACE_SECONDS
    assert [one.pid for one in strays.found] == [process.pid]
    assert caplog.text.count("is left alone: process") == 1
