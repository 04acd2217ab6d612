"""The loop's side of the exchange with the decider: one ask at a time; each plan is applied or dropped."""

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
"""After REFUSALS plans in a row that came too late, the loop waits up to PATIENT seconds for the next."""

BRIEF, LONGEST = 0.0005, 0.5
"""Seconds: while plans take at most BRIEF, the loop always waits for them and does not rest afterwards.
A rest after a plan is at most LONGEST."""

REST = 1.0
"""Seconds of rest after a cycle that could not be recorded."""

CROWD, CLOSE = 8, 0.1
"""Requests are crowded if the last CROWD of them came within CLOSE seconds."""

BOUNDS = frozenset({"pools", "topologies", "departments", "projects", "bookings"})
"""Kinds of rows that bound every decision."""


class Dialogue:
    """Belongs to the loop's thread, except `due`, which any thread may set."""

    def __init__(self, state: State, decider: Decider) -> None:
        self._state = state
        self.decider = decider
        self._asked: Cycled | None = None  # the unanswered ask, with an empty plan
        self._refused = 0  # plans in a row that came too late
        self._took = 0.0  # seconds that the last plan took
        self._rests = 0.0  # monotonic; end of the rest; 0: none
        self._requests = deque[float](maxlen=CROWD)  # monotonic; when the last were taken in
        self.due = True  # the decider is to be asked again

    @property
    def busy(self) -> bool:
        """True while the loop waits for an answer."""
        return self._asked is not None

    @property
    def rest(self) -> float:
        """Seconds until the next ask: after a long decision without a change the CPU is left to others."""
        return max(0.0, self._rests - time.monotonic()) if self._rests else 0.0

    def take_in(self, requests: int) -> None:
        """Note that the present cycle takes in this many requests."""
        self._requests.extend([time.monotonic()] * requests)

    def patience(self, seconds: float) -> float:
        """Seconds to wait for a plan: 0 if the last plan took longer, or requests are crowded and it was
        longer than BRIEF."""
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
        """Number of the ask after which the decider knows everything recorded by now."""
        self.due |= self.behind
        return self._state.cycles + self.behind

    def ask(self, now: int, *, whole: bool) -> None:
        """Send the decider the changes and ask for a plan. `whole`: the recorder wants the whole world."""
        state = self._state
        state.cycles += 1
        news, state.news = state.news, []
        base = [*state.world.rows()] if state.rebuilt or whole else None
        self._asked = Cycled(state.epoch, state.cycles, now, state.settings, news, Plan(), base)
        ask = Ask(state.cycles, now, state.settings, news, base if state.rebuilt else None)
        state.rebuilt = self.due = False
        self.decider.ask(ask)

    def answer(self, patience: float) -> Cycled | None:
        """The ask with its plan; None if none comes within `patience` seconds.

        If the decider has ended, the next ask carries the whole world.
        """
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
        """Take an answer that came without an ask: the decider may have ended (see `answer`)."""
        if not self.busy:
            self.answer(0)

    def fits(self, decided: Cycled) -> bool:
        """True if the plan applies to the present state. If not, or if it has changes, another one is due."""
        state = self._state
        rows = [it.row for it in state.news]  # put or dropped since the ask
        why = outdated(decided.plan, rows, decided.settings, state.settings)
        self.due |= bool(why) or not decided.plan.empty
        self._refused = self._refused + 1 if why else 0
        if why:
            log.debug("a plan is dropped: %s", why)
        return not why

    def drop(self, *, rest: bool = False) -> None:
        """Ignore the answer to the present ask. `rest`: wait REST seconds before the next ask."""
        self._asked = None
        if rest and self.decider.beside:
            self._rests = time.monotonic() + REST


def outdated(plan: Plan, changed: Iterable[Row], then: Settings, settings: Settings) -> str:
    """Why a plan may not be applied to the present state; '' if it may.

    `changed` are the rows put or dropped since the ask, `then` the settings of the ask. Work that ended since
    then only leaves more room than the plan assumed, and only plans use room up. So a plan holds as long as
    no task or workload that it changes, no node on which it places, and no row in BOUNDS has changed.
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
