"""What a shared machine costs: a start through the warden, and a neighbour that takes all it can get.

Goals: a start takes at most 10 ms more than in one's own server. Beside a job that is a fork bomb, a memory
hog and 60 busy processes at once, a job's steps take at most 5 % longer than beside a job that uses the CPU
it requests; the p99 of /healthz and of a page of the list is then at most 20 and 27 ms.
Runs twice: with the weights of jobs, and with `cpu cores` in warden.conf (whole cores are a job's own).
References in the same run, alternating: the own server's supervisor; the well-behaved job of equal requests.
Needs root: it makes accounts and control groups, and removes them. Server, jobs and this process are in one
control group with eight times the weight of any other process, so that other programs do not count as the
hog's effect. More weight would starve kernel threads, on which every process depends. All that it started
ends when it ends, for whatever reason, and after 15 minutes.

Input: made here. `sleep`; steps of a loop in Python; jobs with `--cpu 1 --memory 512M` each. Where version 2
control groups limit memory, the whole hog is killed at that limit and starts again.
"""

from __future__ import annotations

import http.client
import os
import select
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import head, percentile, row, tiny, took

from pliant.engines.local.folder.layout import Folder
from pliant.engines.local.launch.supervisor import NATIVE, answered, spawn
from pliant.engines.local.launch.warden import Walls
from tests.box.box_rig import PYTHON, Box, members, sweep, sweep_the_dead, trees, until
from tests.box.server_rig import ServedBox

JOBS = "/api/v1/workloads"
REQUESTS = ("--cpu", "1", "--memory", "512M", "--backoff-limit", "1000")
LONGEST = 900.0  # seconds
PAUSE = 0.02  # seconds between two requests to the server
HELD = {"by weight": "", "cores of their own": "cpu cores\n"}
"""How jobs share the CPU, and the line of warden.conf for it."""
GOALS = {"/healthz": 20.0, f"{JOBS}?limit=50": 27.0}  # ms

STEPS = """
import sys, time
file = open(sys.argv[1], "w", buffering=1)
while True:
    began, total = time.monotonic(), 0
    for number in range(100_000):
        total += number
    file.write(f"{time.monotonic():.6f} {time.monotonic() - began:.6f}\\n")
"""
"""A neighbour that writes when each of its steps ended and how long it took."""

POLITE = "while True: pass"
HOG = """
import os, time
def child(run):
    while True:
        try:
            pid = os.fork()
        except BlockingIOError:
            time.sleep(0.01)
            continue
        if pid:
            return pid
        run()
        os._exit(0)
def spin():
    while True: pass
def bomb():
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    os.execv("/bin/sh", ["sh", "-c", "f() { f | f & }; while :; do f; done"])
def fill():
    b = bytearray(1 << 30)
    for n in range(0, len(b), 4096): b[n] = 1
for _ in range(60): child(spin)
child(bomb)
while True:
    full = child(fill)
    while os.wait()[0] != full: pass
"""


class Own:
    """Starts a supervisor and its task in the server's account."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def start(self) -> None:
        self.count += 1
        folder = Folder(self.folder / str(self.count))
        folder.path.mkdir(parents=True)
        lock = folder.take_lock()
        assert lock is not None
        order = {
            "argv": ["/bin/sleep", "100000"],
            "cwd": "/",
            "grace_ms": 1000,
            "tty": False,
            "stdin": False,
        }
        env = {"PATH": os.defpath, "PLIANT_ATTEMPT": f"bench/main-0/{self.count}"}
        self.pid, answer = spawn((str(NATIVE),), folder, order, env, lock, 2**20, 1)
        os.close(lock)
        said = answered(answer)
        assert said.startswith("started"), said

    def end(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)


def starts(rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pliant-bench-")).resolve()
    box, own = Box("ben"), Own(folder)
    walls = Walls(memory=512 * 2**20, cpu=1000, processes=1024)
    times: list[tuple[float, float]] = []
    try:
        box.make()
        box.start()
        for _ in range(rounds):
            alone = took(own.start)
            own.end()
            began = time.perf_counter_ns()
            task = box.run(box.alice, ["/bin/sleep", "100000"], walls=walls)
            times.append((alone, (time.perf_counter_ns() - began) / 1e6))
            assert task.said.startswith("started"), task.said
            task.stop()
            os.close(task.pidfd)
    finally:
        box.clean()
        shutil.rmtree(folder)
    alone, walled = map(statistics.median, zip(*times, strict=True))
    reference = (alone, "own server")
    head(f"{rounds} starts of `sleep` each, in turns, until the supervisor says that it runs; medians")
    row("a start in one's own server", alone, "ms", to=reference)
    row("a start through the warden", walled, "ms", to=reference)
    more = statistics.median(after - before for before, after in times)
    row("the warden adds, median of pairs", more, "ms", target=10.0, to=reference)


class Asked:
    """Times in ms of requests to the server, by path."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.times: dict[str, list[float]] = {path: [] for path in GOALS}

    def _ask(self, link: http.client.HTTPConnection, path: str) -> None:
        link.request("GET", path)
        answer = link.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    def for_a_while(self, seconds: float) -> None:
        link = http.client.HTTPConnection("localhost")
        link.sock = socket.socket(socket.AF_UNIX)
        link.sock.connect(str(self._place))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for path, mine in self.times.items():
                mine.append(took(partial(self._ask, link, path)))
                time.sleep(PAUSE)
        link.close()


def steps(file: Path, since: float, end: float) -> list[float]:
    """Seconds of each step that began and ended within that time."""
    found = []
    for line in file.read_text().splitlines()[:-1]:
        at, _, length = line.partition(" ")
        if length and float(at) - float(length) >= since and float(at) <= end:
            found.append(float(length))
    return found


def beside(box: ServedBox, program: str, seconds: float, number: int, asked: Asked) -> tuple[float, float]:
    """Runs `program` as a job of bob for `seconds`. Returns when the measurement began and ended."""
    name, group = f"other-{number}", f"{box.tag}/user-{box.bob.uid}"
    box.good(box.bob, "submit", name, *REQUESTS, "--", PYTHON, "-S", "-c", program)
    enough = 1 if program is POLITE else 100  # the 60 that spin, and processes of the fork bomb
    until(lambda: len(members(group)) >= enough, "it runs")
    began = time.monotonic()
    asked.for_a_while(seconds)
    ended = time.monotonic()
    until(lambda: members(group), "it runs")  # a hog that was killed starts again
    box.good(box.bob, "delete", name)
    until(lambda: not members(group), "it is gone")
    return began, ended


@contextmanager
def ended_with_us(box: Box) -> Iterator[None]:
    """Kills all that is in the box's group as soon as this process is gone, and after LONGEST seconds.

    This is done by a process outside of the group, with real-time priority so that no hog delays it.
    """
    watched, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            os.setsid()
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
            select.select([watched], [], [], LONGEST)
            for tree in trees():
                with suppress(OSError):  # version 1 has no such file: `sweep` kills
                    (tree / box.tag / "cgroup.kill").write_text("1")
            sweep(box.tag)
        finally:
            os._exit(0)
    os.close(watched)
    try:
        yield
    finally:
        os.close(ours)
        os.waitpid(pid, 0)


@contextmanager
def outweighing(box: Box) -> Iterator[None]:
    """Puts this process and all that it starts into the box's group, with eight times the default weight."""
    groups = []
    for tree in trees():
        for name, most in (("cpu.shares", 8 * 1024), ("cpu.weight", 800)):
            if (tree / box.tag / name).exists():
                (tree / box.tag / name).write_text(str(most))
                groups.append((tree, tree / box.tag / "bench"))
    for _, group in groups:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        for tree, _ in groups:
            (tree / "cgroup.procs").write_text(str(os.getpid()))


def neighbours(rounds: int, seconds: float, how: str, rule: str) -> tuple[float, dict[str, float]]:
    """The neighbour's step (percent) and the server's p99 by path beside the hog. `rule`: of warden.conf."""
    box = ServedBox("ben")
    try:
        box.make()
        box.write_config(rule)
        with ended_with_us(box), outweighing(box):
            return pairs(box, rounds, seconds, how)
    finally:
        box.clean()


def pairs(box: ServedBox, rounds: int, seconds: float, how: str) -> tuple[float, dict[str, float]]:
    box.start()
    box.serve()
    for owner in (box.alice, box.bob):
        box.allow(owner)
    notes = box.base / "home-a" / "steps"
    box.good(box.alice, "submit", "steps", *REQUESTS, "--", PYTHON, "-S", "-c", STEPS, str(notes))
    until(notes.exists, "the neighbour runs")
    calm, pressed = Asked(box.socket), Asked(box.socket)
    ratios = []
    for number in range(rounds):
        pair = {}
        for which in (0, 1) if number % 2 else (1, 0):  # a drift over time affects both
            program, asked = ((POLITE, calm), (HOG, pressed))[which]
            began, ended = beside(box, program, seconds, 2 * number + which, asked)
            pair[which] = statistics.mean(steps(notes, began, ended))
        ratios.append(pair[1] / pair[0])
    calm_p99 = {path: percentile(mine, 0.99) for path, mine in calm.times.items()}
    head(f"\n{how}: {rounds} rounds of {seconds:g} s beside each; of {len(ratios)} pairs the median")
    to = (100.0, "beside a well-behaved job")
    row(
        "a neighbour's step beside a hog of everything",
        100 * statistics.median(ratios),
        "%",
        target=105.0,
        to=to,
    )
    row("  of all pairs the most", 100 * max(ratios), "%", to=to)
    for path, goal in GOALS.items():
        reference = (calm_p99[path], f"beside a well-behaved job: {calm_p99[path]:.2f} ms")
        label = f"{path.partition('?')[0]}, p99 beside the hog"
        row(label, percentile(pressed.times[path], 0.99), "ms", target=goal, to=reference)
    slow = {path: percentile(mine, 0.99) for path, mine in pressed.times.items()}
    return 100 * statistics.median(ratios), slow


def main() -> int:
    short = tiny(__doc__)
    if os.geteuid() != 0:
        print("this needs root: it makes accounts and control groups")
        return 1
    sweep_the_dead()
    starts(3 if short else 100)
    for how, rule in HELD.items():
        neighbours(1 if short else 8, 1.0 if short else 3.0, how, rule)
    return 0


if __name__ == "__main__":
    sys.exit(main())
