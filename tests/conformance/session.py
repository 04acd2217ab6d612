"""One cycle of a scenario: runs decide() on a new world and reads its plan back as statuses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pliant.model.workload import Task
from pliant.sched.cycle import decide
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.faults import faults
from pliant.sched.world.state import World
from tests.conformance.build import build
from tests.conformance.state import RUNNING, Json, State, TaskState

ACTIONS = {"consolidation": "consolidate", "stalegangeviction": "stale"}
"""The source's name of an action -> ours, where they differ."""


@dataclass(slots=True)
class Outcome:
    """The result of a cycle: the state right after it, and how much it did."""

    state: State
    plan: Plan
    world: World  # with the plan carried out
    bind: int = 0
    evict: int = 0
    pipeline: int = 0
    unplaced: set[str] = field(default_factory=set)  # jobs that have a reason for not being placed


def actions_of(case: Json) -> tuple[str, ...]:
    """Its actions by our names; adds `allocate`, as work is tried on idle devices before it takes others'."""
    named = tuple(ACTIONS.get(action, action) for action in case["actions"])
    taking = {"consolidate", "reclaim", "preempt"} & set(named)
    return ("allocate", *named) if taking and "allocate" not in named else named


def settings_for(case: Json, defaults: bool) -> Settings:
    """Our default settings with `defaults`; otherwise the source's rules, where we have settings for them."""
    grace = round(float(case.get("config", {}).get("staleness_grace_s") or 0) * 1000)  # none unless it is set
    ours = Settings(actions=actions_of(case), stale_grace=grace)
    return ours if defaults else replace(ours, consolidation_victims=-1, victims="youngest")


def session(state: State, now: int, epoch: int, defaults: bool) -> Outcome:
    """Runs the scenario's actions once."""
    built = build(state, now, epoch)
    sound = not list(faults(built.world))
    plan = decide(built.world, now, settings_for(state.case, defaults))
    action = {
        (decision.workload, name): decision.action for decision in plan.decisions for name in decision.tasks
    }
    rows = {row.key: row for row in plan.tasks}
    started = {(start.attempt.workload, start.attempt.task) for start in plan.starts}
    outcome = Outcome(replace(state, tasks={}), plan, built.world)
    for task in state.tasks.values():
        key = built.keys.get(task.id)
        after = replace(task)
        if key is not None and key in rows:
            placed = action.get(key, "allocate") if key in started else None
            _carry_over(outcome, task, after, rows[key], placed, now)
        outcome.state.tasks[task.id] = after
    for row in plan.tasks:
        built.world.put(row)
    if sound:
        built.world.check()
    outcome.unplaced = {verdict.workload for verdict in plan.verdicts}
    return outcome


def _carry_over(
    outcome: Outcome, task: TaskState, after: TaskState, row: Task, placed: str | None, now: int
) -> None:
    """Turns a changed row into a status. `placed`: the action that gave it a place that is free now."""
    if task.status in RUNNING:
        if row.claims == task.placement:
            return
        outcome.evict += 1
        if row.claims is None:
            after.status = "releasing"
            return
    elif row.claims is None:
        after.status, after.promised = "pending", None
        return
    if placed == "allocate":
        outcome.bind += 1
        after.status, after.placement, after.promised = "binding", row.claims, None
        after.started = now
    elif row.claims != task.promised:
        outcome.pipeline += 1
        after.status, after.promised = "pipelined", row.claims


def carry(outcome: Outcome, jobs: dict[str, Json]) -> State:
    """The state at the start of the next cycle: evicted tasks are pending again, promises are forgotten."""
    state = replace(outcome.state, tasks={})
    for task in outcome.state.tasks.values():
        after = replace(task)
        if task.status == "binding":
            after.status = "running"
        elif task.status == "pipelined" or (
            task.status == "releasing" and not jobs[task.job].get("victim_terminates")
        ):
            after.status, after.placement, after.promised, after.started = "pending", None, None, None
        state.tasks[task.id] = after
    return state
