"""Measures how much of a cluster is allocated when pods arrive one by one and none ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from pliant.model.machine import Node
from pliant.model.quantity import GPU
from pliant.model.tenancy import UNLIMITED, Department, Project, Quota
from pliant.model.workload import Task, TaskPhase
from pliant.sched.cycle import decide
from pliant.sched.plan import Plan, Verb
from pliant.sched.settings import Settings
from pliant.sched.world.state import World
from pliant.sim.openb import Pod, workload_of

PROJECT = "trace"
BETWEEN = 1000
"""Virtual ms between two arrivals."""

MOVES_WINDOW = 1000 * BETWEEN
"""Virtual ms of 1,000 arrivals, in which `moves` moves are allowed."""

NEAR = 999
"""Thousandths of a point (100 or 130 %) that count as reached: generated lists end just below it."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The result; `arrived` and `allocated` are in percent of all GPUs."""

    nodes: int
    gpus: int
    pods: int
    placed: int
    before_first_drop: int  # number of pods placed before the first that was not
    moves: int  # of pods placed earlier
    arrived: float
    allocated: float
    allocated_at_100: float | None  # when 100 % had arrived; None: less arrived
    allocated_at_130: float | None
    mean_decision_ms: float
    longest_decision_ms: float

    def document(self) -> dict[str, int | float | None]:
        return asdict(self)


def pack(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    tell: Callable[[int, int], None] | None = None,
    moves: int = 0,
) -> Packing:
    """Decide once for each arriving pod, and drop a pod that finds no place at once.

    In any 1,000 arrivals the scheduler's own consolidation makes at most `moves` moves, within its own budget
    of disruptions. Calls `tell(done, total)` after each pod.
    """
    world, settings = _empty(nodes), Settings(consolidation_victims=0)
    if moves:
        settings = Settings(churn_budget=moves, churn_window=MOVES_WINDOW)
    total = sum(len(node.gpus) for node in nodes) * GPU
    arrived = allocated = placed = moved = now = 0
    first: int | None = None
    at: dict[int, int] = {}
    times: list[float] = []

    def decided() -> Plan:
        began = time.perf_counter()
        plan = decide(world, now, settings)
        times.append(time.perf_counter() - began)
        return plan

    for serial, pod in enumerate(pods):
        now += BETWEEN
        workload = workload_of(pod, serial, PROJECT, now)
        task = Task(workload.id, "main-0", "main", 0)
        world.put(workload)
        world.put(task)
        plan = decided()
        arrived += pod.request.gpu
        moved += sum(1 for decision in plan.decisions if decision.verb is Verb.MOVE)
        if _carried_out(world, plan, now):
            _carried_out(world, decided(), now)  # moved pods and the pod that waited for them start
        if world.tasks[task.key].claims is not None:
            allocated += pod.request.gpu
            placed += 1
        else:
            first = serial if first is None else first
            world.drop(task)
            world.drop(workload)
        for point in (100, 130):
            if point not in at and arrived * 100_000 >= point * NEAR * total:
                at[point] = allocated
        if tell is not None:
            tell(serial + 1, len(pods))
    return Packing(
        len(nodes), total // GPU, len(pods), placed,
        len(pods) if first is None else first, moved,
        _percent(arrived, total), _percent(allocated, total),
        _percent(at[100], total) if 100 in at else None,
        _percent(at[130], total) if 130 in at else None,
        round(sum(times) / len(times) * 1000, 3), round(max(times) * 1000, 3),
    )  # fmt: skip


def _empty(nodes: Sequence[Node]) -> World:
    world = World()
    world.put(Department("default", "default", derived=True))
    world.put(Project(PROJECT, PROJECT, (("default", Quota(gpu=UNLIMITED)),), 0, department="default"))
    for node in nodes:
        world.put(node)
    return world


def _carried_out(world: World, plan: Plan, now: int) -> bool:
    """Let ordered tasks run and stopped ones end at once. True if any task was stopped."""
    for row in plan.tasks:
        if row.phase is TaskPhase.ORDERED:
            world.put(replace(row, phase=TaskPhase.RUNNING, started=now))
        elif row.phase is TaskPhase.STOPPING:
            world.put(replace(row, phase=TaskPhase.WAITING, carries=None))
        else:
            world.put(row)
    for count in plan.disruptions:
        world.put(count)
    return bool(plan.stops)


def _percent(part: int, total: int) -> float:
    return round(part * 100 / total, 3)
