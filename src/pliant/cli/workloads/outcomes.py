"""How a job ended, in words and as an exit code; and the wait for that, over a server that restarts."""

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
"""Seconds for which a lost server is awaited."""

POLL = 0.2
"""Seconds between two questions at first; each wait is a tenth longer than the one before."""
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
    """Of a failure, in a few words."""
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
    """One sentence: how it ended, how long it ran, what it used."""
    ran = show_duration(outcome["runningSeconds"])
    used = f" ({outcome['gpuHours']:.2f} GPU-hours)" if outcome["gpuHours"] else ""
    end = ending(outcome)
    if end.startswith("failed"):
        return f"{name} failed after {ran}: {cause(outcome)}{used}."
    return f"{name} {end} {'in' if end == 'succeeded' else 'after'} {ran}{used}."


def patiently(ask: Callable[[], T], *, lost: Callable[[], None] = lambda: None) -> T:
    """The answer, also of a server that is away for a while: `lost` is called once when it is missed."""
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
