"""The loop: takes facts and requests in, decides, records, then acts. The only place that sequences I/O.

Everything that changes the world runs on the loop's thread, in cycles. A cycle takes what has arrived,
turns it into rows, asks the decider for a plan, writes rows and plan in one transaction, and only then
answers requests and sends orders. Other threads read the board that each cycle publishes.

The loop does not wait for a slow plan: it writes the rows without it and answers the requests. It applies
the plan when it comes, if no row that the plan depends on has changed since; else it asks for a new one.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pliant.control.audit import audited
from pliant.control.board.allocations import Allocations
from pliant.control.board.fairness import Audit
from pliant.control.board.publisher import Publisher
from pliant.control.board.view import Board
from pliant.control.decider.core import Inline
from pliant.control.decider.dialogue import Dialogue
from pliant.control.decider.port import Decider, Question
from pliant.control.errors import Refused, Unavailable
from pliant.control.inbox import Bell, Command, Look, News
from pliant.control.kept import keeping
from pliant.control.orders import Orders
from pliant.control.ports import Batch, Clock, Engine, Halt, Saved, StaleEpoch, Store, StoreLost
from pliant.control.recording import Nothing, Recorder
from pliant.control.state.accounting import Accounting
from pliant.control.state.contradictions import Contradictions
from pliant.control.state.draft import Draft
from pliant.control.state.facts import FactBook
from pliant.control.state.notices import take as take_notices
from pliant.control.state.record import record_plan
from pliant.control.state.state import State
from pliant.model.fact import AttemptEnded, AttemptStarted, Fact, NodeLost, NodeSeen
from pliant.model.workload import Attempt
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.state import World

log = logging.getLogger(__name__)
T = TypeVar("T")

Answer = tuple["Future[Any]", Any]  # the future of a request, and its result

PROMPT = 0.02
"""Seconds that a cycle waits for the plan; on a small cluster rows and plan are one transaction."""

FIRST = 10.0
"""Seconds that a starting server waits for its first plan."""

PATIENCE = 60.0
"""Seconds within which a question must be answered."""

RETRY = 0.1
"""Seconds between two tries to reach a store that is lost."""

BREATH = 0.01
"""Seconds at most, and no longer than the cycle took, to gather facts after it; a request ends the pause."""

SETTLING = 50
"""Plans with changes in a row without news after which the loop stops asking: they undo each other."""


class Loop:
    """`call`, `submit`, `post`, `look`, `question`, `wake`, `wait` and `board` are for any thread."""

    def __init__(
        self,
        store: Store,
        engines: Mapping[str, Engine],
        clock: Clock,
        settings: Settings | None = None,
        *,
        decider: Decider | None = None,
        recorder: Recorder | None = None,
        halt: Halt = lambda point: None,
        fatal: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.store = store
        self.engines = engines
        self.clock = clock
        self.recorder: Recorder = recorder or Nothing()
        self.state = State(settings or Settings())
        self.plan = Plan()  # the last one that was applied
        self._dialogue = Dialogue(self.state, decider or Inline())
        self.failure: BaseException | None = None  # what ended the loop
        self._facts = FactBook(self.state)
        self._publisher = Publisher(self.state)
        self._orders = Orders(self.state, engines)
        self.allocations = Allocations(self.state, self._orders.engine)
        self._accounting = Accounting(self.state)
        self._contradictions = Contradictions(self.state)
        self._halt = halt
        self._fatal = fatal
        self._inbox: queue.SimpleQueue[News | Look | Bell] = queue.SimpleQueue()
        self._arrived = partial(self._inbox.put, Bell.ANSWERED)  # the decider has answered
        self._requested = threading.Event()  # a request may be in the inbox
        self._kept: list[Fact] = []  # facts whose cycle could not be recorded
        self._thread: threading.Thread | None = None
        self.audit = Audit()
        self._closing = False
        self._idle = False  # what arrived last needs no cycle, if there was no news
        self.troubles: list[Callable[[], str]] = []  # each returns what is wrong with store or engine, or ''

    # -- life --------------------------------------------------------------------------------------

    def open(self, epoch: int | None = None, asked: int = 0) -> None:
        """Take the lead (unless `epoch` is given), rebuild the world, have the engines report what lives.

        `asked`: the number of the last ask that the decider got from another loop.
        """
        self.state.cycles = asked
        self.state.epoch = self.store.lead() if epoch is None else epoch
        saved = self.store.load()
        self.state.rebuild(saved)
        self.audit.restore(saved.settings, self.clock.now())
        self.decider.open(self._arrived)
        for engine in self.engines.values():
            known = [row for row in saved.of(Attempt) if self._orders.engine(row.placement.node) is engine]
            engine.open(self.post, known, self.state.epoch)
        news = self._wait(0)
        seen = {fact.node.name for fact in news if isinstance(fact, NodeSeen)}
        gone = set(self.world.nodes) - seen
        alive = {fact.attempt for fact in news if isinstance(fact, AttemptStarted)}
        self._facts.leaving = gone & {
            row.placement.node for row in self.state.attempts.values() if row.id in alive
        }
        lost = [NodeLost(name) for name in sorted(gone - self._facts.leaving)]
        self.cycle([Command(self._orders.hold), *news, *lost], FIRST)
        for engine in self.engines.values():
            engine.retain(self.world.workloads)
        self._orders.repeat()
        for workload in self.store.ended():
            self._orders.forget(workload)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pliant-loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the present cycle and stop. Running tasks continue."""
        self._closing = True
        self._inbox.put(Bell.CYCLE)
        if self._thread is not None:
            self._thread.join(timeout=30)
        self.decider.close()
        self.recorder.close()

    @property
    def decider(self) -> Decider:
        return self._dialogue.decider

    @property
    def trouble(self) -> str:
        """What stops all scheduling, for people; '' if nothing does."""
        return next(filter(None, (*(ask() for ask in self.troubles), self.decider.trouble)), "")

    # -- for any thread ----------------------------------------------------------------------------

    @property
    def board(self) -> Board:
        """The newest published state; immutable."""
        return self._publisher.board

    def wait(self, after: int, timeout: float) -> tuple[Board, frozenset[str] | None]:
        """The board once it is newer than `after` or time is up, and which workloads changed since."""
        return self._publisher.wait(after, timeout)

    def post(self, fact: Fact) -> None:
        """Tell the loop what an engine observed."""
        self._inbox.put(fact)

    def submit(self, run: Callable[[Draft], T]) -> "Future[T]":
        """Run `run` in the next cycle; the future is set once the outcome is on disk."""
        command = Command(keeping(audited(run, self.state)))
        self._inbox.put(command)
        self._requested.set()
        return command.answer

    def call(self, run: Callable[[Draft], T], timeout: float = 60) -> T:
        """`submit`, and wait for the result."""
        return self.submit(run).result(timeout)

    def look(self, run: Callable[[State], T], timeout: float = 60) -> T:
        """The result of `run` on the state between two cycles. `run` changes nothing, and must be quick."""
        if self._thread is None:
            return run(self.state)
        look = Look(run, Future())
        self._inbox.put(look)
        answer: T = look.answer.result(timeout)
        return answer

    def question(self, work: Question[T], patience: float = PATIENCE) -> T:
        """The result of `work` on a copy of the world with all that is recorded; not on the loop's thread."""
        if self._thread is None and self._dialogue.behind:
            self.cycle()
        return self.decider.question(work, self.look(lambda state: self._dialogue.after), patience)

    def wake(self) -> None:
        """Start a cycle now; a new plan is due."""
        self._dialogue.due = True
        self._inbox.put(Bell.CYCLE)

    # -- the loop ----------------------------------------------------------------------------------

    @property
    def world(self) -> World:
        return self.state.world

    @property
    def due(self) -> bool:
        """True if something is to be decided and the decider is not busy."""
        return self._dialogue.due and not self._dialogue.busy

    def _run(self) -> None:
        settling = 0
        try:
            while not self._closing:
                due = self.due and settling < SETTLING
                news = self._wait(self._dialogue.rest if due else self._idle_seconds())
                if self._idle and not news and not due:
                    self._dialogue.idle()
                    continue
                before, began = self.plan, time.monotonic()
                self.cycle(news)
                if not self._inbox.empty():  # what arrives during the pause shares a cycle with it
                    self._requested.wait(min(time.monotonic() - began, BREATH))
                if self.plan is not before:
                    settling = 0 if self.plan.empty else 1 if news else settling + 1
                if settling == SETTLING:
                    log.error("plans keep changing an unchanged world; the last one: %s", self.plan)
        except BaseException as error:  # anything that ends the loop must end the server, and be logged
            self.failure = error
            self._closing = True
            log.critical("the loop has ended: %s", error, exc_info=not isinstance(error, StaleEpoch))
            self._fatal(error)

    def _idle_seconds(self) -> float:
        """Seconds until the next timer, 3600 at most; 1 while facts wait to be recorded."""
        if self._kept:
            return 1.0
        wakes = [self._facts.wake, None if self._dialogue.busy else self.plan.wake]
        due = [(wake - self.clock.now()) / 1000 for wake in wakes if wake is not None]
        return max(0.001, min([3600.0, *due]))  # platforms reject very long timeouts

    def _wait(self, timeout: float) -> list[News]:
        """All news that has arrived, after waiting up to `timeout` seconds for the first item."""
        items: list[News] = []
        self._idle = False
        try:
            item = self._inbox.get(timeout=timeout) if timeout > 0 else self._inbox.get_nowait()
            self._idle = True
            self._requested.clear()
            while True:
                if isinstance(item, Look):
                    item.show(self.state)
                elif isinstance(item, Bell):
                    self._idle &= item is Bell.ANSWERED and not self._dialogue.busy
                else:
                    items.append(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return items

    def cycle(self, news: list[News] | None = None, patience: float = PROMPT) -> None:
        """Take in, decide (wait up to `patience` seconds), record, publish, answer, send orders."""
        news = self._wait(0) if news is None else news
        decided = self._dialogue.answer(0)
        facts = [*self._kept, *(item for item in news if not isinstance(item, Command))]
        self._kept = []
        state = self.state
        state.turns += 1
        draft = Draft(self.clock.now())
        answers: list[Answer] = []
        self._take_in(facts, [item for item in news if isinstance(item, Command)], draft, answers)
        if decided is None and not self._dialogue.busy and not self._dialogue.rest:
            self._dialogue.ask(draft.now, whole=self.recorder.due)
            decided = self._dialogue.answer(self._dialogue.patience(patience))
        else:
            self._dialogue.due |= bool(state.news)  # no ask covers these yet
        orders = draft.orders
        if decided is not None:
            self.recorder.take(decided)
            if self._dialogue.fits(decided):
                self.plan = decided.plan
                orders += record_plan(state, decided.plan, draft, decided.cycle)
        for conclude in draft.when_decided:
            conclude(draft, self.plan if decided is not None else Plan())
        state.renew_phases(draft)
        self._facts.imports.explain(draft.now)
        gone = state.bury(draft)
        self.audit.save(draft)
        self._accounting.keep(draft)
        take_notices(state, draft)
        try:
            if not draft.empty:
                self.store.commit(state.epoch, draft.batch(durable=draft.weighty))
        except StaleEpoch:
            raise
        except Exception as error:  # noqa: BLE001 - after any failure memory must match the disk
            self._not_recorded(error, facts, answers)
            return
        for kind in sorted({self._orders.kind(order) for order in orders}):
            self._halt(f"recorded:{kind}")
        self.allocations.write(draft.now)
        self._publisher.publish(draft.now, decided.took if decided is not None else self.board.cycle_us)
        self.audit.seen(self.board, draft.now)
        for answer, result in answers:
            answer.set_result(result)
        for order in orders:
            self._orders.send(order)
        for fact in facts:
            if isinstance(fact, AttemptEnded):
                self._orders.recorded(fact.attempt)
        for workload in gone:
            self._orders.forget(workload)
        self._orders.answer(self._facts.imports.answers())

    def _take_in(
        self, facts: Sequence[Fact], commands: Sequence[Command], draft: Draft, answers: list[Answer]
    ) -> None:
        """Turn facts and requests, and what follows from them, into rows."""
        for fact in facts:
            self._facts.take(fact, draft)
        self._dialogue.take_in(len(commands))
        for command in commands:
            self._execute(command, draft, answers)
        self._facts.leave(draft)
        self._facts.timers(draft)
        self.state.renew_phases(draft)
        self._contradictions.look(draft)
        self._accounting.keep(draft)

    def _execute(self, command: Command, draft: Draft, answers: list[Answer]) -> None:
        own = Draft(draft.now)
        try:
            result = command.run(own)
        except Exception as error:
            if not isinstance(error, Refused):
                log.exception("a request failed")
            command.answer.set_exception(error)
            return
        for row in own.rows.values():
            self.state.note(row)
        for gone in own.dropped.values():
            self.state.note(gone, gone=True)
        draft.absorb(own)
        answers.append((command.answer, result))

    def _not_recorded(self, error: Exception, facts: list[Fact], answers: list[Answer]) -> None:
        """Fail the requests, keep the facts for the next cycle, rebuild the state from the store."""
        log.error("could not record a cycle: %s", error)
        lost = isinstance(error, StoreLost)
        hint = "Check whether it was done before you try again." if lost else "Nothing was changed."
        for answer, _ in answers:
            answer.set_exception(Unavailable(f"It could not be recorded: {error}.", hint))
        self._kept = facts
        self.plan = Plan()
        self._dialogue.drop(rest=not lost)
        self.state.rebuild(self._found_again() if lost else self.store.load())
        if lost:  # the commit may have been written after all, and its orders were not sent
            self._dialogue.due = True
            self._orders.repeat()

    def _found_again(self) -> Saved:
        """The rows of a lost store, once it is back. Raises StaleEpoch, and StoreLost if the loop closes."""
        while True:
            try:
                self.store.commit(self.state.epoch, Batch())
                return self.store.load()
            except StoreLost as error:
                if self._closing:
                    raise
                for item in self._wait(RETRY):
                    if isinstance(item, Command):
                        item.answer.set_exception(Unavailable(f"{error}.", "Nothing was changed."))
                    else:
                        self._kept.append(item)

    # -- the end -----------------------------------------------------------------------------------

    def stop_all(self) -> None:
        """Stop every task and start nothing more; the workloads wait for the next server."""

        def run(draft: Draft) -> None:
            for task in list(self.world.tasks.values()):
                if task.claims is not None:
                    draft.put(replace(task, claims=None))
            for name in sorted(self.world.nodes):
                self.state.note(replace(self.world.nodes[name].row, draining=True))

        self.call(run)
