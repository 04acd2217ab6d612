"""Why does it wait, and behind whom: what one plan says about one workload."""

from dataclasses import dataclass

from pliant.model.reason import Reason
from pliant.sched.plan import Plan
from pliant.sched.world.state import World


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another workload that waits too."""

    workload: str  # id
    name: str
    project: str  # name
    gpus: int  # milli-GPUs that it lacks


@dataclass(frozen=True, slots=True)
class Why:
    """All a plan says about a workload: why it waits and who was looked at before it, or what was decided."""

    reason: Reason | None  # None: it has all that it asked for, and nothing changed
    position: int | None  # among those that wait, from 1; None: it does not wait
    ahead: tuple[Waiting, ...]


def why(world: World, plan: Plan, workload: str) -> Why:
    """The dominant reason of a workload; KeyError if the world does not know it."""
    world.workloads[workload]
    verdict = next((verdict for verdict in plan.verdicts if verdict.workload == workload), None)
    if verdict is None:
        decided = [decision.reason for decision in plan.decisions if decision.workload == workload]
        return Why(decided[-1] if decided else None, None, ())
    ahead = tuple(
        _waiting(world, other.workload)
        for other in plan.verdicts
        if other.position < verdict.position and other.workload in world.workloads
    )
    return Why(verdict.reason, verdict.position, ahead)


def _waiting(world: World, wid: str) -> Waiting:
    row = world.workloads[wid]
    project = world.projects.get(row.project)
    return Waiting(
        wid, row.name, project.name if project is not None else row.project, world.need(wid).lacks.gpu
    )
