"""How facts change rows: pure functions from what was to what is, with no I/O of their own."""

from collections.abc import Sequence
from dataclasses import replace

from pliant.model.workload import ELASTICDL, Desired, Exit, Kind, Phase, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.settings import Settings
from pliant.sched.world.subgroups import Level, tree

NOT_STARTABLE = (126, 127)
"""Exit codes by which a supervisor says that a command cannot be run: trying again is no use."""

SIGKILL = 9

SHORT_LIFE = 10_000
"""An attempt that was lost sooner than this (ms) waits a tenth of `retry_base` before the next one."""


def task_ended(task: Task, workload: Workload, end: Exit, settings: Settings) -> Task:
    """The task after its present attempt ended. Claims stay where the scheduler wants it to go on."""
    idle = replace(task, carries=None, started=None, phase=TaskPhase.WAITING)
    if end.stopped or workload.desired is not Desired.RUNNING:
        return idle
    if end.lost or _relaunched(workload, end):
        lived = end.at - task.started if task.started is not None else 0
        return replace(idle, retry_at=None if lived >= SHORT_LIFE else end.at + settings.retry_base // 10)
    if end.succeeded:
        if workload.restart:
            return idle
        return replace(idle, phase=TaskPhase.SUCCEEDED, claims=None, retry_at=None)
    failures = task.failures + 1
    hopeless = (end.error and end.code in NOT_STARTABLE) or (end.oom and workload.framework == ELASTICDL)
    if failures > workload.backoff_limit or hopeless:
        return replace(idle, phase=TaskPhase.FAILED, claims=None, failures=failures, retry_at=None)
    wait = min(settings.retry_base << min(failures - 1, 20), settings.retry_max)
    return replace(idle, claims=None, failures=failures, retry_at=end.at + wait)


def _relaunched(workload: Workload, end: Exit) -> bool:
    """ElasticDL's rule: who was killed from outside comes back; an error and want of memory would recur."""
    killed = end.signal == SIGKILL or end.code == 128 + SIGKILL
    return workload.framework == ELASTICDL and killed and not end.oom


def describe_exit(end: Exit) -> str:
    """One clause for people: how an attempt ended."""
    if end.error:
        return f"could not be started: {end.error}"
    if end.lost:
        return "was lost: nothing of it lives and nobody saw it end"
    how = f"by signal {end.signal}" if end.signal is not None else f"with exit code {end.code}"
    if end.oom:
        return f"was killed by the kernel, which was out of memory (it ended {how})"
    said = f" ({end.note})" if end.note else ""
    return f"stopped as told, ended {how}" if end.stopped else f"ended {how}{said}"


def phase_of(workload: Workload, tasks: Sequence[Task]) -> Phase:
    """The phase a workload is in, by its owner's wish and its tasks alone."""
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
        return Phase.RUNNING  # each for itself
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
    """The tasks that its phase is about: all groups at their minimum, or as many as each level of it needs.

    Of the children of a level those count that are furthest.
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
    """The tasks that come next in a workload of which only some are to run at once."""
    found = []
    for group in workload.groups if workload.desired is Desired.RUNNING and not workload.phase.final else ():
        if group.at_once:
            rows = [task for task in tasks if task.group == group.name]
            going = sum(task.phase is not TaskPhase.SUCCEEDED for task in rows)
            until = min(group.max, len(rows) + group.at_once - going)
            found += [
                Task(workload.id, f"{group.name}-{index}", group.name, index)
                for index in range(len(rows), until)
            ]
    return found


def rejoining(workload: Workload, tasks: Sequence[Task]) -> list[Task]:
    """Tasks of a distributed workload that had succeeded when the rest was stopped: ranks begin together."""
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
    """The limit on running time (ms) that applies to it."""
    if workload.kind is Kind.INFERENCE:
        return None
    return interactive if workload.kind is Kind.WORKSPACE else training
