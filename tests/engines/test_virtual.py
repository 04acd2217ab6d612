"""The virtual engine keeps the contract and its own promise: others control its time."""

import pytest

from pliant.control.submit.variables import Variables
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Behaviour, Machines, declared
from pliant.engines.virtual.timeline import Timeline
from pliant.model.fact import AttemptEnded, AttemptStarted, NodeLost, NodeSeen
from pliant.model.order import Start, Stop
from pliant.model.workload import Launch
from tests.engines.contract import GRACE, NODE, A, B, EngineContract, Rig, place, workload


class VirtualRig(Rig):
    """A rig whose launches name their behaviour in the image."""

    def __init__(self):
        super().__init__()
        self.behaviours: dict[str, Behaviour] = {}
        self.timeline = Timeline(start=1_000_000)
        self.machines = Machines(
            self.timeline,
            [NODE],
            behaviour=lambda order, env: self.behaviours[order.workload.launch.image],
            start_latency=20,
            stop_latency=5,
        )

    def make(self):
        return VirtualEngine(self.machines)

    def launch(self, behaviour):
        name = f"behaviour-{len(self.behaviours)}"
        self.behaviours[name] = behaviour
        return Launch(name, grace=GRACE)

    def forever(self, *, output=""):
        return self.launch(Behaviour(output=output.encode()))

    def exits(self, code, *, output=""):
        return self.launch(Behaviour(code=code, output=output.encode()))

    def stubborn(self):
        return self.launch(Behaviour(stop=GRACE * 10))

    def broken(self):
        return self.launch(Behaviour(error="no such command"))

    def finish(self, attempt):
        run = self.machines.runs[attempt]
        self.machines.fail(attempt, run.behaviour.code)

    def destroy(self, attempt):
        self.machines.lose(attempt)

    def alive(self, attempt):
        run = self.machines.runs.get(attempt)
        return run is not None and run.alive

    def begun(self, attempt):
        run = self.machines.runs.get(attempt)
        return int(run is not None and run.started is not None)

    def until(self, condition, what):
        while not condition():
            assert self.timeline.step(), f"nothing more happens, but not: {what}"


@pytest.fixture
def rig():
    rig = VirtualRig()
    rig.open()
    return rig


class TestContract(EngineContract):
    pass


def machines(**options):
    facts = []
    made = Machines(Timeline(), [NODE], **options)
    engine = VirtualEngine(made)
    engine.open(facts.append, [], 1)
    facts.clear()
    return made, engine, facts


def start(engine, attempt, **env):
    engine.seal(attempt.workload, {"": Variables(tuple(env.items()))})
    engine.start(Start(attempt, place(0), workload(attempt.workload, Launch("any")), "d", 1))


def test_durations_and_codes_are_declared_in_the_environment():
    made, engine, facts = machines(start_latency=100)
    start(engine, A, PLIANT_VIRTUAL_SECONDS="2.5", PLIANT_VIRTUAL_EXIT="7")
    assert facts == []
    made.timeline.advance(99)
    assert facts == []
    made.timeline.advance(100)
    assert [type(fact) for fact in facts] == [AttemptStarted] and facts[0].at == 100
    made.timeline.advance(10_000)
    assert facts[1].exit.code == 7 and facts[1].exit.at == 2600
    assert made.timeline.now() == 10_000


def test_a_slow_stop_is_cut_off_by_the_grace():
    made, engine, facts = machines(stop_latency=10)
    for attempt in (A, B):
        start(engine, attempt, PLIANT_VIRTUAL_STOP_SECONDS="3")
    made.timeline.advance(1000)
    engine.stop(Stop(A, NODE.name, 5000, "d", 1))
    engine.stop(Stop(B, NODE.name, 2000, "d", 1))
    made.timeline.advance(100_000)
    ends = {fact.attempt: fact.exit for fact in facts if isinstance(fact, AttemptEnded)}
    assert (ends[A].at, ends[A].code, ends[A].stopped) == (4010, 0, True)
    assert (ends[B].at, ends[B].signal, ends[B].stopped) == (3010, 9, True)


def test_a_stopped_task_does_not_end_a_second_time():
    made, engine, facts = machines()
    start(engine, A, PLIANT_VIRTUAL_SECONDS="5")
    made.timeline.advance(1000)
    engine.stop(Stop(A, NODE.name, 1000, "d", 1))
    made.timeline.advance(60_000)
    assert [type(fact) for fact in facts] == [AttemptStarted, AttemptEnded]


def test_a_node_goes_with_its_tasks_and_comes_back_empty():
    made, engine, facts = machines()
    start(engine, A)
    made.timeline.advance(1000)
    made.lose_node(NODE.name)
    made.add_node(NODE)
    assert [type(fact) for fact in facts] == [AttemptStarted, NodeLost, AttemptEnded, NodeSeen]
    assert facts[2].exit.lost


def test_events_of_one_instant_keep_their_order():
    timeline, seen = Timeline(), []
    for number in range(5):
        timeline.at(10, lambda number=number: seen.append(number))
    timeline.at(5, lambda: timeline.at(0, lambda: seen.append("early")))
    timeline.advance(10)
    assert seen == ["early", 0, 1, 2, 3, 4]
    assert timeline.next() is None and not timeline.step()


def test_without_a_declaration_it_runs_for_ever():
    assert declared(Start(A, place(0), workload(A.workload, Launch("any")), "d", 1), {}) == Behaviour()
