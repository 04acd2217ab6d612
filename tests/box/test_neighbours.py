"""One job takes all processes, memory and processors it can get: it is limited, and its history says so."""

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.box.box_rig import PYTHON, Box, members, until
from tests.box.conftest import requirements
from tests.box.server_rig import ServedBox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOG = """
import os, signal
busy = 0
while True:
    try:
        pid = os.fork()
    except BlockingIOError:
        break
    if pid == 0:
        os.nice(19)
        while busy < 20: pass
        signal.pause()
    busy += 1
print("no more processes", flush=True)
b = bytearray(1 << 30)
for n in range(0, len(b), 4096): b[n] = 1
"""
"""Starts as many processes as it can, of which twenty compute, then takes memory until it is killed.

Those that compute have a low priority, so that the first process makes progress. This does not matter to the
neighbours: a job's priorities count only inside it.
"""


@pytest.fixture(scope="module")
def box():
    requirements()
    made = ServedBox("ngh")
    try:
        made.make()
        made.start()
        made.serve()
        for owner in (made.alice, made.bob):
            made.allow(owner)
        yield made
    finally:
        made.clean()


@pytest.fixture(autouse=True)
def nothing_left():
    """The whole box goes at the end."""


def told(box, owner, name) -> list[str]:
    """The history of a job."""
    status, said = box.ask(owner.uid, "GET", f"/api/v1/workloads/{box.job(owner, name)}/events")
    assert status == 200, said
    return [event["message"] for event in said["events"]]


def test_a_hog_of_everything_is_named_with_its_limits(box):
    box.good(box.bob, "submit", "neighbour", "--", "sh", "-c", "echo begun; exec sleep 100000")
    neighbour = box.job(box.bob, "neighbour")
    until(lambda: b"begun" in box.log(box.bob, neighbour), "the neighbour runs")
    hers = members(f"{box.tag}/user-{box.bob.uid}")
    words = ("submit", "hog", "--memory", "512M", "--cpu", "1", "--backoff-limit", "0")
    box.good(box.alice, *words, "--", PYTHON, "-S", "-c", HOG)
    until(lambda: box.row(box.alice, "hog")["phase"] == "Failed", "it is ended at its limit")
    said = next(it for it in told(box, box.alice, "hog") if "ran out of memory" in it)
    assert "of the 488.3 MiB that it may have" in said, said  # 512 MB
    assert "it had the 1024 processes that it may have, and another was refused" in said, said
    assert said in json.dumps(told(box, box.bob, "hog")), "its neighbours hear of it as well"
    until(lambda: not members(f"{box.tag}/user-{box.alice.uid}"), "nothing of it is left")
    assert members(f"{box.tag}/user-{box.bob.uid}") == hers
    box.good(
        box.alice, "submit", "bomb", "--backoff-limit", "0", "--", "sh", "-c", "f() { f | f & }; f; exit 3"
    )
    until(lambda: box.row(box.alice, "bomb")["phase"] in ("Failed", "Completed"), "its shell has ended")
    assert members(f"{box.tag}/user-{box.bob.uid}") == hers


def test_a_job_is_ended_although_its_supervisor_hangs(box):
    project = box.ask(0, "GET", "/api/v1/org-unit/projects")[1]["projects"][0]["id"]
    spec = {"command": "sleep", "args": "100000", "terminationGracePeriodSeconds": 1}
    body = {"name": "hangs", "projectId": project, "spec": spec}
    status, said = box.ask(box.alice.uid, "POST", "/api/v1/workloads/trainings", body)
    assert status == 202, said
    group = f"{box.tag}/user-{box.alice.uid}"
    (pid,) = until(lambda: members(group), "it runs")
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGSTOP)
    try:
        box.good(box.alice, "delete", "hangs")
        until(lambda: not members(group), "nothing of it is left")
    finally:
        os.kill(supervisor, signal.SIGCONT)


def measured():
    file = Path(__file__).parents[2] / "benchmarks" / "box.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_boxes", file)
    made = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(file.parent))
    return made


def test_a_measurement_that_is_killed_leaves_nothing_behind():
    requirements()
    box = Box("end")
    try:
        box.make()
        box.start()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                with measured().ended_with_us(box):
                    os.write(writer, b"!")
                    signal.pause()
            finally:
                os._exit(1)
        task = box.shell(box.bob, "trap '' TERM; while :; do sleep 1; done")
        assert os.read(reader, 1) == b"!" and task.pids()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        until(lambda: not members(box.tag), "the job has ended, too")
        until(lambda: not box.base.exists(), "its folders are gone")
    finally:
        box.clean()


@pytest.mark.long
def test_a_neighbour_beside_a_hog_of_everything_keeps_its_pace():
    """With `cpu cores`, on a quiet machine: compared with the same neighbour beside a job that keeps to its
    request. The hog is a fork bomb up to its limit of processes, a memory hog and sixty busy processes.
    """
    requirements()
    benchmark = measured()
    step, slowest = benchmark.neighbours(8, 3.0, "cores of their own", benchmark.HELD["cores of their own"])
    assert step <= 105, f"{step:.1f} %"
    assert {path: f"{ms:.1f} ms" for path, ms in slowest.items() if ms > benchmark.GOALS[path]} == {}
