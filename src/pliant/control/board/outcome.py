"""How a workload ended, as the one exit code that waiting commands return."""

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.model.workload import Attempt, Desired, Exit, Phase, Workload

SIGNALLED = 128
"""Exit code of a process that a signal ended: this plus the signal's number, as in a shell."""

OUT_OF_MEMORY = 137
ENDED_BY_A_PERSON = 143
"""Exit code of a workload that was cancelled, or deleted before its end, whatever its processes returned."""

UNKNOWN_FAILURE = 1

_RUNS = (Phase.RUNNING, Phase.UPDATING, Phase.DEGRADED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`exit_code` is None until the workload has ended, and once it has ended it does not change."""

    phase: Phase
    exit_code: int | None
    signal: int | None  # the one that ended the task with this code
    out_of_memory: bool  # that task was killed for lack of memory
    cancelled_by: str
    deleted: bool
    gone: bool  # deleted, and nothing of it lives any more
    message: str  # the last one recorded about its end
    running: int  # ms for which it ran in total
    held: int  # milli-GPU-ms that its attempts held, exact over resizes
    gpu: int  # milli-GPUs that the last attempts of its tasks held
    attempts: int
    max_rss: int = 0  # bytes of its largest process; 0: not known


def outcome_of(workload: Workload, attempts: Sequence[Attempt], now: int) -> Outcome:
    """How a workload ended. The code of a failed one is the highest among the last attempts of its tasks.

    Stopped attempts count only for the signal of a cancelled or deleted workload. A workload that ended
    before it was deleted keeps its own code.
    """
    newest = {row.id.task: row for row in sorted(attempts, key=lambda row: row.id.number)}
    ends = [row.exit for row in newest.values() if row.exit is not None and not row.exit.stopped]
    phase = workload.ended_as or workload.phase
    deleted = workload.desired is Desired.DELETED
    code, worst = None, None
    if phase is Phase.COMPLETED:
        code = 0
    elif phase.final and not workload.cancelled_by:
        worst = max(ends, key=code_of, default=None)
        code = (code_of(worst) if worst is not None else 0) or UNKNOWN_FAILURE
    elif phase.final or deleted:
        code = ENDED_BY_A_PERSON
        worst = max((row.exit for row in newest.values() if row.exit is not None), key=code_of, default=None)
    return Outcome(
        phase,
        code,
        worst.signal if worst is not None else None,
        worst is not None and worst.oom and not worst.stopped,
        workload.cancelled_by,
        deleted,
        workload.deleted is not None,
        workload.phase_message,
        workload.running_ms + (max(0, now - workload.phase_since) if workload.phase in _RUNS else 0),
        sum(row.held(now) for row in attempts),
        sum(row.placement.gpu for row in newest.values()),
        len(attempts),
        max((row.exit.max_rss for row in attempts if row.exit is not None), default=0),
    )


def code_of(end: Exit) -> int:
    """One number for how an attempt ended; 0 if it has none of its own."""
    if end.oom:
        return OUT_OF_MEMORY
    if end.signal is not None:
        return SIGNALLED + end.signal
    return end.code or 0
