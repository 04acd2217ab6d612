"""Trouble around Pliant: a full disk, a clock that goes back."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.walkthrough import Done, Stage
from tests.e2e.witness import client, statuses, until
from tests.house.gaps import gap

IMAGE = "-i gcr.io/run-ai-demo/quickstart"

SHIFTED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* The wall clock, moved by as many seconds as the file CLOCK_SHIFT says at the time. */
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    long shift = 0;
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (id == CLOCK_REALTIME) {
        FILE *file = fopen(getenv("CLOCK_SHIFT"), "r");
        if (file) { if (fscanf(file, "%ld", &shift) != 1) shift = 0; fclose(file); }
        at->tv_sec += shift;
    }
    return result;
}
"""


def typed(stage: Stage, command: str) -> Done:
    """Runs a command, which must succeed."""
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}\n{the_server(stage)}"
    return done


def the_server(stage: Stage) -> str:
    """The end of the server's log and its processes, to explain why it does not answer."""
    log = stage.state / "server.log"
    lines = log.read_text(errors="replace").splitlines()[-40:] if log.exists() else ["there is no log"]
    return "\n".join([*lines, f"processes: {stage.processes()}"])


def test_a_clock_set_back(stage: Stage, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        gap("no C compiler", "install gcc or clang")
    (tmp_path / "clock.c").write_text(SHIFTED_CLOCK)
    library, shift = tmp_path / "clock.so", tmp_path / "shift"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"], check=True, timeout=60
    )
    shift.write_text("0")
    shifted = f"LD_PRELOAD={library} CLOCK_SHIFT={shift}"
    typed(stage, f"{shifted} pliant up --simulate 1x2")
    typed(stage, f"runai submit before {IMAGE} -g 1 --elastic")
    typed(stage, "runai submit bad -i ubuntu --command -- false")
    until(lambda: statuses(stage) == {"before": "Running", "bad": "Error"}, "one job to run, one to fail")
    shift.write_text("-3600")
    for name in ("while", "after"):
        typed(stage, f"runai submit {name} -i ubuntu -g 1 --command -- sleep infinity")
        both = {"before": "Running", name: "Running"}
        until(lambda both=both: both.items() <= statuses(stage).items(), f"{name} to run beside the first")
        typed(stage, f"runai delete {name}")
        if name == "while":
            typed(stage, f"{shifted} pliant restart")
    until(lambda: len(attempts(stage, "bad")) > 1, "a retry after its pause of seconds, not of an hour")
    with client(stage) as api:
        for job in api.workloads():
            times = [event["createdAt"] for event in api.events(job["id"])]
            assert times == sorted(times), "history goes forward"
            assert job["totalRunningTimeSeconds"] < 1800, "not the hour that the clock went back"


def attempts(stage: Stage, name: str) -> list[Path]:
    with client(stage) as api:
        identity = next(item["id"] for item in api.workloads() if item["name"] == name)
    return list((stage.state / "attempts" / identity).glob("*/*"))


@dataclass
class SmallDisk:
    """A file system of a few megabytes, for the state folder, and a file that fills it."""

    folder: Path

    @property
    def ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        with self.ballast.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        self.ballast.unlink(missing_ok=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    disk.folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(disk.folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        gap("no small disk", "run as root, with the right to mount a tmpfs")
    try:
        yield disk
    finally:
        unmount = ["umount", str(disk.folder)]  # an ending process releases its memory before its files
        until(lambda: subprocess.run(unmount, capture_output=True, check=False).returncode == 0, "the disk")


def has_ended(pid: int) -> bool:
    """True if it has no open files: it is gone or a zombie."""
    try:
        return not os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return True


def test_a_full_disk(small_disk: SmallDisk) -> None:
    """Jobs run on and can be stopped and deleted, a server starts again, nothing else is accepted; once there
    is room again all continues."""
    stage = Stage(small_disk.folder / "stage")
    try:
        typed(stage, "pliant up --simulate 1x4")
        for name in ("stopped", "gone"):
            typed(stage, f"runai submit {name} -i ubuntu -g 1 --command -- sleep 3600")
        everybody = {"stopped": "Running", "gone": "Running"}
        until(lambda: statuses(stage) == everybody, "all of them")
        small_disk.fill()
        done = stage.run(f"runai submit more {IMAGE} -g 1")
        assert done.code != 0 and "Traceback" not in done.said, done.said
        assert "disk is nearly full" in done.err and "Free space in" in done.err, done.said
        assert statuses(stage) == everybody, "what was refused has changed nothing"
        small_disk.fill()
        typed(stage, "pliant suspend stopped")
        until(lambda: statuses(stage)["stopped"] == "Suspended", "the suspended job")
        typed(stage, "pliant delete gone")
        until(lambda: "gone" not in statuses(stage), "the deleted job")
        small_disk.empty()
        typed(stage, f"runai submit soon {IMAGE} -g 1")
        pid = json.loads((stage.state / "server.json").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: has_ended(pid), "its end")
        small_disk.fill()
        typed(stage, "pliant up")
        assert statuses(stage)["stopped"] == "Suspended"
        small_disk.empty()
        lines = Path(f"{small_disk.folder}.lines")  # outside: one byte for each printed line
        script = f"pad=$(printf %04000d 0); while :; do echo $pad; printf . >> {lines}; sleep 0.01; done"
        typed(stage, f"runai submit talks -i ubuntu -g 1 --command -- sh -c '{script}'")
        until(lambda: "0000" in stage.run("runai logs talks --tail 1").out, "its first lines")
        (folder,) = attempts(stage, "talks")
        small_disk.fill()
        assert statuses(stage)["talks"] == "Running"
        printed = lines.stat().st_size
        until(
            lambda: lines.stat().st_size > printed + 40,
            "more output than the log's last page and a pipe hold",
        )
        small_disk.empty()
        until(lambda: "bytes of output are missing here" in (folder / "log").read_text(), "a note in the log")
        until(lambda: stage.run(f"runai submit later {IMAGE} -g 1").code == 0, "the server to recover")
        until(lambda: statuses(stage).get("talks") == "Running", "the first job")
        assert len(attempts(stage, "talks")) == 1, "it was never disturbed"
    finally:
        small_disk.empty()
        left = stage.close()
    assert left == {}
