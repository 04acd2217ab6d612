"""Finds where a world comes to rest if every order is obeyed at once: makes plans and applies their rows."""

from dataclasses import dataclass, replace

from pliant.model.workload import Task, TaskKey, TaskPhase
from pliant.sched.explain.trial import Change, Decide, apply
from pliant.sched.plan import Decision, Plan
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.state import World

ROUNDS = 40
"""The most cycles; a world that does not come to rest is then left as it is."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state at rest, and all that was decided on the way."""

    decisions: tuple[Decision, ...]
    verdicts: Verdicts
    placed: dict[str, tuple[tuple[str, int, int], ...]]  # workload -> (node, milli-GPUs, tasks) by node
    undo: Change  # the change that restores the world


def come_to_rest(world: World, now: int, settings: Settings, decide: Decide, rounds: int = ROUNDS) -> Outcome:
    """Decide and obey until nothing changes. The world is left at rest; `Outcome.undo` takes that back."""
    decisions: list[Decision] = []
    plan = Plan()
    before: dict[TaskKey, Task] = {}
    for _ in range(rounds):
        plan = decide(world, now, settings)
        decisions += plan.decisions
        changed = obeyed(world, plan, now)
        if not changed.puts:
            break
        for row in changed.puts:
            if isinstance(row, Task):
                before.setdefault(row.key, world.tasks[row.key])
        apply(world, changed)
    return Outcome(tuple(decisions), plan.verdicts, placed(world), Change(tuple(before.values())))


def obeyed(world: World, plan: Plan, now: int) -> Change:
    """The rows after engines have done all that this plan and earlier ones order."""
    after = {task.key: task for task in plan.tasks}
    for key in [*after, *world.adrift]:
        row = after.get(key, world.tasks[key])
        if row.phase is TaskPhase.STOPPING:
            row = replace(row, phase=TaskPhase.WAITING, carries=None, started=None)
        elif row.phase is TaskPhase.ORDERED:
            first = now if row.first_started is None else row.first_started
            row = replace(row, phase=TaskPhase.RUNNING, started=now, first_started=first)
        if row.phase is TaskPhase.RUNNING and row.carries != row.claims and row.claims is not None:
            row = replace(row, carries=row.claims)  # a live resize
        after[key] = row
    tasks = (row for key, row in sorted(after.items()) if row != world.tasks[key])
    return Change((*tasks, *plan.disruptions))


def placed(world: World) -> dict[str, tuple[tuple[str, int, int], ...]]:
    """Workload that should run -> (node, milli-GPUs, tasks) of its claims by node; () for those that wait."""
    found: dict[str, tuple[tuple[str, int, int], ...]] = {}
    for wid, row in world.workloads.items():
        if not workload_open(row):
            continue
        nodes: dict[str, tuple[int, int]] = {}
        for key in world.keys_of(wid):
            claim = world.claim_of(key)
            if claim is not None:
                gpus, tasks = nodes.get(claim.node, (0, 0))
                nodes[claim.node] = (gpus + claim.gpu, tasks + 1)
        found[wid] = tuple((node, *nodes[node]) for node in sorted(nodes))
    return found
