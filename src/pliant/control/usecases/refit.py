"""Changes the CPU cores and memory of a workload while its tasks continue to run."""

from collections import Counter
from dataclasses import dataclass, replace

from pliant.control.errors import BadRequest, Conflict, OverQuota
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.event import EventKind
from pliant.model.order import Resize
from pliant.model.quantity import Resources
from pliant.model.reason import NonPreemptibleOverQuota, OverLimit
from pliant.model.reason.base import amount, bare
from pliant.model.workload import AttemptId, Task, TaskPhase, Workload
from pliant.sched.actions.intents import unconfirmed
from pliant.sched.shares.admission import refuse
from pliant.sched.shares.entitlement import standings
from pliant.sched.shares.naming import named_at
from pliant.sched.world.state import World


@dataclass(frozen=True, slots=True)
class Fitting:
    """The new request of each task of a group."""

    cpu: int | None = None  # millicores; None: as before
    memory: int | None = None  # bytes; None: as before
    group: str = ""  # empty: all groups


def refit(state: State, row: Workload, fitting: Fitting, user: str, draft: Draft) -> Workload:
    """The changed workload. More is granted only on the nodes of its tasks and within quota and limit.

    Raises BadRequest, Conflict, OverQuota.
    """
    if fitting.cpu is None and fitting.memory is None:
        raise BadRequest("It says neither cores nor memory.", "Give at least one of them.")
    if row.phase.final:
        raise Conflict(f"{row.name} has ended ({row.phase.value}).", "Submit another one.")
    names = [group.name for group in row.groups]
    if fitting.group and fitting.group not in names:
        raise BadRequest(
            f"{row.name} has no task group {fitting.group[:60]!r}.",
            f"It has {', '.join(names)}.",
            field="taskGroup",
        )
    cpu, memory = fitting.cpu, fitting.memory
    groups = tuple(
        replace(
            group,
            request=replace(
                group.request,
                cpu=group.request.cpu if cpu is None else cpu,
                memory=group.request.memory if memory is None else memory,
            ),
        )
        if fitting.group in ("", group.name)
        else group
        for group in row.groups
    )
    made, tasks = replace(row, groups=groups), state.world.tasks_of(row.id)
    if made == row and not any(unconfirmed(row, task) for task in tasks):
        return row
    placed = [_fitted(row, made, task) for task in tasks if task.claims is not None]
    _check(state, made, placed)
    draft.put(made)
    for before, after in placed:
        assert after.claims is not None
        draft.put(after)
        if after.phase is TaskPhase.RUNNING and (after != before or unconfirmed(made, after)):
            attempt = AttemptId(after.workload, after.name, after.attempt)
            draft.orders.append(Resize(attempt, after.claims, row.launch.grace, user, state.epoch))
    asked = [amount(what, value) for what, value in (("cpu", cpu), ("memory", memory)) if value is not None]
    whose = f"each {fitting.group} of {row.name}" if fitting.group else f"each task of {row.name}"
    draft.event(row.id, EventKind.UPDATED, f"{user} gave {whose} {' and '.join(asked)}.", who=user)
    return made


def _fitted(row: Workload, made: Workload, task: Task) -> tuple[Task, Task]:
    """A placed task before and after. Raises Conflict if it is being started or resized."""
    claims, request = task.claims, made.group(task.group).request
    assert claims is not None
    moving = task.carries is not None and task.carries.shares != claims.shares
    if task.phase is TaskPhase.ORDERED or (task.phase is TaskPhase.RUNNING and moving):
        raise Conflict(f"{task.name} of {row.name} is being started or resized.", "Try again in a moment.")
    return task, replace(task, claims=replace(claims, cpu=request.cpu, memory=request.memory))


def _check(state: State, made: Workload, placed: list[tuple[Task, Task]]) -> None:
    """Raises Conflict or OverQuota."""
    world = state.world
    by_node, by_pool = Counter[tuple[str, str]](), dict[str, Resources]()
    for before, after in placed:
        assert before.claims is not None and after.claims is not None
        name = after.claims.node
        more = after.claims.resources.minus(before.claims.resources)
        by_node[name, "cpu"] += more.cpu
        by_node[name, "memory"] += more.memory
        if name in world.nodes:
            pool = world.pool_of(world.nodes[name].row)
            by_pool[pool] = by_pool.get(pool, Resources(0, 0, 0)).plus(more)
    for (name, what), lacking in sorted(by_node.items()):
        free = max(_free(world, name, what), 0)
        if lacking > free:
            raise Conflict(
                f"Node {name} has {amount(what, free)} free; {made.name} needs {bare(what, lacking)} more.",
                f"Reduce the request, or suspend, resize and resume {made.name}: another node may have room.",
            )
    for pool, added in sorted(by_pool.items()):
        asked = Resources(0, max(added.cpu, 0), max(added.memory, 0))
        found = refuse(world, standings(world, pool, {}), made.project, pool, asked, made.preemptible)
        if found is not None:
            bound = NonPreemptibleOverQuota if found.quota else OverLimit
            said = bound(
                world.level_of(found.key),
                named_at(world, found.key),
                pool,
                found.resource,
                found.allowed,
                found.used,
                found.asked,
            )
            raise OverQuota(said.text(0), "Reduce the request.")


def _free(world: World, name: str, what: str) -> int:
    node = world.nodes.get(name)
    if node is None:
        return 0
    return node.row.cpu - node.held_cpu if what == "cpu" else node.row.memory - node.held_memory
