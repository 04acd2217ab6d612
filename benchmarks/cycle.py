"""How long one decision takes: 500 workloads pending on 64 GPUs of which none is free.

Input: synthetic, made here. 8 nodes of 8 GPUs, 4 projects with a quota of 16 each, 64 one-GPU trainings
running (16 of each project), 500 more pending (1, 2, 4 or 8 GPUs, half a GPU, gangs of four). Reference in
the same run: `calibrate()`, a loop of plain dictionary work, to compare machines. The goal is 10 ms.
Times are CPU time of this process, which has one thread, so other load on the machine matters little.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from pliant.model.machine import Gpu, Node, NodePool, Placement, Share
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.workload import Desired, Kind, Launch, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

NODES, GPUS, PENDING, ROUNDS = 8, 8, 500, 30
NOW = 100_000_000
CARD = 16 * 2**30


def calibrate() -> int:
    """A fixed amount of dictionary and integer work, the reference."""
    table: dict[int, int] = {}
    for i in range(100_000):
        table[i % 997] = table.get(i % 997, 0) + i
    return sum(table.values())


def cluster() -> list[NodePool | Department | Project | Node]:
    nodes = [
        Node(
            f"n{n}",
            tuple(Gpu(f"n{n}.{i}", i, CARD) for i in range(GPUS)),
            cpu=16_000 * GPUS,
            memory=GPUS * 64 * 2**30,
        )
        for n in range(NODES)
    ]
    projects = [
        Project(f"p{i}", f"p{i}", (("default", Quota(gpu=16_000)),), i, department="default")
        for i in range(4)
    ]
    return [NodePool("default", "default"), Department("default", "default", derived=True), *projects, *nodes]


def shape(serial: int) -> TaskGroup:
    """The task group of the serial-th pending workload."""
    requests = [Request(1), Request(2), Request(4), Request(8), Request(1, 500), Request(1, 250)]
    if serial % 7 == 6:
        return TaskGroup("main", Request(1), 4, 4, 4)
    return TaskGroup("main", requests[serial % len(requests)])


def workloads(pending: int) -> list[Workload | Task]:
    rows: list[Workload | Task] = []
    for serial in range(NODES * GPUS + pending):
        runs = serial < NODES * GPUS
        group = TaskGroup("main", Request(1)) if runs else shape(serial)
        name = f"w{serial}"
        rows.append(
            Workload(name, name, f"p{serial % 4}", Kind.TRAINING, Launch("image"), (group,), serial=serial)
        )
        for index in range(group.max):
            task = Task(name, f"main-{index}", "main", index)
            if runs:
                uuid = f"n{serial // GPUS}.{serial % GPUS}"
                place = Placement(f"n{serial // GPUS}", (Share(uuid, memory=CARD),))
                task = replace(
                    task,
                    phase=TaskPhase.RUNNING,
                    claims=place,
                    carries=place,
                    attempt=1,
                    started=NOW - 3_600_000,
                )
            rows.append(task)
    return rows


def median_ms(run: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        began = time.process_time_ns()
        run()
        times.append(time.process_time_ns() - began)
    return statistics.median(times) / 1e6


def main() -> int:
    reference = median_ms(calibrate)
    settings = Settings()
    rows = [*cluster(), *workloads(PENDING)]

    def build() -> World:
        world = World()
        for row in rows:
            world.put(row)
        return world

    world = build()
    plan = decide(world, NOW, settings)
    assert plan.empty and len(plan.verdicts) == PENDING, "the input is meant to leave nothing to decide"
    one = next(row for row in rows if isinstance(row, Workload))
    running = world.tasks[one.id, "main-0"]

    def change_and_decide() -> None:
        """A running workload is deleted and has ended; the next one is placed."""
        world.put(replace(one, desired=Desired.DELETED))
        world.put(replace(running, phase=TaskPhase.WAITING, carries=None, claims=None, started=None))
        assert decide(world, NOW, settings).starts
        world.put(one)
        world.put(running)

    print(f"reference: calibrate() {reference:.2f} ms")
    print(f"{'':44}{'ms':>8}{'ratio':>8}")
    for label, value in (
        (f"decide, {PENDING} pending, none fits", median_ms(lambda: decide(world, NOW, settings))),
        (f"one workload ends and decide, {PENDING} pending", median_ms(change_and_decide)),
        ("build the world", median_ms(build, 5)),
    ):
        print(f"{label:44}{value:8.2f}{value / reference:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
