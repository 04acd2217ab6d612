"""The one loop: facts and requests in, decide, record, then act. The only place that sequences I/O.

Everything that changes the world runs on the loop's thread, in cycles. A cycle takes what has arrived,
turns it into rows, asks the core for a plan, writes rows and plan in one transaction, and only then
answers requests and sends orders. Other threads read the board that it publishes at the end.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pliant.control.board import Publisher
from pliant.control.draft import Draft
from pliant.control.errors import Refused, Unavailable
from pliant.control.facts import FactBook
from pliant.control.ports import Clock, Engine, Halt, Remembered, Row, Saved, StaleEpoch, Store
from pliant.control.record import record_plan
from pliant.control.transitions import phase_changed, phase_of
from pliant.control.view import Board
from pliant.model.event import EventKind
from pliant.model.fact import Fact, NodeSeen
from pliant.model.machine import Cluster, Node, NodePool
from pliant.model.order import Order, Resize, Start, Stop
from pliant.model.reason import Reason
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Attempt, AttemptId, Desired, Phase, Task, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.plan import Plan, Verdict
from pliant.sched.settings import Settings
from pliant.sched.world import World

log = logging.getLogger(__name__)

T = TypeVar("T")

SETTLING = 50
"""Cycles in a row that may follow one another without news; more means that plans undo each other."""


@dataclass(slots=True)
class Command:
    """A request that changes something. It writes into a draft, or raises Refused to change nothing."""

    run: Callable[[Draft], Any]
    answer: "Future[Any]"


class Loop:
    """Owns the world. `call` and `post` are safe from any thread; all else belongs to the loop's thread."""

    def __init__(
        self,
        store: Store,
        engines: Mapping[str, Engine],
        clock: Clock,
        settings: Settings | None = None,
        *,
        halt: Halt = lambda point: None,
        fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.store = store
        self.engines = engines
        self.clock = clock
        self.settings = settings or Settings()
        self.world = World()
        self.attempts: dict[AttemptId, Attempt] = {}  # those not known to have ended
        self.reasons: dict[str, Reason] = {}  # workload id -> reason of the last decision about it
        self.verdicts: dict[str, Verdict] = {}  # workload id -> why it waits, by the last cycle
        self.epoch = 0
        self.cycles = 0
        self.serial = 0  # of the newest workload
        self.plan = Plan()  # of the last cycle
        self._facts = FactBook(self)
        self._publisher = Publisher(self)
        self._halt = halt
        self._fatal = fatal or self._raise_later
        self._inbox: queue.SimpleQueue[Command | Fact | None] = queue.SimpleQueue()
        self._kept: list[Fact] = []  # facts whose cycle could not be recorded
        self._touched: set[str] = set()  # workloads whose rows changed in this cycle
        self._thread: threading.Thread | None = None
        self._closing = False
        self.failure: BaseException | None = None

    # -- life ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the lead, rebuild the world from the store, and let the engines say what lives."""
        self.epoch = self.store.lead()
        saved = self._rebuild()
        for engine in self.engines.values():
            known = [attempt for attempt in saved.attempts if self._engine_of(attempt) == engine.name]
            engine.open(self.post, known, self.epoch)
        seen = {item.node.name for item in self._peek() if isinstance(item, NodeSeen)}
        self._facts.forget_nodes(name for name in list(self.world.nodes) if name not in seen)
        self.cycle()
        self._repeat_orders()
        for workload in self.store.ended():
            self._forget(workload)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pliant-loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the present cycle and stop. What runs goes on running."""
        self._closing = True
        self._inbox.put(None)
        if self._thread is not None:
            self._thread.join(timeout=30)

    @property
    def board(self) -> Board:
        """The newest published state; immutable."""
        return self._publisher.board

    def wait(self, after: int, timeout: float) -> tuple[Board, frozenset[str] | None]:
        """The board once it is newer than `after`, and which workloads changed since."""
        return self._publisher.wait(after, timeout)

    # -- from other threads -------------------------------------------------------------------------

    def post(self, fact: Fact) -> None:
        """Tell the loop what an engine observed."""
        self._inbox.put(fact)

    def submit(self, run: Callable[[Draft], T]) -> "Future[T]":
        """Have `run` executed in the next cycle; the answer comes once its outcome is on disk."""
        command = Command(run, Future())
        self._inbox.put(command)
        return command.answer

    def call(self, run: Callable[[Draft], T], timeout: float = 60) -> T:
        """`submit` and wait."""
        return self.submit(run).result(timeout)

    def wake(self) -> None:
        self._inbox.put(None)

    # -- the loop -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            settling = 0
            while not self._closing:
                news = self._wait(0.0 if 0 < settling < SETTLING else self._idle_seconds())
                settling = 0 if news else settling
                self.cycle(news)
                if self.plan.empty:
                    settling = 0
                else:
                    settling += 1
                    if settling == SETTLING:
                        log.error("plans keep changing an unchanged world: the last one was %s", self.plan)
        except BaseException as error:  # noqa: BLE001 - whatever ends the loop must end the server, loudly
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._closing = True
        log.critical("the loop has ended: %s", error, exc_info=not isinstance(error, StaleEpoch))
        self._fatal(error)

    @staticmethod
    def _raise_later(error: BaseException) -> None:
        """Without a server around it the failure stays in `self.failure` for whoever drives the loop."""

    def _idle_seconds(self) -> float:
        """How long nothing can happen by itself."""
        if self._kept:
            return 1.0
        wakes = [wake for wake in (self.plan.wake, self._facts.wake()) if wake is not None]
        return max(0.0, (min(wakes) - self.clock.now()) / 1000) if wakes else 3600.0

    def _wait(self, timeout: float) -> list[Command | Fact]:
        """All that has arrived, waiting for the first of it."""
        items: list[Command | Fact] = []
        try:
            item = self._inbox.get(timeout=timeout) if timeout > 0 else self._inbox.get_nowait()
            while True:
                if item is not None:
                    items.append(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return items

    def _peek(self) -> list[Command | Fact]:
        """What waits in the inbox, left there in order."""
        items = self._wait(0)
        for item in items:
            self._inbox.put(item)
        return items

    def cycle(self, news: list[Command | Fact] | None = None) -> None:
        """One turn: take in, decide, record, answer, act, publish."""
        news = self._wait(0) if news is None else news
        facts, self._kept = [*self._kept, *(item for item in news if not isinstance(item, Command))], []
        draft = Draft(self.clock.now())
        self._touched.clear()
        for fact in facts:
            self._facts.take(fact, draft)
        answers: list[tuple[Future[Any], Any]] = []
        for item in news:
            if isinstance(item, Command):
                self._execute(item, draft, answers)
        self._facts.timers(draft)
        self._settle(draft)
        began = time.perf_counter_ns()
        self.plan = decide(self.world, draft.now, self.settings)
        took = (time.perf_counter_ns() - began) // 1000
        self.cycles += 1
        orders = record_plan(self, self.plan, draft)
        self._settle(draft)
        gone = self._bury(draft)
        try:
            if not draft.empty:
                self.store.commit(self.epoch, draft.batch(durable=True))
        except StaleEpoch:
            raise
        except Exception as error:  # noqa: BLE001 - any failure to record must leave memory as the disk is
            self._not_recorded(error, facts, answers)
            return
        for kind in sorted({self._kind(order) for order in orders}):
            self._halt(f"recorded:{kind}")
        self._publisher.publish(frozenset(self._touched), draft.now, took)
        for answer, result in answers:
            answer.set_result(result)
        self._send(orders)
        for workload in gone:
            self._forget(workload)

    def _execute(self, command: Command, draft: Draft, answers: list[tuple[Future[Any], Any]]) -> None:
        own = Draft(draft.now)
        try:
            result = command.run(own)
        except Exception as error:
            if not isinstance(error, Refused):
                log.exception("a request failed")
            command.answer.set_exception(error)
            return
        for row in own.rows.values():
            self.note(row)
        for row in own.dropped.values():
            self.note(row, gone=True)
        draft.absorb(own)
        answers.append((command.answer, result))

    def _not_recorded(
        self, error: Exception, facts: list[Fact], answers: list[tuple[Future[Any], Any]]
    ) -> None:
        """Nothing was written: go back to what the disk says, keep the facts, refuse the requests."""
        log.error("could not record a cycle: %s", error)
        for answer, _ in answers:
            answer.set_exception(Unavailable(f"It could not be recorded: {error}.", "Nothing was changed."))
        self._kept = facts
        self.plan = Plan()
        try:
            self._rebuild()
        except Exception:
            log.exception("could not read the store back")

    # -- rows ---------------------------------------------------------------------------------------

    def put(self, draft: Draft, row: Row) -> None:
        """Record a row and let the world know."""
        draft.put(row)
        self.note(row)

    def note(self, row: Row | Remembered, *, gone: bool = False) -> None:
        """Let memory follow a row that this cycle records."""
        match row:
            case Attempt():
                if gone or row.exit is not None:
                    self.attempts.pop(row.id, None)
                else:
                    self.attempts[row.id] = row
            case Workload() | Task():
                self._touched.add(row.id if isinstance(row, Workload) else row.workload)
                (self.world.drop if gone else self.world.put)(row)
            case Department() | Project() | NodePool() | Node():
                (self.world.drop if gone else self.world.put)(row)
                self._publisher.stale = True
            case Cluster():
                self._publisher.cluster = row
                self._publisher.stale = True
            case Remembered():
                pass

    def touched(self, workload: str) -> None:
        """Have this workload's view published again."""
        self._touched.add(workload)

    def _rebuild(self) -> Saved:
        """A world built fresh from the store."""
        saved = self.store.load()
        self.world = World()
        for rows in (
            saved.pools,
            saved.departments,
            saved.projects,
            saved.nodes,
            saved.workloads,
            saved.tasks,
        ):
            for row in rows:
                self.world.put(row)
        self.attempts = {attempt.id: attempt for attempt in saved.attempts}
        self.serial = max(self.serial, int(saved.settings.get("serial", "0")))
        self._publisher.cluster = saved.cluster
        self._publisher.stale = True
        self._touched = set(self.world.workloads)
        return saved

    def _settle(self, draft: Draft) -> None:
        """Bring the phases of all touched workloads in line with their tasks."""
        for identity in sorted(self._touched):
            workload = self.world.workloads.get(identity)
            if workload is None:
                continue
            tasks = self.world.tasks_of(identity)
            phase = phase_of(workload, tasks)
            if phase is workload.phase:
                continue
            message = self._facts.last_words.get(identity, "") if phase.final else ""
            self.put(draft, phase_changed(workload, phase, draft.now, message))
            if phase.final:
                kind = EventKind.COMPLETED if phase is Phase.COMPLETED else EventKind.FAILED
                draft.event(
                    identity, kind, message or f"The workload is {phase.value.lower()}.", who="server"
                )
                for task in tasks:
                    if task.claims is not None:
                        self.put(draft, replace(task, claims=None))
            elif phase in (Phase.RUNNING, Phase.STOPPED):
                kind = EventKind.RUNNING if phase is Phase.RUNNING else EventKind.STOPPED
                draft.event(identity, kind, f"The workload is {phase.value.lower()}.", who="server")

    def _bury(self, draft: Draft) -> list[Workload]:
        """Let go of workloads that were deleted and of which nothing lives."""
        gone = []
        for identity in sorted(self._touched):
            workload = self.world.workloads.get(identity)
            if workload is None or workload.desired is not Desired.DELETED:
                continue
            tasks = self.world.tasks_of(identity)
            if any(task.phase.live for task in tasks):
                continue
            for task in tasks:
                draft.drop(task)
                self.world.drop(task)
            self.world.drop(workload)
            draft.put(replace(workload, deleted=draft.now, phase_since=draft.now))
            draft.event(identity, EventKind.DELETED, f"{workload.name} is gone.", who="server")
            self.reasons.pop(identity, None)
            self.verdicts.pop(identity, None)
            gone.append(workload)
        return gone

    # -- orders -------------------------------------------------------------------------------------

    def _kind(self, order: Order) -> str:
        """start, stop or resize; a stop of a task that keeps claims is half of a resize."""
        if isinstance(order, Start):
            return "start"
        task = self.world.tasks.get((order.attempt.workload, order.attempt.task))
        kept = task is not None and task.claims is not None
        return "resize" if kept or isinstance(order, Resize) else "stop"

    def _engine(self, node: str) -> Engine:
        state = self.world.nodes.get(node)
        name = state.row.engine if state is not None else ""
        return self.engines.get(name) or next(iter(self.engines.values()))

    def _engine_of(self, attempt: Attempt) -> str:
        return self._engine(attempt.placement.node).name

    def _send(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Start():
                    self._engine(order.placement.node).start(order)
                case Stop():
                    self._engine(order.node).stop(order)
                case Resize():
                    self._engine(order.placement.node).resize(order)

    def _repeat_orders(self) -> None:
        """After a restart: send again what was recorded and never confirmed. Engines take repetitions."""
        orders: list[Order] = []
        for attempt in sorted(self.attempts.values(), key=lambda attempt: attempt.id):
            workload = self.world.workloads.get(attempt.id.workload)
            task = self.world.tasks.get((attempt.id.workload, attempt.id.task))
            if workload is None or task is None or task.attempt != attempt.id.number:
                continue
            if attempt.stop_ordered is not None:
                grace = workload.launch.grace
                orders.append(Stop(attempt.id, attempt.placement.node, grace, attempt.stop_cause, self.epoch))
            elif task.phase is TaskPhase.ORDERED:
                orders.append(Start(attempt.id, attempt.placement, workload, attempt.cause, self.epoch))
        self._send(orders)

    def _forget(self, workload: Workload) -> None:
        for engine in self.engines.values():
            engine.forget(workload.id)

    def node_row(self, name: str) -> Node | None:
        state = self.world.nodes.get(name)
        return state.row if state is not None else None
