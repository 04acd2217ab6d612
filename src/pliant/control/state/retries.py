"""Whether a task that failed is tried again, and what people are told about it."""

import signal
from dataclasses import replace

from pliant.model.quantity import format_duration
from pliant.model.workload import ELASTICDL, Desired, Exit, Task, TaskPhase, Workload
from pliant.sched.settings import Settings

NOT_STARTABLE = {126: "the command is not executable", 127: "the command was not found"}
"""Exit codes by which supervisors and shells say that a command cannot be run."""

QUICK = 60_000
"""Ms: what fails sooner has hardly begun its work."""

SIGKILL = 9

SHORT_LIFE = 10_000
"""An attempt that was lost sooner than this (ms) waits a tenth of `retry_base` before the next one, and twice
as long for each attempt before it, up to PATIENCE: a node may turn away all that comes."""

PATIENCE = 60_000

ENDLESS = 2**31
"""A backoff limit that nothing reaches."""


def task_ended(task: Task, workload: Workload, end: Exit, settings: Settings) -> tuple[Task, str]:
    """The task after its present attempt ended, and what follows from the end, for people.

    Claims stay where the scheduler wants it to go on.
    """
    idle = replace(task, carries=None, started=None, phase=TaskPhase.WAITING, last_code=None)
    if end.stopped or workload.desired is not Desired.RUNNING:
        return idle, ""
    if end.lost or _relaunched(workload, end):
        if task.started is not None and end.at - task.started >= SHORT_LIFE:
            return replace(idle, claims=None if workload.held else idle.claims, retry_at=None), ""
        wait = settings.retry_base if end.error else settings.retry_base // 10
        wait = min(wait << min(max(task.attempt - 1, 0), 20), max(PATIENCE, wait))
        refused = bool(end.error or end.note)  # others may have more luck with what it claims
        claims = None if workload.held or refused else idle.claims
        words = f"the next attempt starts in {format_duration(wait)}" if refused else ""
        return replace(idle, claims=claims, retry_at=end.at + wait), words
    if end.succeeded:
        if workload.restart:
            return idle, ""
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
    """That it is not retried, and why, if another attempt would fail as well; None if it might not."""
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
    """ElasticDL's rule: who was killed from outside comes back; an error and want of memory would recur."""
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
