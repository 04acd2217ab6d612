"""Supervisors are killed, and a stopped server wakes after another one took over."""

import os
import signal
from pathlib import Path

import pytest

from tests.crash.rig import JOB, LITTERING, Rig


def attempt_number(rig: Rig, name: str) -> int:
    identity = rig.submitted[name]
    numbers = [int(attempt.split("/")[2]) for attempt in rig.alive() if attempt.startswith(identity)]
    return max(numbers, default=0)


def supervisors(rig: Rig, name: str) -> list[int]:
    """The supervisors among the job's processes."""
    pids = [
        pid
        for attempt, pids in rig.alive().items()
        if attempt.startswith(rig.submitted[name])
        for pid in pids
    ]
    return [pid for pid in pids if b"supervise" in program(pid)]


def program(pid: int) -> bytes:
    """The first word of its command line; b"" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return b""


@pytest.mark.parametrize("script", [JOB, LITTERING], ids=["tidy", "littering"])
@pytest.mark.parametrize("server_lives", [True, False])
def test_supervisor_killed(rig: Rig, script: str, server_lives: bool) -> None:
    rig.start()
    rig.submit("job", 1, script)
    rig.settled({"job": "Running"})
    rig.until(lambda: len(rig.starts()) == 1, "the job wrote down its start")
    (supervisor,) = supervisors(rig, "job")
    if not server_lives:
        rig.kill()
    os.kill(supervisor, signal.SIGKILL)
    if not server_lives:
        rig.start()
    rig.until(lambda: len(rig.starts()) == 2, "the next attempt wrote down its start")
    rig.settled({"job": "Running"})
    rig.verify()
    assert attempt_number(rig, "job") == 2
    assert len(rig.alive()) == 1, "something of the lost attempt still lives"


def test_woken_server_finds_itself_replaced(rig: Rig) -> None:
    rig.start()
    rig.submit("job", 1)
    rig.settled({"job": "Running"})
    sleeper = rig.server
    assert sleeper is not None
    sleeper.send_signal(signal.SIGSTOP)
    try:
        rig.start(take_over=True)
        rig.settled({"job": "Running"})
    finally:
        sleeper.send_signal(signal.SIGCONT)
    rig.delete("job")  # both servers see its end; the woken one may not record it
    rig.until(lambda: sleeper.poll() is not None, "the woken server exits")
    assert sleeper.poll() == 9
    rig.submit("second", 1)
    rig.settled({"second": "Running"})
    rig.verify()
