"""How long a decision takes that reclaims much from many: the inputs of a peer's benchmarks, and larger ones.

Input: KAI-Scheduler's own Go benchmarks, rebuilt in tests/conformance/inputs.py (data/ATTRIBUTION.md
there), extended to 5,000 nodes of 8 GPUs. Each time is the whole decision, building the world from its
rows included, on one core; the expected result of each input is checked. Reference in the same run:
`calibrate()` of cycle.py. Times are CPU seconds of this process, which has one thread.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from cycle import calibrate
from measure import tiny

from pliant.model.machine import Node, NodePool
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Task, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Plan, Verb
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

sys.path.insert(0, str(Path(__file__).parents[1]))  # the inputs are kept with the tests
from tests.conformance import inputs
from tests.conformance.build import build
from tests.conformance.session import settings_for
from tests.conformance.state import begin

EPOCH = 1_000_000_000
Row = NodePool | Department | Project | Node | Workload | Task


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    make: Callable[[], dict[str, Any]]
    goal: float  # seconds
    placed: int  # tasks that get a place
    evicted: int  # workloads that are evicted


VARIANTS = (("", ""), ("_AntiAffinity", " (tasks apart)"), ("_Topology", " (in one rack)"))
"""Of the input that cannot be placed: a quota one GPU too large, too few racks, no rack large enough."""


def cases() -> list[Case]:
    found = []
    for nodes, goal in ((500, 0.3), (1000, 0.6), (5000, 4.0)):
        label = f"one gang of {nodes // 2} x 8 GPUs reclaims, {nodes} nodes"
        found.append(Case(label, lambda n=nodes: inputs.reclaim_large_job(n), goal, nodes // 2, 4 * nodes))
    found.append(
        Case(
            "4,000 single GPUs are exchanged, 500 nodes", lambda: inputs.reclaim_many_jobs(500), 2, 4000, 4000
        )
    )
    for variant, why in VARIANTS:
        label = f"a gang that cannot be had{why}, 1000 nodes"
        found.append(Case(label, lambda v=variant: inputs.unschedulable(1000, v), 0.5, 0, 0))
    allocate = inputs.inputs()["AllocateAction_Large"]
    found.append(Case("allocate 500 jobs, 100 nodes", allocate, 0.02, 500, 0))
    return found


def small() -> list[Case]:
    return [
        Case("one gang of 5 x 8 GPUs reclaims, 10 nodes", lambda: inputs.reclaim_large_job(10), 1, 5, 40),
        Case("80 single GPUs are exchanged, 10 nodes", lambda: inputs.reclaim_many_jobs(10), 1, 80, 80),
        *(
            Case(
                f"a gang that cannot be had{why}, 20 nodes",
                lambda v=variant: inputs.unschedulable(20, v),
                1,
                0,
                0,
            )
            for variant, why in VARIANTS
        ),
    ]


def rows_of(world: World) -> list[Row]:
    """In the order in which a server loads them."""
    return [
        *world.pools.values(),
        *world.departments.values(),
        *world.projects.values(),
        *(node.row for node in world.nodes.values()),
        *world.workloads.values(),
        *world.tasks.values(),
    ]


def cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def measured(rows: list[Row], settings: Settings) -> tuple[float, float, Plan]:
    """(seconds for building and deciding, of which building, the plan)."""
    gc.collect()
    began = time.process_time()
    world = World()
    for row in rows:
        world.put(row)
    built = time.process_time()
    plan = decide(world, EPOCH, settings)
    return time.process_time() - began, built - began, plan


def median(rows: list[Row], settings: Settings, rounds: int) -> tuple[float, float, Plan]:
    """The round of measured() that has the median time."""
    return sorted((measured(rows, settings) for _ in range(rounds)), key=itemgetter(0))[rounds // 2]


def main() -> int:
    chosen = small() if tiny(__doc__) else cases()
    print(f"medians; reference: calibrate(), before each\n{'':50}{'s':>8}{'build':>8}{'ratio':>8}{'goal':>7}")
    missed, gangs = 0, []
    for case in chosen:
        scenario = case.make()
        rows = rows_of(build(begin(scenario, EPOCH), EPOCH, EPOCH).world)
        settings = settings_for(scenario, defaults=True)
        reference = statistics.median(cpu_seconds(calibrate) for _ in range(9))
        took, built, plan = median(rows, settings, 3 if case.goal >= 1 else 5)
        given = {(d.workload, name) for d in plan.decisions if d.verb is Verb.PLACE for name in d.tasks}
        lost = {d.workload for d in plan.decisions if d.verb is Verb.EVICT}
        assert (len(given), len(lost)) == (case.placed, case.evicted), (
            f"{case.label}: {len(given)}, {len(lost)}"
        )
        missed += took > case.goal
        gangs.append(took)
        print(f"{case.label:50}{took:8.3f}{built:8.3f}{took / reference:8.1f}{case.goal:7}")
    if len(chosen) > 5:
        print(f"growth of the gang from 1,000 to 5,000 nodes: {gangs[2] / gangs[1]:.1f} (at most 7)")
    print(f"{missed} of {len(chosen)} over their goal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
