"""Warns the owners of workloads with idle GPUs, and suspends these at the limit of project or department."""

from collections.abc import Sequence
from dataclasses import replace

from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.state.idle import Spans
from pliant.control.state.state import State
from pliant.model.event import EventKind
from pliant.model.quantity import counted
from pliant.model.sample import MINUTE, Sample
from pliant.model.tenancy import TimeLimits
from pliant.model.workload import Desired, Kind, Phase, Workload
from pliant.sched.world.chunks import workload_open
from pliant.sched.world.queue_tree import ancestry

WARNED_AT = 2
"""The owner is warned after 1/WARNED_AT of the limit."""


class Idling:
    """For one thread at a time. A server that starts knows no idle times, so it acts later, never earlier."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._spans = Spans()
        self._warned: set[str] = set()

    def look(self, samples: Sequence[Sample], now: int) -> None:
        """Warn or suspend by these samples. Raises StaleEpoch, StoreError."""
        spans = {key: span for key, span in self._spans.look(samples, now).items() if span}
        if not spans:
            self._warned.clear()
            return
        known = self._loop.look(
            lambda state: {key: (limit_of(key, state), ran(key, state, now)) for key in spans}
        )
        spans = {key: min(span, now - known[key][1]) for key, span in spans.items()}
        due = {key: limit for key, (limit, _) in known.items() if limit and spans[key] * WARNED_AT >= limit}
        stops = {key for key, limit in due.items() if spans[key] >= limit}
        self._warned &= due.keys()
        warns = due.keys() - stops - self._warned
        if stops or warns:
            self._loop.call(lambda draft: self._tell(draft, warns, stops, due))
            self._warned |= warns

    def _tell(self, draft: Draft, warns: set[str], stops: set[str], limits: dict[str, int]) -> None:
        for identity in sorted(warns | stops):
            row = self._loop.state.world.workloads.get(identity)
            if row is None or not workload_open(row):
                continue
            limit = counted(max(1, limits[identity] // MINUTE), "minute")
            if identity in stops:
                draft.put(replace(row, desired=Desired.STOPPED))
                words = f"Suspended: its GPUs did nothing for {limit}. Resume it: pliant resume {row.name}"
                draft.event(identity, EventKind.SUSPENDED, words, who="server")
            else:
                words = f"Its GPUs do nothing. After {limit} without work it is suspended."
                draft.event(identity, EventKind.IDLE, words, who="server")


def ran(identity: str, state: State, now: int) -> int:
    """Since when (ms) it runs; `now` if it does not run."""
    row = state.world.workloads.get(identity)
    return row.phase_since if row is not None and row.phase is Phase.RUNNING else now


def limit_of(identity: str, state: State) -> int:
    """Ms for which its GPUs may be idle, by its project, else the nearest department above; 0: for ever."""
    row = state.world.workloads.get(identity)
    project = state.world.projects.get(row.project) if row is not None else None
    if row is None or project is None:
        return 0
    departments = state.world.departments
    above = [departments[key] for key in ancestry(departments, project.department)]
    return next((found for it in (project, *above) if (found := _of(row, it.limits)) is not None), 0)


def _of(row: Workload, limits: TimeLimits) -> int | None:
    if row.kind is Kind.INFERENCE:
        return None  # it waits for requests
    if row.kind is not Kind.WORKSPACE:
        return limits.training_idle
    return limits.interactive_preemptible_idle if row.preemptible else limits.interactive_idle
