"""Nodes and runs in virtual time. They outlive the engine, as processes outlive a server."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from pliant.control.ports import Sink
from pliant.control.submit.variables import Sealed, Variables
from pliant.engines.virtual.timeline import Timeline
from pliant.model.fact import AttemptEnded, AttemptResized, AttemptStarted, NodeLost, NodeSeen
from pliant.model.machine import Node, Share
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import AttemptId, Exit


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one attempt runs if it is neither stopped nor lost."""

    duration: int | None = None  # ms from its start to its end; None: it runs until it is stopped
    code: int = 0  # its exit code then
    stop: int = 0  # ms from the request to stop to its end; killed after the grace period
    output: bytes = b""  # what it logs, at its start
    error: str = ""  # why it cannot be started; empty: it can


def declared(order: Start, env: Mapping[str, str]) -> Behaviour:
    """The behaviour that the workload declares in its environment:

    PLIANT_VIRTUAL_SECONDS (forever when missing), PLIANT_VIRTUAL_EXIT, PLIANT_VIRTUAL_STOP_SECONDS,
    PLIANT_VIRTUAL_OUTPUT.
    """
    seconds = env.get("PLIANT_VIRTUAL_SECONDS")
    return Behaviour(
        duration=None if seconds is None else int(Decimal(seconds) * 1000),
        code=int(env.get("PLIANT_VIRTUAL_EXIT", "0")),
        stop=int(Decimal(env.get("PLIANT_VIRTUAL_STOP_SECONDS", "0")) * 1000),
        output=env.get("PLIANT_VIRTUAL_OUTPUT", "").encode(),
    )


@dataclass(slots=True)
class Run:
    """One attempt on these machines."""

    attempt: AttemptId
    node: str
    behaviour: Behaviour
    shares: tuple[Share, ...]
    started: int | None = None  # ms; None while it is being started
    stopping: bool = False
    exit: Exit | None = None

    @property
    def alive(self) -> bool:
        return self.started is not None and self.exit is None


class Machines:
    """Nodes and runs on one timeline; all facts and their order are deterministic. For one thread."""

    def __init__(
        self,
        timeline: Timeline,
        nodes: Iterable[Node],
        *,
        behaviour: Callable[[Start, Mapping[str, str]], Behaviour] = declared,
        ended: Callable[[Run], None] = lambda run: None,
        start_latency: int = 0,
        stop_latency: int = 0,
    ) -> None:
        """`behaviour` is called before each start, `ended` at each end, before the fact is reported.

        Latencies in ms: from an order to its effect.
        """
        self.timeline = timeline
        self.nodes = {node.name: node for node in nodes}
        self.runs: dict[AttemptId, Run] = {}  # claimed attempts; none of them starts a second time
        self.sealed: dict[str, Sealed] = {}  # by workload: its variables, which nodes keep
        self.allocations: dict[AttemptId, dict[str, object]] = {}
        self.epoch = 0  # the highest one seen; orders of a lower one change nothing
        self.sink: Sink | None = None  # of the open engine; None: facts are dropped
        self._behaviour, self._ended = behaviour, ended
        self._start_latency, self._stop_latency = start_latency, stop_latency

    # ---- orders ----

    def start(self, order: Start) -> None:
        if order.epoch < self.epoch:
            return
        run = self.runs.get(order.attempt)
        if run is not None:
            self._answer_end(run)
            return
        placement = order.placement
        behaviour = self._behaviour(order, self._variables(order))
        run = Run(order.attempt, placement.node, behaviour, placement.shares)
        self.runs[order.attempt] = run
        self.timeline.after(self._start_latency, lambda: self._begin(run))

    def _variables(self, order: Start) -> dict[str, str]:
        kept = self.sealed.get(order.workload.id, {})
        found = kept.get(order.attempt.task.rpartition("-")[0], kept.get("", Variables()))
        return dict(found.captured) | dict(found.given)

    def stop(self, order: Stop) -> None:
        if order.epoch < self.epoch:
            return
        run = self.runs.get(order.attempt)
        if run is None:
            run = self.runs[order.attempt] = Run(order.attempt, order.node, Behaviour(), ())
            self.timeline.after(0, lambda: self._end(run, stopped=True))
        elif run.exit is not None:
            self._answer_end(run)
        elif not run.stopping:
            run.stopping = True
            delay = self._stop_latency + min(run.behaviour.stop, order.grace)
            killed = run.behaviour.stop > order.grace
            self.timeline.after(
                delay, lambda: self._end(run, code=None if killed else 0, signal=9 if killed else None)
            )

    def resize(self, order: Resize) -> None:
        run = self.runs.get(order.attempt)
        if order.epoch < self.epoch or run is None or not run.alive:
            return
        lost = {share.gpu for share in run.shares} - set(order.placement.uuids)
        delay = min(run.behaviour.stop, order.grace) if lost else 0

        def resized() -> None:
            if run.alive:
                place, now = order.placement, self.timeline.now()
                run.shares = place.shares
                self._report(AttemptResized(run.attempt, run.shares, now, place.cpu, place.memory))

        self.timeline.after(delay, resized)

    def take_over(self, runs: Iterable[Run]) -> None:
        """Adopt the runs of other machines like these; live ones end after their declared duration."""
        for run in runs:
            self.runs[run.attempt] = run
            if run.alive and run.started is not None and run.behaviour.duration is not None:
                self.timeline.at(run.started + run.behaviour.duration, partial(self._finish, run))

    def _finish(self, run: Run) -> None:
        self._end(run, code=run.behaviour.code)

    # ---- what may go wrong ----

    def fail(self, attempt: AttemptId, code: int = 1) -> None:
        """End the attempt now, as if by itself, with that exit code."""
        self._end(self.runs[attempt], code=code)

    def lose(self, attempt: AttemptId) -> None:
        """End the attempt now as lost: without an exit code."""
        self._end(self.runs[attempt], lost=True)

    def lose_node(self, name: str) -> None:
        """Remove a node and lose every attempt on it."""
        del self.nodes[name]
        self._report(NodeLost(name))
        for run in list(self.runs.values()):
            if run.node == name and run.exit is None:
                self._end(run, lost=True)

    def add_node(self, node: Node) -> None:
        """Add a node, or replace the one of that name."""
        self.nodes[node.name] = node
        self._report(NodeSeen(node))

    # ---- what happens ----

    def _begin(self, run: Run) -> None:
        if run.exit is not None or run.stopping:
            return  # stopped or lost during its start: its end is reported elsewhere
        if run.behaviour.error:
            self._end(run, error=run.behaviour.error)
            return
        run.started = self.timeline.now()
        self._report(AttemptStarted(run.attempt, run.started))
        if run.behaviour.duration is not None:
            self.timeline.after(run.behaviour.duration, partial(self._finish, run))

    def _end(
        self,
        run: Run,
        *,
        code: int | None = None,
        signal: int | None = None,
        stopped: bool = False,
        lost: bool = False,
        error: str = "",
    ) -> None:
        if run.exit is None:
            run.exit = Exit(self.timeline.now(), code, signal, stopped or run.stopping, lost, error)
            self._ended(run)
            self._report_end(run)

    def _report_end(self, run: Run) -> None:
        if run.exit is not None:
            self._report(AttemptEnded(run.attempt, run.exit))

    def _answer_end(self, run: Run) -> None:
        """Answer a repeated order by its end: as an event of the timeline, not inside the call."""
        self.timeline.after(0, lambda: self._report_end(run))

    def _report(self, fact: AttemptStarted | AttemptEnded | AttemptResized | NodeSeen | NodeLost) -> None:
        if self.sink is not None:
            self.sink(fact)
