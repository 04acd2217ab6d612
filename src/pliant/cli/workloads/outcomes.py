"""How a job ended, in words; and requests that wait while the server restarts."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pliant.cli.output.amounts import show_duration
from pliant.client.errors import Unreachable

if TYPE_CHECKING:
    from pliant.wire.workload import Outcome

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds to wait for a lost server."""

POLL = 0.2
"""First interval between two requests, in seconds; `wait` lengthens it by a tenth each time."""
POLL_MOST = 1.0


def ending(outcome: Outcome) -> str:
    """`succeeded`, `failed (exit code 3)`, `failed (SIGKILL)`, `failed (out of memory)`, `was cancelled`."""
    if outcome["deleted"]:
        return "was deleted"
    if outcome["cancelled"]:
        return "was cancelled"
    if outcome["phase"] == "Completed":
        return "succeeded"
    return f"failed ({cause(outcome)})"


def cause(outcome: Outcome) -> str:
    """The cause of a failure, in a few words."""
    if outcome["outOfMemory"]:
        return "out of memory"
    if outcome["signal"] is not None:
        return signal_name(outcome["signal"])
    return f"exit code {outcome['exitCode']}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def summary(name: str, outcome: Outcome) -> str:
    """One sentence: how the job ended, how long it ran and its GPU-hours."""
    ran = show_duration(outcome["runningSeconds"])
    used = f" ({outcome['gpuHours']:.2f} GPU-hours)" if outcome["gpuHours"] else ""
    end = ending(outcome)
    if end.startswith("failed"):
        return f"{name} failed after {ran}: {cause(outcome)}{used}."
    return f"{name} {end} {'in' if end == 'succeeded' else 'after'} {ran}{used}."


def patiently(ask: Callable[[], T], *, lost: Callable[[], None] = lambda: None) -> T:
    """Call `ask`; at the first Unreachable call `lost` and retry for PATIENCE seconds. Raises Unreachable."""
    until: float | None = None
    while True:
        try:
            return ask()
        except Unreachable:
            if until is None:
                until = time.monotonic() + PATIENCE
                lost()
            if time.monotonic() > until:
                raise
            time.sleep(POLL_MOST)
