"""Checks if the machines of this cluster could ever hold a workload, whatever ends and whatever its quota."""

from dataclasses import replace

from pliant.model.machine import Node
from pliant.model.tenancy import UNLIMITED, Quota
from pliant.model.workload import Desired, Phase, TaskPhase
from pliant.sched.explain.trial import Decide, gains
from pliant.sched.placement import eligibility
from pliant.sched.settings import Settings
from pliant.sched.world.state import World


def never(world: World, now: int, settings: Settings, decide: Decide, workload: str) -> bool:
    """True if its core does not fit on the nodes that take work now, even if they were empty, without quotas.

    A workload of an unknown project never fits: its node pools are unknown.
    """
    row = world.workloads[workload]
    if row.project not in world.projects:
        return True
    empty = World()
    for rows in (world.pools, world.topologies):
        for name in rows:
            empty.put(rows[name])
    boundless = tuple((pool, Quota(gpu=UNLIMITED)) for pool in sorted(world.pools))
    empty.put(replace(world.projects[row.project], quotas=boundless, derived=False, department=""))
    tasks = world.tasks_of(workload)
    for node in _enough(world, workload, sum(group.min for group in row.groups)):
        empty.put(node)
    empty.put(replace(row, desired=Desired.RUNNING, phase=Phase.PENDING, preemption_delay=0))
    for task in tasks:
        bare = replace(task, phase=TaskPhase.WAITING, claims=None, carries=None, attempt=0, failures=0)
        empty.put(replace(bare, started=None, retry_at=None, resizes=()))
    return not gains(empty, decide(empty, now, settings), workload)


def _enough(world: World, workload: str, tasks: int) -> list[Node]:
    """Its nodes; of those that differ only in their names, at most as many as it has tasks."""
    row = world.workloads[workload]
    alike: dict[object, int] = {}
    found: list[Node] = []
    for pool in eligibility.choices(world, replace(row, id="")):
        for state in eligibility.nodes_for(world, row, pool).nodes.values():
            gpus = tuple(sorted((gpu.memory, gpu.foreign) for gpu in state.row.gpus))
            kind = replace(state.row, name="", gpus=()), gpus
            alike[kind] = alike.get(kind, 0) + 1
            if alike[kind] <= max(1, tasks):
                found.append(state.row)
    return found
