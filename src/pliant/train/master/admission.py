"""Decides which workers may join: same version, same job, same script. Each refusal names the remedy."""

import time
from typing import Any

from pliant.train.errors import PROTOCOL, Refused, count


def of_this_job(worker: str, job: str, protocol: int, mine: str) -> None:
    """Raises Refused for a worker of another version or job."""
    if protocol != PROTOCOL:
        raise Refused(
            f"Worker {worker} speaks version {protocol}, this job's master version {PROTOCOL}. Install the "
            "same Pliant for all tasks of a job.",
            "version",
            409,
        )
    if job != mine:
        raise Refused(f"Worker {worker} belongs to job {job!r}, this is the master of {mine!r}", "job", 409)


def same_settings(worker: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raises Refused for a worker whose settings differ from the job's."""
    for key in theirs.keys() | ours.keys():
        if theirs.get(key) != ours.get(key):
            raise Refused(
                f"Worker {worker} has {key} {theirs.get(key)!r}, this job trains with {ours.get(key)!r}: the "
                "script, model or dataset differs. Start the worker with the job's own, or start a new job.",
                "settings",
                409,
            )


def room_for(worker: str, others: int, global_batch: int | None) -> None:
    """Raises Refused for a worker that would get no record of a global batch."""
    if global_batch is not None and others >= global_batch:
        raise Refused(
            f"global_batch={global_batch} is too small for {count(others + 1, 'worker')}: {worker} has no "
            "records. Use a larger global_batch or fewer workers.",
            "batch",
            409,
        )


def clock_apart(worker: str, theirs_ms: int) -> str | None:
    """A warning if the clocks differ by more than 5 s; only the times in logs depend on them."""
    apart = abs(theirs_ms - int(time.time() * 1000))
    if apart <= 5_000:
        return None
    return (
        f"The clock of {worker} differs from the master's by {apart // 1000} s; only times in logs are wrong."
    )
