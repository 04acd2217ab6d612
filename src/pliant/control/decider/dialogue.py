"""The loop's side of its talk with the decider: one ask at a time, and a plan that is applied or dropped."""

import logging
import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import replace

from pliant.control.decider.port import Ask, Decider
from pliant.control.recording import Cycled
from pliant.control.state.state import State
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.rows import WORLD_ROWS, Row

log = logging.getLogger(__name__)

PATIENT, REFUSALS = 2.0, 3
"""Seconds for which it waits once so many plans in a row came too late to be applied."""

BRIEF, LONGEST = 0.0005, 0.5
"""Seconds: a plan that took no longer is always waited for and followed by no rest; no rest is longer."""

REST = 1.0
"""Seconds of rest after a cycle that could not be recorded."""

CROWD, CLOSE = 8, 0.1
"""Requests follow one another closely if so many came within so many seconds."""

BOUNDS = frozenset({"pools", "topologies", "departments", "projects", "bookings"})
"""Rows by which every decision is bounded."""


class Dialogue:
    """Belongs to the loop's thread, but for `due`, which any thread may set."""

    def __init__(self, state: State, decider: Decider) -> None:
        self._state = state
        self.decider = decider
        self._asked: Cycled | None = None  # what the decider has not answered; without its plan
        self._refused = 0  # plans in a row that came too late
        self._took = 0.0  # seconds that the last plan took
        self._rests = 0.0  # monotonic; when it is asked again if nothing but time is in the way
        self._requests = deque[float](maxlen=CROWD)  # monotonic; when the last were taken in
        self.due = True  # something is to be decided that the decider was not asked about

    @property
    def busy(self) -> bool:
        """True while an answer is awaited."""
        return self._asked is not None

    @property
    def rest(self) -> float:
        """Seconds for which it is not asked: after a long decision without a change others have a turn."""
        return max(0.0, self._rests - time.monotonic()) if self._rests else 0.0

    def take_in(self, requests: int) -> None:
        """So many requests are in the cycle that is made now."""
        self._requests.extend([time.monotonic()] * requests)

    def patience(self, seconds: float) -> float:
        """Seconds to wait for a plan: none where it will not come in time, or others wait for it."""
        if self._refused >= REFUSALS:
            return seconds
        crowded = len(self._requests) == CROWD and time.monotonic() - self._requests[0] < CLOSE
        return seconds if self._took <= (BRIEF if crowded else seconds) else 0.0

    @property
    def behind(self) -> bool:
        """True if the decider does not know everything that is recorded, or knows what was not."""
        return bool(self._state.news) or self._state.rebuilt

    @property
    def after(self) -> int:
        """Number of the ask after which the decider knows everything that is recorded by now."""
        self.due |= self.behind
        return self._state.cycles + self.behind

    def ask(self, now: int, *, whole: bool) -> None:
        """Tell the decider what is new, and have it decide. `whole`: the recorder wants the whole world."""
        state = self._state
        state.cycles += 1
        news, state.news = state.news, []
        base = [*state.world.rows()] if state.rebuilt or whole else None
        self._asked = Cycled(state.epoch, state.cycles, now, state.settings, news, Plan(), base)
        ask = Ask(state.cycles, now, state.settings, news, base if state.rebuilt else None)
        state.rebuilt = self.due = False
        self.decider.ask(ask)

    def answer(self, patience: float) -> Cycled | None:
        """The ask with its plan, if that comes in time. If the decider is gone, the next one is told all."""
        if patience and self._refused >= REFUSALS:
            patience = max(patience, PATIENT)
        decided = self.decider.answer(patience)
        if decided is None:
            return None
        if decided.plan is None:
            self._state.rebuilt = self.due = True
        asked = self._asked
        if asked is None or decided.number != asked.cycle:
            return None
        self._asked = None
        if decided.plan is None:
            return None
        if self.decider.beside:
            self._took = decided.took / 1e6
            rests = decided.plan.empty and self._took > BRIEF
            self._rests = time.monotonic() + min(self._took, LONGEST) if rests else 0.0
        return replace(asked, plan=decided.plan, took=decided.took)

    def idle(self) -> None:
        """While nothing is asked, what arrives says that the decider ended: the next one is told all."""
        if not self.busy:
            self.answer(0)

    def fits(self, decided: Cycled) -> bool:
        """True if the plan may be applied to what is known now; else another one is due."""
        state = self._state
        rows = [it.row for it in state.news]  # that came or went since it was asked for
        why = outdated(decided.plan, rows, decided.settings, state.settings)
        self.due |= bool(why) or not decided.plan.empty
        self._refused = self._refused + 1 if why else 0
        if why:
            log.debug("a plan is dropped: %s", why)
        return not why

    def drop(self, *, rest: bool = False) -> None:
        """What was asked does not count any more. `rest`: and is not asked again at once."""
        self._asked = None
        if rest and self.decider.beside:
            self._rests = time.monotonic() + REST


def outdated(plan: Plan, changed: Iterable[Row], then: Settings, settings: Settings) -> str:
    """Why a plan may not be applied to what is known now; empty if it may.

    `changed` are the rows that came or went since it was asked for, `then` the settings at that time. What
    ended meanwhile has left more room than the plan knew of, and only plans give room away: so a plan holds
    while nothing has changed of what it changes, of where it places, and of what bounds it.
    """
    if settings is not then:
        return "the settings have changed"
    changes = set(map(WORLD_ROWS.identity, changed))
    if not changes:
        return ""
    for slot, name in sorted(changes, key=str):
        if slot in BOUNDS:
            return f"{name} of {slot} has changed"
    tasks = {task.key for task in plan.tasks}
    for intents in (plan.starts, plan.stops, plan.resizes):
        tasks |= {(it.attempt.workload, it.attempt.task) for it in intents}
    about: set[tuple[str, Hashable]] = {("tasks", key) for key in tasks}
    about |= {("workloads", workload) for workload, _ in tasks}
    about |= {("nodes", task.claims.node) for task in plan.tasks if task.claims is not None}
    met = about & changes
    return f"{min(met, key=str)} has changed" if met else ""
