"""Simulates a server's record: the same decisions with its settings, others with other settings."""

import json
import random
import zipfile
from functools import partial
from pathlib import Path

import pytest

from pliant.control.decider.core import Inline
from pliant.control.service import Service
from pliant.control.still import StillLoop
from pliant.engines.virtual.engine import VirtualEngine
from pliant.model.workload import Kind
from pliant.sim import philly, recorded, simulation
from pliant.sim.__main__ import main
from pliant.sim.lines import TraceError
from pliant.sim.policy import read_policy
from pliant.sim.simulation import Assumed, Simulation
from pliant.store.ring import Ring
from tests.control.stage import Stage

DATA = Path(__file__).parent / "data"


class Recorded(Stage):
    """A server in virtual time that records its cycles."""

    def begin(self):
        engine = VirtualEngine(self.machines)
        self.ring = Ring(self.path.parent / "replay")
        self.decisions = []
        core = Inline()
        self.loop = Telling(
            self.store, {engine.name: engine}, self.timeline, decider=core, recorder=self.ring
        )
        self.loop.told = self.decisions
        self.loop.open()
        self.service = Service(self.loop, {engine.name: engine})
        self.service.bootstrap()
        self.run()


class Telling(StillLoop):
    told: list

    def turn(self):
        before = self.plan
        rests = super().turn()
        if self.plan is not before:
            self.told += [(self.clock.now(), d.verb.value, d.action, d.workload, d.gpu_before, d.gpu_after)
                          for d in self.plan.decisions]  # fmt: skip
        return rests


@pytest.fixture
def lived(tmp_path):
    """A recorded run of two teams on eight GPUs: lending, reclaim, a gang, a deletion, an elastic job."""
    stage = Recorded(tmp_path, "2x4")
    stage.project("team-a", 4)
    stage.project("team-b", 4)
    stage.run(1_000)
    lasts = {"virtual": {"seconds": 600}}
    stage.submit("a1", 4, "team-a", **lasts)
    stage.run(5_000)
    a2 = stage.submit("a2", 3, "team-a", **lasts)
    stage.run(30_000)
    stage.submit("b1", 2, "team-b", **lasts)
    stage.run(20_000)
    stage.submit("b2", 1, "team-b", virtual={"seconds": 40}, elastic=True)
    stage.run(10_000)
    stage.submit("b3", 1, "team-b", kind=Kind.WORKSPACE, virtual={"seconds": 900})
    stage.run(100_000)
    stage.service.delete(a2, "me")
    stage.run(1_200_000)
    assert stage.ring.drained()
    stage.ring.close()
    return stage


def simulated(stage, policy=None):
    trace = read_policy(policy).over(recorded.read(stage.path.parent))
    progress = Simulation(trace, Assumed(), 0).run()
    return [(*it[:4], *it[5:7]) for it in progress.decisions]


def test_the_same_events_give_the_same_decisions(lived):
    assert {verb for _, verb, *_ in lived.decisions} >= {"place", "evict", "grow"}
    assert simulated(lived) == lived.decisions


def test_my_week_with_one_more_node_and_another_quota(lived, tmp_path):
    (tmp_path / "p.toml").write_text("[nodes]\nadd = 1\n")
    assert not [it for it in simulated(lived, tmp_path / "p.toml") if it[2] == "reclaim"]
    (tmp_path / "q.toml").write_text("[projects.team-a]\nquota = 8\n[projects.team-b]\nquota = 0\n")
    evicted = [it for it in simulated(lived, tmp_path / "q.toml") if it[1] == "evict"]
    assert [it for it in lived.decisions if it[1] == "evict"] != evicted


def test_a_record_that_is_cut_or_is_none(lived, tmp_path, capsys):
    (file,) = (lived.path.parent / "replay").glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:-4]) + lines[-4][:20])
    assert recorded.read(cut).until == json.loads(lines[-5])["now"], "up to the torn line"
    assert main(["run", str(cut)]) == 0
    said = f"{cut}:{len(lines) - 3}: this line is cut off; what follows in this file is not read"
    assert json.loads(capsys.readouterr().out)["warnings"] == [said]
    (tmp_path / "back.jsonl").write_bytes(b"".join([*lines[:-1], lines[-2], lines[5]]))
    with pytest.raises(TraceError, match=rf"back\.jsonl:{len(lines) + 1}: .*: the time goes back from"):
        recorded.read(tmp_path / "back.jsonl")
    after = {**json.loads(lines[0]), "now": json.loads(lines[-1])["now"], "missed": [3, 1]}
    gap = tmp_path / "gap.jsonl"
    gap.write_bytes(b"".join([*lines, json.dumps(after).encode()]))
    said = f"{gap}:{len(lines) + 1}: 3 cycles before it were not recorded"
    assert recorded.read(gap).warnings == [said]
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("replay.jsonl", file.read_bytes())
    assert recorded.read(tmp_path / "b.zip").until == json.loads(lines[-1])["now"]
    whole = (tmp_path / "b.zip").read_bytes()
    for wrong in (whole[: len(whole) // 2], whole[:500] + b"no" + whole[502:]):
        (tmp_path / "b.zip").write_bytes(wrong)
        with pytest.raises(TraceError, match=r"b\.zip: this bundle is cut off or damaged"):
            recorded.read(tmp_path / "b.zip")
    (tmp_path / "late.jsonl").write_bytes(b"".join(lines[1:]))
    with pytest.raises(TraceError, match="no whole world in this record"):
        recorded.read(tmp_path / "late.jsonl")
    assert main(["run", str(tmp_path / "late.jsonl")]) == 2


def test_a_public_trace_is_decided_alike_from_the_record_of_its_server(tmp_path, monkeypatch):
    """Plays Philly's jobs on a server that records its cycles, then simulates that record."""
    ring = Ring(tmp_path / "replay")
    monkeypatch.setattr(simulation, "StillLoop", partial(StillLoop, recorder=ring))
    trace = philly.read(DATA / "philly.csv", DATA / "philly_nodes.csv")
    first = Simulation(trace, Assumed(), 0).run().decisions
    assert ring.drained()
    ring.close()
    monkeypatch.undo()
    assert {verb for _, verb, *_ in first} >= {"place", "evict"}
    assert Simulation(recorded.read(tmp_path), Assumed(), 0).run().decisions == first


ONE_MORE = {"kind": "add-nodes", "count": 1, "like": "sim-1"}


class Day(Recorded):
    """A day of two teams; after each event, the server is asked what one more node would change."""

    def begin(self):
        super().begin()
        self.told = None  # (ms, differences by workload) of the first what-if answer with differences

    def passes(self, ms):
        self.run(ms)
        if self.told is None:
            found = self.service.questions.what_if([ONE_MORE]).found
            if found.differences:
                self.told = self.timeline.now(), {it.workload: it for it in found.differences}

    def live(self, seed):
        dice = random.Random(seed)
        self.project("team-a", 4)
        self.project("team-b", 4)
        for number in range(16):
            self.passes(1_007)  # so that no job ends at the instant of a submission
            elastic = number % 4 == 3
            gpus, seconds = 1 if elastic else dice.choice((1, 1, 2, 4)), 60 * dice.randint(60, 400)
            team = dice.choice(("team-a", "team-b"))
            self.submit(f"job-{number}", gpus, team, virtual={"seconds": seconds}, elastic=elastic)
            self.passes(0)
            for _ in range(dice.randint(1, 3)):
                self.passes(30 * 60_000)
        assert self.ring.drained()
        self.ring.close()


@pytest.mark.parametrize("seed", [2, 3])
def test_what_if_on_the_server_and_the_simulator_agree_on_the_first_decision(tmp_path, seed):
    """The simulation repeats a day's decisions; with one more node, its first difference is what-if's.

    What-if compares worlds at rest. In these days the first different decision is one that it can show: a job
    starts instead of waiting.
    """
    day = Day(tmp_path, "2x4")
    day.live(seed)
    assert simulated(day) == day.decisions
    (tmp_path / "p.toml").write_text('[nodes]\nadd = 1\nlike = "sim-1"\n')
    more = simulated(day, tmp_path / "p.toml")
    pairs = zip(day.decisions, more, strict=False)
    first = next(theirs for mine, theirs in pairs if mine != theirs)
    when, verb, _, workload, before, after = first
    assert when == day.told[0]
    foreseen = day.told[1][workload]
    assert (verb, before, after) == ("place", 0, sum(gpus for _, gpus, _ in foreseen.after))
    assert foreseen.what == "starts"
