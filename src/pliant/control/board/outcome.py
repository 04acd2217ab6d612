"""How a workload ended, as the one exit code that waiting commands return."""

from collections.abc import Iterable
from dataclasses import dataclass

from pliant.model.workload import Attempt, Desired, Exit, Phase, Workload

SIGNALLED = 128
"""A process that a signal ended counts as this plus the number of the signal, as in a shell."""

OUT_OF_MEMORY = 137
ENDED_BY_A_PERSON = 143
"""Of a workload that was cancelled or deleted, whatever its processes returned."""

UNKNOWN_FAILURE = 1

_RUNS = (Phase.RUNNING, Phase.UPDATING, Phase.DEGRADED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`exit_code` is None until the workload has ended, and once it has ended it does not change."""

    phase: Phase
    exit_code: int | None
    signal: int | None  # that ended the task whose code this is
    out_of_memory: bool  # that task was killed for want of memory
    cancelled_by: str
    deleted: bool
    gone: bool  # deleted, and nothing of it lives any more
    message: str  # the last that was recorded about its end
    running: int  # ms for which it ran, all stays together
    held: int  # milli-GPU-ms that its attempts held, exact over resizes


def outcome_of(workload: Workload, attempts: Iterable[Attempt], now: int) -> Outcome:
    """The highest code among the last attempts of its tasks; of attempts that were stopped none counts."""
    rows = sorted(attempts, key=lambda row: row.id.number)
    newest = {row.id.task: row for row in rows}
    ends = [row.exit for row in newest.values() if row.exit is not None and not row.exit.stopped]
    worst = max(ends, key=code_of, default=None)
    deleted = workload.desired is Desired.DELETED
    code: int | None = None
    if deleted or (workload.cancelled_by and workload.phase.final):
        code, worst = ENDED_BY_A_PERSON, None
    elif workload.phase is Phase.COMPLETED:
        code, worst = 0, None
    elif workload.phase is Phase.FAILED:
        code = (code_of(worst) if worst is not None else 0) or UNKNOWN_FAILURE
    else:
        worst = None
    return Outcome(
        workload.phase,
        code,
        worst.signal if worst is not None else None,
        worst is not None and worst.oom,
        workload.cancelled_by,
        deleted,
        workload.deleted is not None,
        workload.phase_message,
        workload.running_ms + (max(0, now - workload.phase_since) if workload.phase in _RUNS else 0),
        sum(row.held(now) for row in rows),
    )


def code_of(end: Exit) -> int:
    """One number for how an attempt ended; 0 if it has none of its own."""
    if end.oom:
        return OUT_OF_MEMORY
    if end.signal is not None:
        return SIGNALLED + end.signal
    return end.code or 0
