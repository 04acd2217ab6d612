"""Ageing: the longer a workload has waited in total, the earlier it is served within its project."""

from pliant.model.priority import PREEMPTIBLE_BELOW
from pliant.model.workload import Phase, Workload
from pliant.sched.settings import Settings

WAITING = (Phase.CREATING, Phase.PENDING, Phase.INITIALIZING)
"""Phases that count as waiting in Workload.pending_ms."""


def waited(workload: Workload, now: int) -> int:
    """Ms that it has waited in total, the present wait included."""
    begun = max(workload.created, workload.phase_since)
    return workload.pending_ms + (max(0, now - begun) if workload.phase in WAITING else 0)


def aged(workload: Workload, priority: int, now: int, settings: Settings) -> int:
    """A priority plus the steps that its workload gained by waiting, at most `ageing_max`.

    A priority below PREEMPTIBLE_BELOW stays below it.
    """
    if not settings.ageing:
        return priority
    most = priority + min(settings.ageing_max, waited(workload, now) // settings.ageing)
    return most if priority >= PREEMPTIBLE_BELOW else min(most, PREEMPTIBLE_BELOW - 1)
