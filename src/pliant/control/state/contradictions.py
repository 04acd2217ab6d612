"""Finds rows that contradict the rest; reports each once when it appears and once when it is gone."""

import logging

from pliant.control.board.view import CLUSTER
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.event import EventKind
from pliant.sched.world.faults import DeviceFaults, faults

log = logging.getLogger(__name__)

EVERY = 10_000
"""Ms between two looks while no node and no quota changes: a look reads every workload."""


class Contradictions:
    """Belongs to the loop's thread."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._looked: int | None = None  # ms
        self._devices = DeviceFaults()

    def look(self, draft: Draft) -> None:
        """Record what contradicts the rest now; it is set aside, everything else is scheduled as usual."""
        state = self._state
        if not state.moved and self._looked is not None and draft.now - self._looked < EVERY:
            return
        self._looked = draft.now
        found = list(faults(state.world, self._devices.look(state.world)))
        for fault in found:
            if fault not in state.faults:
                log.error("set aside, the rest is scheduled as ever: %s", fault)
                draft.event(CLUSTER, EventKind.WARNING, f"Set aside: {fault}.", who="server")
        for fault in state.faults:
            if fault not in found:
                draft.event(CLUSTER, EventKind.UPDATED, f"No longer so: {fault}.", who="server")
        if found != state.faults:
            state.faults, state.moved = found, True
