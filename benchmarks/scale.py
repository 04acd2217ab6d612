"""How the core scales: many nodes, many tasks, many pending workloads.

Input: synthetic, made here (nodes of 8 GPUs, single-task trainings, projects in one department). CPU seconds
of this process, which has one thread, and its peak memory. Reference: `calibrate()` of cycle.py.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from cycle import NOW, calibrate
from measure import tiny

from pliant.model.machine import Gpu, Node, NodePool
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.workload import Kind, Launch, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

CARD = 16 * 2**30
Rows = list[NodePool | Department | Project | Node | Workload | Task]
WHOLE, HALF = TaskGroup("main", Request(1)), TaskGroup("main", Request(1, 500))


def cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def cluster(nodes: int, projects: int) -> Rows:
    """The quotas add up to all GPUs."""
    quota = Quota(gpu=nodes * 8 * 1000 // projects)
    found: Rows = [NodePool("default", "default"), Department("default", "default", derived=True)]
    found += [
        Project(f"p{i}", f"p{i}", (("default", quota),), i, department="default") for i in range(projects)
    ]
    for n in range(nodes):
        gpus = tuple(Gpu(f"n{n}.{i}", i, CARD) for i in range(8))
        found.append(Node(f"n{n}", gpus, cpu=128_000, memory=512 * 2**30))
    return found


def jobs(first: int, count: int, projects: int, group: TaskGroup) -> Iterator[Workload | Task]:
    for serial in range(first, first + count):
        name = f"w{serial}"
        yield Workload(
            name, name, f"p{serial % projects}", Kind.TRAINING, Launch("image"), (group,), serial=serial
        )
        yield Task(name, "main-0", "main", 0)


def built(rows: Rows) -> World:
    world = World()
    for row in rows:
        world.put(row)
    return world


def carry_out(world: World, plan: Plan) -> None:
    """Does what control and an engine would do: ordered tasks run."""
    for row in plan.tasks:
        if row.phase is TaskPhase.ORDERED:
            row = replace(row, phase=TaskPhase.RUNNING, started=NOW)
        world.put(row)


class Table:
    def __init__(self) -> None:
        self._reference = min(cpu_seconds(calibrate) for _ in range(10))
        self.missed = 0
        print(f"reference: calibrate() {self._reference * 1000:.2f} ms")
        print(f"{'':62}{'':>10}{'ratio':>9}{'goal':>8}")

    def line(self, label: str, value: float, goal: float, unit: str = "s", least: bool = False) -> None:
        """`least`: the goal is a lower bound."""
        self.missed += value < goal if least else value > goal
        ratio = f"{value / self._reference:9.1f}" if unit == "s" else " " * 9
        print(f"{label:62}{value:10.3f}{ratio}{goal:8} {unit}")


def from_scratch(table: Table, nodes: int, whole: int, halves: int, projects: int, cycles: int) -> None:
    rows = cluster(nodes, projects)
    rows += jobs(0, whole, projects, WHOLE)
    rows += jobs(whole, halves, projects, HALF)
    began = time.process_time()
    world = built(rows)
    plan = decide(world, NOW, Settings())
    took = time.process_time() - began
    assert len(plan.starts) == whole + halves, f"{len(plan.starts)} of {whole + halves} were placed"
    table.line(f"{nodes} nodes, {whole + halves} tasks, {projects} projects: all from scratch", took, 20)
    carry_out(world, plan)
    times, serial = [], whole + halves
    for turn in range(cycles):
        began = time.process_time()
        for gone in range(turn * 50, turn * 50 + 50):
            task = world.tasks[f"w{gone}", "main-0"]
            world.put(replace(task, phase=TaskPhase.SUCCEEDED, claims=None, carries=None))
        for row in jobs(serial, 50, projects, WHOLE):
            world.put(row)
        serial += 50
        plan = decide(world, NOW, Settings())
        times.append(time.process_time() - began)
        assert len(plan.starts) == 50
        carry_out(world, plan)
    table.line("  a cycle with 100 changes, median", statistics.median(times), 0.5)
    table.line("  most memory so far", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1.5, "GiB")


def one_by_one(table: Table, nodes: int) -> None:
    """Jobs of one GPU that are all pending at once, on as many empty nodes."""
    world = built([*cluster(nodes, 10), *jobs(0, nodes, 10, WHOLE)])
    began = time.process_time()
    plan = decide(world, NOW, Settings())
    took = time.process_time() - began
    assert len(plan.starts) == nodes
    table.line(f"{nodes} single GPUs on {nodes} nodes", nodes / took, 5000, "placements/s", least=True)


def none_fits(table: Table, nodes: int, pending: int, projects: int) -> None:
    full = nodes * 8
    world = built([*cluster(nodes, projects), *jobs(0, full, projects, WHOLE)])
    carry_out(world, decide(world, NOW, Settings()))
    for row in jobs(full, pending, projects, WHOLE):
        world.put(row)
    decide(world, NOW, Settings())
    took = statistics.median(cpu_seconds(lambda: decide(world, NOW, Settings())) for _ in range(5))
    table.line(f"{pending} wait on {nodes} full nodes, {projects} projects: a cycle", took, 0.2)


def main() -> int:
    small = tiny(__doc__)
    table = Table()
    if small:
        one_by_one(table, 50)
        none_fits(table, 5, 200, 10)
        from_scratch(table, 20, 100, 60, 10, 2)
    else:
        one_by_one(table, 5_000)
        none_fits(table, 1_000, 20_000, 100)
        from_scratch(table, 10_000, 60_000, 40_000, 1_000, 7)
    print(f"{table.missed} beside their goal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
