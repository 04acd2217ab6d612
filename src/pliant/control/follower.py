"""The loop of a standby server: follows the store of the leader and publishes what it finds to readers.

It decides as the leader does, by the same core on the same rows, only to know why workloads wait. It records
nothing and sends no orders.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pliant.control.decider.port import Decider
from pliant.control.errors import Unavailable
from pliant.control.lease import Leadership, Seen
from pliant.control.loop import Loop
from pliant.control.ports import Clock, Engine, Store
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.fact import Fact
from pliant.sched.plan import Plan

log = logging.getLogger(__name__)

T = TypeVar("T")

FOLLOW = 0.4
"""Seconds between two looks for news, even if no reader asks: watchers wait for them."""

PLAN = 1.0
"""Seconds that fresh rows wait for the plan that explains them."""


READER = 2.0
"""Seconds that a server that takes the lead waits for a reader of its own that still waits for the store."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What readers were told of a workload."""

    rows: tuple[object, ...]
    reason: object


class Follower(Loop):
    """`look`, `question`, `wait`, `board` and `catch_up` are for any thread."""

    def __init__(
        self, store: Store, leadership: Leadership, engine: Engine, clock: Clock, decider: Decider
    ) -> None:
        super().__init__(store, {engine.name: engine}, clock, decider=decider)
        self._leadership = leadership
        self._turn = threading.RLock()  # guards the state
        self._seen: Seen | None = None
        self._told: dict[str, _Told] = {}
        self._lost_since: float | None = None  # monotonic; when the store first did not answer
        self._over = threading.Event()
        self.troubles.append(self._silence)

    def open(self, epoch: int | None = None, asked: int = 0) -> None:
        """Read everything. Raises StoreError."""
        self.decider.open(self._arrived)
        self._refresh()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._follow, name="pliant-follower", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        super().close()

    def release(self) -> int | None:
        """Stop, and leave the decider to a loop that leads; the number of the last ask.

        None if a reader still waits for the store: it may ask later, so the leader needs another decider.
        """
        self._over.set()
        self._closing = True
        if not self._turn.acquire(timeout=READER):  # wait for a reader that still catches up
            log.warning("a reader still waits for the store: another decider is started")
            return None
        try:
            self._decided(PLAN)
            return self.state.cycles
        finally:
            self._turn.release()

    def catch_up(self) -> None:
        """Read what is recorded now. If the store does not answer, `trouble` reports it."""
        try:
            self._refresh()
            self._lost_since = None
        except Exception as error:  # noqa: BLE001 - readers are told what is known, and how old it is
            if self._lost_since is None:
                log.warning("the store cannot be followed: %s", error)
                self._lost_since = time.monotonic()

    def post(self, fact: Fact) -> None:
        """Does nothing: facts are for the leader."""

    def submit(self, run: Callable[[Draft], T]) -> "Future[T]":
        raise Unavailable(
            "This is the standby server; it accepts no changes.", "Send it to the leading server."
        )

    def look(self, run: Callable[[State], T], timeout: float = 60) -> T:
        with self._turn:
            return run(self.state)

    def _silence(self) -> str:
        since = self._lost_since
        if since is None:
            return ""
        return (
            f"The database has not answered for {time.monotonic() - since:.0f} s: the data shown is that old."
        )

    def _follow(self) -> None:
        while not self._closing:
            self.catch_up()
            self._over.wait(FOLLOW)

    def _refresh(self) -> None:
        with self._turn:
            if self._closing:
                return
            seen = self._leadership.seen()
            fresh = self._seen is None or replace(seen, renewed=self._seen.renewed) != self._seen
            if fresh:
                saved = self.store.load()
                self.state.rebuild(saved)
                self.state.epoch = seen.epoch
                self.audit.restore(saved.settings, self.clock.now())
                self._dialogue.drop()
                self._dialogue.ask(self.clock.now(), whole=False)
                self._seen = seen
            elif not self._dialogue.busy:
                return
            plan = self._decided(PLAN if fresh else 0.0)
            if plan is not None:
                self._explain(plan)
            if fresh or plan is not None:
                self._publish()

    def _decided(self, patience: float) -> Plan | None:
        """The plan for the last ask; None if it does not come within `patience` seconds."""
        until = time.monotonic() + patience
        while self._dialogue.busy:
            left = until - time.monotonic()
            decided = self._dialogue.answer(max(0.0, left))
            if decided is not None:
                return decided.plan
            if self.state.rebuilt:  # the decider has ended; the next one gets the whole world
                self._dialogue.drop()
                self._dialogue.ask(self.clock.now(), whole=False)
            if left <= 0:
                break
        return None

    def _explain(self, plan: Plan) -> None:
        state = self.state
        state.standings, state.protections = plan.standings, plan.protections
        state.verdicts = plan.verdicts.follow(state.verdicts)

    def _publish(self) -> None:
        """Publish; only changed workloads count as touched, so watchers hear of no others."""
        state, board = self.state, self.board
        now: dict[str, _Told] = {}
        for identity, row in state.world.workloads.items():
            parts: tuple[Any, ...] = (row, *state.world.tasks_of(identity), state.progress.get(identity))
            now[identity] = _Told(parts, state.verdicts.reason(identity))
        state.touched = {
            identity for identity in {*now, *self._told} if now.get(identity) != self._told.get(identity)
        }
        self._told = now
        state.shaken |= {view.node.name for view in board.nodes} | set(state.world.nodes)
        state.moved = True
        self._publisher.publish(self.clock.now(), 0)
