"""What the scheduler would do with a workload that nobody has submitted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliant.control.state.state import State
from pliant.model.machine import Placement
from pliant.model.reason import Reason
from pliant.model.workload import Task, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Decision, Verb


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The part of a plan that concerns one workload."""

    workload: Workload
    placements: tuple[tuple[str, Placement], ...]  # (task, where) of what it would be given
    reason: Reason | None  # why it is placed so, or why it would wait
    disrupted: tuple[Decision, ...]  # what others would lose or be moved for it


def rehearse(state: State, guest: Workload, tasks: Sequence[Task], now: int) -> Rehearsal:
    """Decide with `guest` in the world for a moment. The world, the loop thread's own, is left as it was."""
    guest = replace(guest, serial=state.serial + 1)
    world = state.world
    world.put(guest)
    try:
        for task in tasks:
            world.put(task)
        plan = decide(world, now, state.settings)
    finally:
        for task in tasks:
            if task.key in world.tasks:
                world.drop(task)
        world.drop(guest)
    placements = tuple(
        (task.name, task.claims)
        for task in plan.tasks
        if task.workload == guest.id and task.claims is not None
    )
    own = [decision for decision in plan.decisions if decision.workload == guest.id]
    verdict = next((verdict for verdict in plan.verdicts if verdict.workload == guest.id), None)
    reason = own[0].reason if own else verdict.reason if verdict is not None else None
    disrupted = tuple(
        decision
        for decision in plan.decisions
        if decision.beneficiary == guest.id and decision.verb in (Verb.SHRINK, Verb.MOVE, Verb.EVICT)
    )
    return Rehearsal(guest, placements, reason, disrupted)
