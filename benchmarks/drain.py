"""500 workloads on 64 simulated GPUs: how long until all are done, and how fast the server answers meanwhile.

Goal: makespan at most 1.15 x (work / 64) + the longest job, work being the sum of GPUs x seconds.

1. In virtual time: the real loop, core and SQLite store over the virtual engine, whose tasks take 0.1 s to
   start. This measures the time that scheduling loses; deciding takes no virtual time. It also shows the real
   time of the cycles.
2. In real time: a server, real processes (`sleep`), submissions by the API one after the other. This includes
   every cost on this machine. Meanwhile two clients request, 20 times a second each, a page of the list and
   /healthz, which answers from the event loop itself: the loop must not be blocked for more than 20 ms.
3. The same while 20,000 workloads of a project with limit 0 are pending; they are written to the store while
   no server runs.

Input: synthetic, seeded, made here. 8 nodes of 8 GPUs, 4 projects with a quota of 16, GPUs 1 (60 %),
2 (20 %), 4 (15 %), 8 (5 %); 60 to 600 s virtual, 0.5 to 3.5 s real (1 GPU each).
References in the same run: (work / 64) + the longest job; `calibrate()`, a loop of plain dictionary work; an
echo process that gets as many requests at the same time.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from measure import (
    Server,
    alternately,
    calibrate,
    cpu_seconds,
    family,
    head,
    percentile,
    resident,
    row,
    tiny,
    took,
    training,
)

from pliant.client import Client
from pliant.control.loop import Loop
from pliant.control.ports import Batch
from pliant.control.service import Service
from pliant.control.state.draft import Draft
from pliant.control.submit.submission import Submission
from pliant.control.submit.variables import Variables
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.devices.simulated import SimulatedDevices
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Machines
from pliant.engines.virtual.timeline import Timeline
from pliant.model.tenancy import Project
from pliant.model.workload import Kind, Launch, Phase, Request, Task, TaskGroup, Workload
from pliant.store import open_store
from pliant.store.folder import StateFolder

NODES, GPUS, PROJECTS = 8, 8, 4
RATE = 20  # requests a second
START = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    gpus: int
    ms: int  # run time on the GPUs that it requests


def jobs(count: int, *, shortest: int, longest: int, single: bool) -> list[Job]:
    """Seeded: the same every time. Times in ms."""
    draw = random.Random(500)
    found = []
    for number in range(count):
        gpus = draw.choices((1, 2, 4, 8), (60, 20, 15, 5))[0]
        found.append(Job(f"w{number}", 1 if single else gpus, draw.randrange(shortest, longest)))
    return found


def least(work: list[Job]) -> tuple[float, float]:
    """(work / GPUs, the longest job) in seconds."""
    return sum(job.gpus * job.ms for job in work) / NODES / GPUS / 1e3, max(job.ms for job in work) / 1e3


class VirtualLoop(Loop):
    """Runs the cycles that are due on the caller's thread and records how long each took (ms)."""

    cycle_ms: list[float]

    def call(self, run: Callable[[Draft], object], timeout: float = 60) -> object:  # type: ignore[override]
        answer: Future[object] = self.submit(run)
        self.settle()
        return answer.result(0)

    def settle(self) -> None:
        """Run cycles until there is no news and none is due."""
        while True:
            news = self._wait(0)
            self.cycle_ms.append(took(partial(self.cycle, news)))
            if not news and not self.due:
                return


def virtual(count: int) -> None:
    work = jobs(count, shortest=60_000, longest=600_000, single=False)
    timeline = Timeline(START)
    nodes = SimulatedDevices([f"{NODES}x{GPUS}"], "bench").nodes()
    engine = VirtualEngine(
        Machines(timeline, [replace(node, engine="virtual") for node in nodes], start_latency=100)
    )
    with (
        tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder,
        contextlib.closing(open_store(Path(folder) / "pliant.db")) as store,
    ):
        loop = VirtualLoop(store, {engine.name: engine}, timeline)
        loop.cycle_ms = []
        loop.open()
        service = Service(loop, {engine.name: engine})
        service.bootstrap()
        for number in range(PROJECTS):
            quota = QuotaChange(gpu=1000 * NODES * GPUS // PROJECTS)
            service.create_project(QueueChange(name=f"p{number}", quotas=(("default", quota),)), "bench")
        began = time.perf_counter()
        for number, job in enumerate(work):
            asked = Submission(
                f"p{number % PROJECTS}",
                Launch("ubuntu", ("true",)),
                name=job.name,
                gpus=job.gpus * 1000,
                variables=Variables((("PLIANT_VIRTUAL_SECONDS", str(job.ms / 1000)),)),
            )
            service.submit(service.check(asked), "me")
        submitted, loop.cycle_ms = loop.cycle_ms, []
        decisions: list[float] = []
        while timeline.step():
            while timeline.next() == timeline.now():
                timeline.step()
            loop.settle()
            decisions.append(loop.board.cycle_us / 1e3)
        wall = time.perf_counter() - began
        views = loop.board.workloads.values()
        assert all(view.workload.phase is Phase.COMPLETED for view in views), "every job is done"
        makespan = (max(view.workload.completed or 0 for view in views) - START) / 1e3
    area, longest = least(work)
    (reference,) = alternately(5, calibrate)
    to_bound, to_loop = (area + longest, "work / 64 + the longest"), (reference, "calibrate()")
    head(
        f"virtual time: {count} workloads, {len(loop.cycle_ms)} cycles, {wall:.1f} s in all; "
        f"calibrate() {reference:.1f} ms"
    )
    row("makespan", makespan, "s", target=round(1.15 * area + longest, 1), to=to_bound)
    for label, times in (("submitting", submitted), ("draining", loop.cycle_ms)):
        row(f"a cycle while {label}, p50", statistics.median(times), "ms", to=to_loop)
        row(f"a cycle while {label}, p99", percentile(times, 0.99), "ms", to=to_loop)
    row("of that the decision, p50", statistics.median(decisions), "ms", to=to_loop)
    row("of that the decision, p99", percentile(decisions, 0.99), "ms", to=to_loop)


ECHO = """
import asyncio
async def answer(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextlib.contextmanager
def echo() -> Iterator[str]:
    """The address of a process that only answers: its times show how long any event loop waits here."""
    with subprocess.Popen(
        [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class Asker:
    """Repeats a request on a kept connection and records how long each answer took (ms)."""

    def __init__(self, address: str, path: str, token: str = "") -> None:
        self.times: list[float] = []
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._path, self._headers = path, {"Authorization": f"Bearer {token}"}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def ask(self) -> bytes:
        self._connection.request("GET", self._path, headers=self._headers)
        return self._connection.getresponse().read()

    def __enter__(self) -> Asker:
        self.ask()  # connects
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._done.wait(1 / RATE):
            self.times.append(took(self.ask))


def crowd(server: Server, count: int) -> None:
    """Adds `count` pending workloads, written to the store while no server runs."""
    with server.client() as client:
        quota = {"resources": [{"nodePool": {"name": "default"}, "gpu": {"limit": 0, "deserved": 0}}]}
        client.call("POST", "/api/v1/org-unit/projects", body={"name": "crowd", **quota})
    server.run("down", "--yes")
    with contextlib.closing(open_store(StateFolder(server.folder / "state").database)) as store:
        project = next(row.id for row in store.load().of(Project) if row.name == "crowd")
        group = TaskGroup("task", Request(1, cpu=100, memory=100 * 2**20))
        now, rows = time.time_ns() // 10**6, []
        for number in range(count):
            wid = f"crowd-{number}"
            row = Workload(wid, wid, project, Kind.TRAINING, Launch("ubuntu", ("true",)), (group,))
            rows.append(replace(row, serial=number + 1, created=now, phase=Phase.PENDING, phase_since=now))
            rows.append(Task(wid, "task-0", "task", 0))
        store.commit(store.lead(), Batch(put=rows))
    server.start()


def real(count: int, waiting: int) -> None:
    work = jobs(count, shortest=500, longest=3500, single=True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(f"{NODES}x{GPUS}"))
        if waiting:
            crowd(server, waiting)
        client, other = stack.enter_context(server.client()), stack.enter_context(echo())
        submits: list[float] = []
        pids = family(server.pid)
        address, token = client.url.removeprefix("http://"), server.token()
        with (
            Asker(address, "/api/v1/workloads?limit=50", token) as page,
            Asker(address, "/healthz") as health,
            Asker(other, "/") as reference,
        ):
            began, used = time.monotonic(), sum(map(cpu_seconds, pids))
            for job in work:
                body = training(job.name, "sleep", str(job.ms / 1e3))
                submits.append(took(partial(client.submit, "Training", body)))
            submitted = time.monotonic() - began
            while done(client) < count:
                time.sleep(0.1)
            makespan, used = time.monotonic() - began, sum(map(cpu_seconds, pids)) - used
            memory = sum(map(resident, pids))
        everything = statistics.median(took(lambda: list(client.workloads())) for _ in range(5))
    area, longest = least(work)
    to_bound = (area + longest, "work / 64 + the longest")
    to_echo = [
        (percentile(reference.times, share), f"an echo server's p{share * 100:g}") for share in (0.5, 0.99)
    ]
    head(
        f"real time: {count} workloads while {waiting} wait, submitted in {submitted:.1f} s; listing all"
        f" takes {everything:.0f} ms; server and decider have {memory:.0f} MB"
    )
    row("makespan", makespan, "s", target=round(1.15 * area + longest, 1), to=to_bound)
    row(
        "CPU time of server and decider a workload",
        1e3 * used / count,
        "ms",
        to=(alternately(5, calibrate)[0], "calibrate()"),
    )
    for label, times, goal in (
        ("a page of the list", page.times, None),
        ("/healthz", health.times, 20),
        ("a submission", submits, 100),
    ):
        row(f"{label}, p50", percentile(times, 0.5), "ms", to=to_echo[0])
        row(f"{label}, p99", percentile(times, 0.99), "ms", target=goal, to=to_echo[1])


def done(client: Client) -> int:
    """How many have completed."""
    answer = client.call("GET", "/api/v1/workloads/count", query=[("filterBy", "phase==Completed")])
    return int(answer["count"])


def main() -> int:
    short = tiny(__doc__)
    count = 20 if short else 500
    virtual(count)
    real(count, 0)
    real(count, 200 if short else 20_000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
