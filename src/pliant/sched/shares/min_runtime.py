"""Minimum run time: for how long after its start a workload is left alone."""

from pliant.sched.world.holdings import Holdings


def protected_until(world: Holdings, workload: str, least: int, now: int) -> int:
    """When (ms) its present attempts have run for `least` ms; 0 if it has none."""
    begun = 0
    for row in world.tasks_of(workload):
        if row.phase.live or (row.attempt and row.claims is not None):
            # An attempt that is about to start has all its time before it.
            begun = max(begun, row.started if row.started is not None else now)
    return begun + least if begun else 0
