"""Decides when a task starts again after its attempt ended, and describes that end for people."""

import signal
from dataclasses import replace

from pliant.model.quantity import format_duration
from pliant.model.workload import ELASTICDL, Desired, Exit, Task, TaskPhase, Workload
from pliant.sched.settings import Settings

NOT_STARTABLE = {126: "the command is not executable", 127: "the command was not found"}
"""Exit codes by which supervisors and shells say that a command cannot be run."""

QUICK = 60_000
"""Ms: a task that fails sooner has hardly begun its work."""

SIGKILL = 9

SHORT_LIFE = 10_000
"""Ms. After an attempt lost sooner than this, the task waits a tenth of `retry_base`, or all of it after an
error, doubled for each earlier attempt, up to PATIENCE: a node may reject every task."""

PATIENCE = 60_000

SHORT_RUN = 600_000
"""Ms. A task that always starts again pauses after a success sooner than this, twice as long each time, and
holds nothing meanwhile. A longer run ends the growth. Kubernetes pauses alike, but keeps the place."""

ENDLESS = 2**31
"""A backoff limit that no task reaches."""


def task_ended(task: Task, workload: Workload, end: Exit, settings: Settings) -> tuple[Task, str]:
    """The task after its present attempt ended, and what happens next, for people.

    It keeps its claims where the scheduler wants it to continue.
    """
    short = task.started is None or end.at - task.started < SHORT_RUN
    runs = task.short_runs if short and not end.lost else 0
    idle = replace(task, carries=None, started=None, phase=TaskPhase.WAITING, last_code=None, short_runs=runs)
    if end.stopped or workload.desired is not Desired.RUNNING:
        return idle, ""
    if end.lost or _relaunched(workload, end):
        if task.started is not None and end.at - task.started >= SHORT_LIFE:
            return replace(idle, claims=None if workload.held else idle.claims, retry_at=None), ""
        wait = settings.retry_base if end.error else settings.retry_base // 10
        wait = min(wait << min(max(task.attempt - 1, 0), 20), max(PATIENCE, wait))
        refused = bool(end.error or end.note)  # others may be able to use what it claims
        claims = None if workload.held or refused else idle.claims
        words = f"the next attempt starts in {format_duration(wait)}" if refused else ""
        return replace(idle, claims=claims, retry_at=end.at + wait), words
    if end.succeeded:
        if workload.restart:  # it works: earlier failures count no more
            idle = replace(idle, failures=0, ooms=0, retry_at=None)
            if not short:
                return idle, ""
            wait = min(settings.retry_base << min(runs, 20), settings.retry_max)
            idle = replace(idle, claims=None, short_runs=runs + 1, retry_at=end.at + wait)
            return idle, f"it starts again in {format_duration(wait)}"
        return replace(idle, phase=TaskPhase.SUCCEEDED, claims=None, retry_at=None), ""
    idle = replace(
        idle, claims=None, failures=task.failures + 1, ooms=task.ooms + end.oom, last_code=end.code
    )
    if (why := _hopeless(task, workload, end)) is not None:
        return replace(idle, phase=TaskPhase.FAILED, retry_at=None), why
    if idle.failures > workload.backoff_limit:
        most = workload.backoff_limit
        tried = f"all {most} retries failed" if most > 1 else "its retry failed" if most else ""
        return replace(idle, phase=TaskPhase.FAILED, retry_at=None), tried
    wait = min(settings.retry_base << min(task.failures, 20), settings.retry_max)
    limit = f" of {workload.backoff_limit}" if workload.backoff_limit < ENDLESS else ""
    words = f"retry {idle.failures}{limit} starts in {format_duration(wait)}"
    return replace(idle, retry_at=end.at + wait), words


def _hopeless(task: Task, workload: Workload, end: Exit) -> str | None:
    """Why the task is not retried, if another attempt would fail as well; else None."""
    if end.error:
        return "it is not retried" if end.code in NOT_STARTABLE else None
    quick = task.started is None or end.at - task.started < QUICK
    if quick and end.code in NOT_STARTABLE:
        return f"{NOT_STARTABLE[end.code]}, so it is not retried"
    if end.oom and (task.ooms or workload.framework == ELASTICDL):
        return "it is not retried: it would run out of memory again"
    group = workload.group(task.group)
    elastic = group.elastic or (group.min < group.max and not group.at_once)
    if workload.backoff_exact or workload.restart or elastic or not quick:
        return None
    if end.code is not None and end.code == task.last_code:
        return "it failed twice in the same way within a minute (crash loop), so it is not retried"
    return None


def _relaunched(workload: Workload, end: Exit) -> bool:
    """ElasticDL's rule: a task killed from outside starts again; errors and lack of memory would recur."""
    killed = end.signal == SIGKILL or end.code == 128 + SIGKILL
    return workload.framework == ELASTICDL and killed and not end.oom


def describe_exit(end: Exit) -> str:
    """One clause for people: how an attempt ended."""
    if end.error:
        return f"could not be started: {end.error}"
    if end.lost:
        return f"was lost: {end.note or 'its processes are gone and no exit code was recorded'}".rstrip(".")
    how = signal_name(end.signal) if end.signal is not None else f"exit code {end.code}"
    if end.oom:
        said = f"; {end.note}" if end.note else ""
        return f"ran out of memory and was killed by the kernel ({how}{said})"
    if end.stopped:
        return f"was stopped by request ({how})"
    said = f" ({end.note})" if end.note else ""
    return f"was killed by {how}{said}" if end.signal is not None else f"ended with {how}{said}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
