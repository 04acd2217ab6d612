"""What the scheduler would do with a workload that was not submitted."""

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.control.decider.port import Known
from pliant.model.machine import Placement
from pliant.model.reason import Reason
from pliant.model.workload import Task, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Decision, Verb


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The part of a plan that concerns one workload."""

    workload: Workload
    placements: tuple[tuple[str, Placement], ...]  # (task, placement) that it would get
    reason: Reason | None  # why it would be placed so, or why it would wait
    disrupted: tuple[Decision, ...]  # those that would take from others or move them for it


def rehearse(known: Known, guest: Workload, tasks: Sequence[Task], now: int) -> Rehearsal:
    """Decide with `guest` in the world, which is a copy."""
    known.world.put(guest)
    for task in tasks:
        known.world.put(task)
    plan = decide(known.world, now, known.settings)
    placements = tuple(
        (task.name, task.claims)
        for task in plan.tasks
        if task.workload == guest.id and task.claims is not None
    )
    own = [decision for decision in plan.decisions if decision.workload == guest.id]
    reason = own[0].reason if own else plan.verdicts.reason(guest.id)
    disrupted = tuple(
        decision
        for decision in plan.decisions
        if decision.beneficiary == guest.id and decision.verb in (Verb.SHRINK, Verb.MOVE, Verb.EVICT)
    )
    return Rehearsal(guest, placements, reason, disrupted)
