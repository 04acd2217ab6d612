"""The contract of engines: the same tests for each. An engine's rig knows how to inspect and to break it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import pytest

from pliant.control.ports import Engine, StaleEpoch
from pliant.control.submit.variables import Variables
from pliant.model.fact import AttemptEnded, AttemptResized, AttemptStarted, Fact, NodeSeen, WorkListed
from pliant.model.machine import Gpu, Node, Placement, Share
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import Attempt, AttemptId, Exit, Kind, Launch, Request, TaskGroup, Workload

GIB = 2**30
GPUS = tuple(Gpu(f"GPU-00000000-0000-0000-0000-00000000000{index}", index, 16 * GIB) for index in range(4))
NODE = Node("n0", GPUS, 8000, 64 * GIB)
A = AttemptId("w-a", "worker-0", 1)
B = AttemptId("w-b", "worker-0", 1)
GRACE = 300_000  # ms; longer than any test: a task that it ends is a failure


def place(*indexes: int, portion: int = 1000) -> Placement:
    shares = tuple(Share(GPUS[index].uuid, portion, 16 * GIB * portion // 1000) for index in indexes)
    return Placement(NODE.name, shares, 1000, GIB)


def workload(id: str, launch: Launch) -> Workload:
    group = TaskGroup("worker", Request(1))
    return Workload(id, f"name-{id}", "project-1", Kind.TRAINING, launch, (group,))


class Rig(ABC):
    """One engine on one machine."""

    engine: Engine
    epoch = 1
    execs = False  # True if commands can run inside tasks
    resizes = True  # True if the devices of a running task can change
    node = NODE

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.known: dict[AttemptId, Attempt] = {}  # recorded before they are ordered, as in the store

    # ---- what a rig must implement ----

    @abstractmethod
    def make(self) -> Engine:
        """A new engine object on the same machine."""

    @abstractmethod
    def forever(self, *, output: str = "") -> Launch:
        """A launch that runs until it is asked to end, then ends at once."""

    @abstractmethod
    def exits(self, code: int, *, output: str = "") -> Launch:
        """A launch that ends with that code, but not before `finish`."""

    @abstractmethod
    def stubborn(self) -> Launch:
        """A launch that does not end when it is asked to."""

    @abstractmethod
    def broken(self) -> Launch:
        """A launch that cannot be started."""

    @abstractmethod
    def finish(self, attempt: AttemptId) -> None:
        """Lets an attempt of `exits` end; returns when it has."""

    @abstractmethod
    def destroy(self, attempt: AttemptId) -> None:
        """Removes everything of it at once, without a record of its end."""

    def grant(self, attempt: AttemptId) -> None:
        """Acts as its node, which gives it the cores and the memory that it now asks for."""
        assert self.alive(attempt)

    @abstractmethod
    def alive(self, attempt: AttemptId) -> bool:
        """True if it really runs, whatever the engine reports."""

    def executed(self, attempt: AttemptId, output: str, code: int | None) -> bool:
        """True if a command that prints $PLIANT_ATTEMPT and exits with 4 gives this output and code."""
        return (output, code) == (f"{attempt}\n", 4)

    def main(self, attempt: AttemptId) -> int:
        """Pid of its command; any number if the engine has no processes."""
        return 0

    @abstractmethod
    def begun(self, attempt: AttemptId) -> int:
        """How often its command has really started."""

    @abstractmethod
    def until(self, condition: Callable[[], object], what: str) -> None:
        """Lets time pass until the condition holds; fails if it never does."""

    # ---- what all rigs share ----

    def place(self, *indexes: int) -> Placement:
        """A placement on the node's devices with these indexes."""
        return place(*indexes)

    def sink(self, fact: Fact) -> None:
        if isinstance(fact, AttemptEnded):
            assert not self.alive(fact.attempt), (
                f"{fact.attempt} is reported ended while something of it lives"
            )
        if not isinstance(fact, WorkListed):  # no test of the contract makes work outside of the engine
            self.facts.append(fact)

    def open(self, *, known: bool = True) -> None:
        self.engine = self.make()
        self.engine.open(self.sink, list(self.known.values()) if known else [], self.epoch)

    def drop(self) -> None:
        """Ends the server and forgets the facts that it got."""
        self.engine.close()
        self.facts.clear()

    def start(
        self,
        attempt: AttemptId,
        launch: Launch,
        placement: Placement | None = None,
        variables: Variables | None = None,
    ) -> Start:
        if variables is not None:
            names = [[name for name, _ in pairs] for pairs in (variables.given, variables.captured)]
            launch = replace(launch, variables=tuple(names[0]), captured=tuple(names[1]))
            self.engine.seal(attempt.workload, {"": variables})
        order = Start(
            attempt, placement or self.place(0), workload(attempt.workload, launch), "decision-1", self.epoch
        )
        self.known[attempt] = Attempt(attempt, order.placement, self.epoch, order.cause, 0)
        self.engine.start(order)
        return order

    def stop(self, attempt: AttemptId, grace: int = GRACE) -> Stop:
        order = Stop(attempt, self.node.name, grace, "decision-2", self.epoch)
        self.engine.stop(order)
        return order

    def run(self, attempt: AttemptId, launch: Launch, placement: Placement | None = None) -> Start:
        order = self.start(attempt, launch, placement)
        self.until(lambda: self.started(attempt) and self.begun(attempt), f"{attempt} runs")
        return order

    def started(self, attempt: AttemptId) -> list[AttemptStarted]:
        return [fact for fact in self.facts if isinstance(fact, AttemptStarted) and fact.attempt == attempt]

    def ends(self, attempt: AttemptId) -> list[Exit]:
        return [
            fact.exit for fact in self.facts if isinstance(fact, AttemptEnded) and fact.attempt == attempt
        ]

    def end(self, attempt: AttemptId) -> Exit:
        """Waits for its end; returns its outcome."""
        self.until(lambda: self.ends(attempt), f"{attempt} is reported ended")
        return self.ends(attempt)[0]

    def log(self, attempt: AttemptId, *, tail: int | None = None, follow: bool = False) -> str:
        chunks = self.engine.logs(attempt, follow=follow, tail=tail, since=None)
        return b"".join(chunks).decode()


class EngineContract:
    """Subclasses need a fixture `rig` that is open and cleans up."""

    # ---- start and end ----

    def test_nodes_are_reported_first(self, rig: Rig):
        assert rig.facts == [NodeSeen(rig.node)]

    @pytest.mark.parametrize("code", [0, 3])
    def test_a_task_starts_and_ends_by_itself(self, rig: Rig, code):
        rig.run(A, rig.exits(code))
        assert not rig.ends(A)
        rig.finish(A)
        end = rig.end(A)
        assert (end.code, end.signal, end.stopped, end.lost, end.error) == (code, None, False, False, "")
        assert end.succeeded == (code == 0)
        assert end.at >= rig.started(A)[0].at
        facts = [type(fact) for fact in rig.facts if not isinstance(fact, NodeSeen)]
        assert facts == [AttemptStarted, AttemptEnded]

    def test_a_repeated_start_starts_once(self, rig: Rig):
        order = rig.start(A, rig.exits(0))
        rig.engine.start(order)
        rig.until(lambda: rig.started(A) and rig.begun(A), "it runs")
        rig.engine.start(order)
        rig.finish(A)
        rig.end(A)
        rig.engine.start(order)
        rig.stop(A)
        rig.until(lambda: len(rig.ends(A)) >= 3, "orders on an ended attempt are answered by its end")
        assert rig.begun(A) == 1
        assert len(rig.started(A)) == 1
        assert len(set(rig.ends(A))) == 1

    def test_what_cannot_start_ends_with_the_reason(self, rig: Rig):
        order = rig.start(A, rig.broken())
        end = rig.end(A)
        assert end.error and not end.succeeded and not end.lost and not end.stopped
        assert not rig.started(A)
        rig.engine.start(order)
        rig.until(lambda: len(rig.ends(A)) == 2, "it is answered again")
        assert rig.ends(A)[0] == rig.ends(A)[1]
        rig.run(B, rig.forever())
        assert rig.alive(B)

    def test_tasks_do_not_wait_for_one_another(self, rig: Rig):
        rig.run(A, rig.stubborn())
        rig.stop(A)
        rig.run(B, rig.exits(0))
        rig.finish(B)
        rig.end(B)
        assert rig.alive(A) and not rig.ends(A)

    # ---- stop ----

    def test_stop(self, rig: Rig):
        rig.run(A, rig.forever())
        rig.stop(A)
        end = rig.end(A)
        assert end.stopped and not end.lost and not end.succeeded

    def test_stop_before_start(self, rig: Rig):
        stop = rig.stop(A)
        end = rig.end(A)
        assert end.stopped and not end.lost and end.code is None
        rig.start(A, rig.forever())
        rig.until(lambda: len(rig.ends(A)) == 2, "the late start is answered by the end")
        rig.engine.stop(stop)
        rig.until(lambda: len(rig.ends(A)) == 3, "the repeated stop as well")
        assert rig.begun(A) == 0 and not rig.started(A)
        assert len(set(rig.ends(A))) == 1

    def test_stop_right_after_start(self, rig: Rig):
        rig.start(A, rig.forever())
        rig.stop(A)
        assert rig.end(A).stopped
        assert rig.begun(A) <= 1

    def test_stop_twice(self, rig: Rig):
        rig.run(A, rig.forever())
        rig.engine.stop(rig.stop(A))
        assert rig.end(A).stopped
        rig.stop(A)
        rig.until(lambda: len(rig.ends(A)) >= 2, "the late stop is answered by the end")
        assert len(set(rig.ends(A))) == 1

    def test_a_stop_after_the_end_changes_nothing(self, rig: Rig):
        rig.run(A, rig.exits(0))
        rig.finish(A)
        end = rig.end(A)
        rig.stop(A)
        rig.until(lambda: len(rig.ends(A)) == 2, "the late stop is answered by the end")
        assert rig.ends(A)[1] == end and end.succeeded

    def test_who_does_not_end_is_killed_after_the_grace_of_the_stop(self, rig: Rig):
        rig.run(A, rig.stubborn())
        begun = time.monotonic()
        rig.stop(A, grace=50)
        end = rig.end(A)
        assert end.stopped and end.signal == 9
        assert time.monotonic() - begun < GRACE / 1000 / 2, "not the grace of the launch"

    # ---- loss ----

    def test_what_vanishes_is_lost(self, rig: Rig):
        rig.run(A, rig.forever())
        rig.destroy(A)
        end = rig.end(A)
        assert end.lost and not end.stopped and not end.succeeded

    def test_what_vanishes_after_a_stop_was_stopped(self, rig: Rig):
        rig.run(A, rig.stubborn())
        rig.stop(A)
        rig.destroy(A)
        assert rig.end(A).stopped

    def test_a_lost_attempt_is_not_started_again(self, rig: Rig):
        order = rig.run(A, rig.forever())
        rig.destroy(A)
        rig.end(A)
        rig.engine.start(order)
        rig.until(lambda: len(rig.ends(A)) == 2, "the repeated start is answered by the loss")
        assert rig.begun(A) == 1
        again = AttemptId(A.workload, A.task, 2)
        rig.run(again, rig.forever())
        assert rig.alive(again)

    # ---- servers come and go ----

    def test_adoption(self, rig: Rig):
        order = rig.run(A, rig.exits(5))
        rig.run(B, rig.forever())
        rig.drop()
        assert rig.alive(A)
        rig.open()
        assert rig.facts[0] == NodeSeen(rig.node)
        rig.until(lambda: rig.started(A) and rig.started(B), "both are reported alive")
        rig.engine.start(order)
        rig.finish(A)
        assert rig.end(A).code == 5
        rig.stop(B)
        assert rig.end(B).stopped
        assert rig.begun(A) == 1 and rig.begun(B) == 1

    def test_an_end_that_nobody_watched(self, rig: Rig):
        rig.run(A, rig.exits(5))
        rig.run(B, rig.forever())
        rig.drop()
        rig.finish(A)
        rig.destroy(B)
        rig.open()
        assert rig.end(A).code == 5
        assert rig.end(B).lost
        assert not rig.started(A) and not rig.started(B)

    def test_what_was_never_begun_is_not_mentioned(self, rig: Rig):
        order = rig.run(A, rig.exits(0))
        rig.drop()
        rig.known[B] = Attempt(B, rig.place(1), rig.epoch, "decision-1", 0)
        rig.open()
        rig.until(lambda: rig.started(A), "the other one is reported")
        rig.engine.start(Start(B, rig.place(1), order.workload, "decision-1", rig.epoch))
        rig.until(lambda: rig.started(B) and rig.begun(B), "it starts now")
        about_b = [fact for fact in rig.facts if not isinstance(fact, NodeSeen) and fact.attempt == B]
        assert [type(fact) for fact in about_b] == [AttemptStarted]

    def test_what_nobody_knows_is_ended(self, rig: Rig):
        rig.run(A, rig.forever())
        rig.drop()
        rig.open(known=False)
        rig.until(lambda: not rig.alive(A), "it is ended")
        assert rig.facts == [NodeSeen(rig.node)]

    def test_orders_of_an_older_epoch_change_nothing(self, rig: Rig):
        rig.run(A, rig.exits(0))
        rig.drop()
        rig.epoch = 5
        rig.open()
        rig.until(lambda: rig.started(A), "it is adopted")
        rig.epoch = 4
        rig.stop(A)
        rig.start(B, rig.forever())
        with pytest.raises(StaleEpoch):
            rig.make().open(rig.sink, [], 4)
        rig.epoch = 5
        rig.finish(A)
        assert rig.end(A).succeeded, "the old stop was heard"
        rig.stop(B)
        assert rig.end(B).stopped
        assert rig.begun(B) == 0

    # ---- the rest ----

    def test_logs(self, rig: Rig):
        rig.run(A, rig.exits(0, output="one\ntwo\nthree\n"))
        rig.finish(A)
        rig.end(A)
        assert rig.log(A) == "one\ntwo\nthree\n"
        assert rig.log(A, tail=2) == "two\nthree\n"
        assert rig.log(A, tail=0) == ""
        assert rig.log(AttemptId("w-none", "worker-0", 1)) == ""

    def test_logs_can_be_followed_to_the_end(self, rig: Rig):
        rig.run(A, rig.exits(0, output="one\ntwo\n"))
        stream = rig.engine.logs(A, follow=True, tail=None, since=None)
        seen = b""
        while not seen.endswith(b"one\ntwo\n"):
            seen += next(stream)
        rig.finish(A)
        assert b"".join(stream) == b""
        assert rig.log(A, follow=True).endswith("one\ntwo\n")

    def test_resize_frees_what_goes_and_says_so(self, rig: Rig):
        rig.run(A, rig.forever(), rig.place(0))
        rig.engine.register(A, rig.main(A))
        for wanted in (rig.place(0, 1), rig.place(1)):
            rig.facts.clear()
            rig.engine.resize(Resize(A, wanted, 10, "decision-3", rig.epoch))
            has = wanted if rig.resizes else rig.place(0)
            rig.until(
                lambda shares=has.shares: any(
                    isinstance(fact, AttemptResized) and fact.attempt == A and fact.shares == shares
                    for fact in rig.facts
                ),
                "it says what it has",
            )
        assert rig.alive(A) and rig.begun(A) == 1

    def test_cores_and_memory_change_while_it_runs(self, rig: Rig):
        rig.run(A, rig.forever(), rig.place(0))
        wanted = replace(rig.place(0), cpu=2000, memory=2 * GIB)
        rig.engine.resize(Resize(A, wanted, 10, "decision-3", rig.epoch))
        rig.grant(A)
        rig.until(
            lambda: any(
                isinstance(fact, AttemptResized)
                and (fact.attempt, fact.shares, fact.cpu, fact.memory) == (A, wanted.shares, 2000, 2 * GIB)
                for fact in rig.facts
            ),
            "it says what it has",
        )
        assert rig.alive(A) and rig.begun(A) == 1

    def test_exec(self, rig: Rig):
        rig.run(A, rig.forever())
        argv = ["sh", "-c", "echo $PLIANT_ATTEMPT; exit 4"]
        if not rig.execs:
            with pytest.raises(ValueError, match="no command can run"):
                rig.engine.exec(A, argv, tty=False, stdin=False, rows=0, columns=0)
            return
        session = rig.engine.exec(A, argv, tty=False, stdin=False, rows=0, columns=0)
        output = b""
        while (data := session.read(1.0)) != b"":
            output += data or b""
        told = output.decode(), session.exit_code()
        assert rig.executed(A, *told), told
        with pytest.raises(ValueError, match="not running"):
            rig.engine.exec(B, argv, tty=False, stdin=False, rows=0, columns=0)

    def test_forget(self, rig: Rig):
        row = rig.run(A, rig.exits(0, output="one\n")).workload
        with pytest.raises(ValueError, match="still runs"):
            rig.engine.forget(row)
        rig.finish(A)
        rig.end(A)
        rig.engine.forget(row)
        assert rig.log(A) == ""
        rig.engine.forget(row)
