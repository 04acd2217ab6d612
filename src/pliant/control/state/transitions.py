"""Pure functions that compute the phase of a workload and the changes to its tasks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from pliant.model.workload import Desired, Kind, Phase, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.subgroups import Level, tree


def phase_of(workload: Workload, tasks: Sequence[Task]) -> Phase:
    """The phase of a workload, from its own row and its tasks alone."""
    live = any(task.phase.live for task in tasks)
    if workload.desired is Desired.DELETED:
        return Phase.DELETING
    if workload.phase.final:
        return workload.phase
    if workload.desired is Desired.STOPPED:
        over = Phase.FAILED if workload.cancelled_by else Phase.STOPPED
        return Phase.STOPPING if live else over
    if any(task.phase is TaskPhase.FAILED for task in tasks):
        return Phase.FAILED
    core = core_of(workload, tasks)
    leaders = [task for task in core if task.group == workload.ends_with]
    if leaders and all(task.phase is TaskPhase.SUCCEEDED for task in leaders):
        return Phase.COMPLETED
    if core and all(task.phase is TaskPhase.SUCCEEDED for task in core):
        return Phase.COMPLETED
    if not core and tasks and all(task.phase is TaskPhase.SUCCEEDED for task in tasks):
        return Phase.COMPLETED
    if not core and any(task.phase is TaskPhase.RUNNING for task in tasks):
        return Phase.RUNNING  # its tasks are independent
    waiting = [task for task in core or tasks if task.phase is not TaskPhase.SUCCEEDED]
    if waiting and all(task.phase is TaskPhase.RUNNING for task in waiting):
        return Phase.RUNNING
    if any(task.phase is TaskPhase.STOPPING for task in waiting):
        kept = all(task.claims is not None for task in waiting)
        return Phase.UPDATING if kept else Phase.TERMINATING
    if any(task.phase is TaskPhase.ORDERED for task in waiting):
        return Phase.INITIALIZING
    if any(task.phase is TaskPhase.RUNNING for task in waiting):
        return Phase.DEGRADED
    restarting = all(task.claims is not None and task.first_started is not None for task in waiting)
    return Phase.UPDATING if waiting and restarting else Phase.PENDING


_ADVANCED = {TaskPhase.SUCCEEDED: 4, TaskPhase.RUNNING: 3, TaskPhase.ORDERED: 2, TaskPhase.STOPPING: 1}


def core_of(workload: Workload, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that determine its phase: all groups at their minimum, or as many as each level needs.

    Of the children of a level the most advanced ones count.
    """
    least = {group.name: group.min for group in workload.groups}
    core = [task for task in tasks if task.index < least[task.group]]
    if not workload.subgroups and workload.min_groups is None:
        return core
    far = {task.name: _ADVANCED.get(task.phase, 0) for task in core}

    def chosen(child: Level | TaskGroup) -> list[Task]:
        if isinstance(child, TaskGroup):
            return [task for task in core if task.group == child.name]
        found = [chosen(each) for each in child.children]
        found.sort(key=lambda own: -sum(far[task.name] for task in own) * 1000 // max(1, len(own)))
        return [task for own in found[: child.least] for task in own]

    return chosen(tree(workload))


def following(workload: Workload, tasks: Sequence[Task]) -> list[Task]:
    """New tasks for the groups that run only `at_once` tasks at a time, as earlier tasks succeed."""
    found: list[Task] = []
    if not workload_open(workload):
        return found
    if workload.origin is not None and workload.origin.over:
        return found
    for group in workload.groups:
        if group.at_once:
            rows = [task for task in tasks if task.group == group.name]
            going = sum(task.phase is not TaskPhase.SUCCEEDED for task in rows)
            taken = {task.index for task in rows}
            free = (index for index in range(group.max) if index not in taken)
            past = workload.origin.past if workload.origin is not None else 0
            found += [
                Task(workload.id, f"{group.name}-{index}", group.name, index, attempt=past)
                for index in islice(free, max(0, group.at_once - going))
            ]
    return found


def rejoining(workload: Workload, tasks: Sequence[Task]) -> list[Task]:
    """Succeeded tasks of a distributed workload without live tasks, set to wait: all ranks start together."""
    if not workload.framework or workload.phase.final or any(task.phase.live for task in tasks):
        return []
    return [replace(task, phase=TaskPhase.WAITING) for task in tasks if task.phase is TaskPhase.SUCCEEDED]


def phase_changed(workload: Workload, phase: Phase, now: int, message: str) -> Workload:
    """The workload in its new phase, with the time spent in the old one added up."""
    spent = max(0, now - workload.phase_since)
    waited = workload.phase in (Phase.CREATING, Phase.PENDING, Phase.INITIALIZING)
    ran = workload.phase in (Phase.RUNNING, Phase.UPDATING, Phase.DEGRADED)
    return replace(
        workload,
        phase=phase,
        phase_since=now,
        phase_message=message or (workload.phase_message if workload.ended_as else ""),
        ended_as=phase if phase.final else workload.ended_as,
        completed=now if phase.final else workload.completed,
        pending_ms=workload.pending_ms + (spent if waited else 0),
        running_ms=workload.running_ms + (spent if ran else 0),
    )


def time_limit(workload: Workload, interactive: int | None, training: int | None) -> int | None:
    """The limit on running time (ms) for its kind; None: none."""
    if workload.kind is Kind.INFERENCE:
        return None
    return interactive if workload.kind is Kind.WORKSPACE else training
