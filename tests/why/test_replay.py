"""Recorded cycles are decided again: the same plans byte for byte, within size limits, without names."""

import io
import json
import os
import random
import re
import subprocess
import sys
import threading
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import pliant
from pliant.control.decider.port import News
from pliant.control.errors import NotFound
from pliant.control.loop import Loop
from pliant.control.recording import Cycled
from pliant.model.machine import Placement, Share
from pliant.model.reason import Hastened
from pliant.model.workload import Kind, Launch, Request, SeenFolder, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.plan import Decision, Plan, StartIntent, Verb
from pliant.sched.settings import Settings
from pliant.store.redact import redacted
from pliant.store.rerun import Unreadable, canonical, lines_of, rerun
from pliant.store.ring import Ring
from tests.control.stage import Stage

SEED = int(os.environ.get("PLIANT_SEED", "4"))
SOURCE = Path(pliant.__file__).parents[1]


def recorded(stage: Stage, folder: Path, **how: int) -> Ring:
    """Makes the stage record all its cycles from now on."""
    ring = Ring(folder, **how)
    stage.loop.recorder = ring
    stage.loop.state.rebuilt = True
    return ring


def busy(stage: Stage, cycles: int, seed: int = SEED) -> None:
    """Submissions, ends, suspensions and drains, as they come."""
    dice = random.Random(seed)
    names: list[str] = []
    for number in range(cycles):
        what = dice.random()
        if what < 0.5 or not names:
            seconds = {"seconds": dice.randint(5, 120)}
            more = {"elastic": True} if dice.random() < 0.3 else {}
            project = dice.choice(("default", "team-a"))
            identity = stage.submit(f"w{number}", dice.choice((1, 1, 2, 3)), project, virtual=seconds, **more)
            names.append(identity)
        elif what < 0.6:
            stage.service.delete(names.pop(dice.randrange(len(names))), "me")
        elif what < 0.7:
            stage.service.cordon(stage.loop.board.nodes[0].node.name, dice.random() < 0.5, "me")
        else:
            stage.run(dice.randint(1, 60) * 1000)
        names = [it for it in names if it in stage.loop.board.workloads]


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path, "2x4")
    made.project("team-a", 4)
    yield made
    made.store.close()


def test_a_checksum_is_made_of_what_it_was_made_of_in_older_versions():
    place = Placement("n1", (Share("n1.0"),))
    row = Task("w", "main-0", "main", 0, TaskPhase.ORDERED, place, place, attempt=2)
    where = ["Placement", "n1", [["Share", "n1.0", 1000, 0, ""]], 0, 0]
    assert canonical(StartIntent(row, place, 3)) == [["w", "main-0", 2], where, 3]
    moved = Decision(Verb.MOVE, "hasten", "w", ("main-0",), 1000, 1000, Hastened("n1", "n2"))
    assert canonical(moved) == ["move", "hasten", "w", ["main-0"], 1000, 1000, ["Hastened", "n1", "n2"], ""]


def test_every_cycle_gives_the_same_plan_again(stage, tmp_path):
    ring = recorded(stage, tmp_path / "replay")
    busy(stage, 60)
    assert ring.drained()
    found = rerun(lines_of(ring.record()))
    assert found["cycles"] > 60
    assert found["same"] == found["cycles"], found["differ"]
    last = ring.held().last[1]
    one = rerun(lines_of(ring.record(cycle=last - 3)), ("cycle", last - 3))["chosen"]
    assert one["cycle"] == last - 3 and one["same"]
    until = rerun(lines_of(ring.record(at=one["now"])), ("at", one["now"]))["chosen"]
    assert until["now"] == one["now"]
    ring.close()


def test_no_secrets_are_in_the_record(stage, tmp_path):
    ring = recorded(stage, tmp_path / "replay")
    stage.submit("job", virtual={"output": "hush"})
    assert ring.drained()
    assert b"hush" not in ring.record()
    ring.close()


def test_the_record_keeps_within_its_bound_and_says_what_has_left_it(stage, tmp_path):
    most = 150_000
    ring = recorded(stage, tmp_path / "replay", most=most, every=5)
    busy(stage, 150)
    assert ring.drained()
    held = ring.held()
    assert sum(path.stat().st_size for path in (tmp_path / "replay").iterdir()) <= held.size <= most
    assert held.first[1] > 1
    with pytest.raises(NotFound, match=f"Cycle 1 is not in the record.*cycle {held.first[1]} to"):
        ring.record(cycle=1)
    found = rerun(lines_of(ring.record(cycle=held.first[1])))
    assert found["same"] == found["cycles"] > 0
    ring.close()


def test_a_writer_that_gets_no_turn_keeps_what_is_written_and_goes_on(stage, tmp_path, monkeypatch):
    may, write = threading.Event(), Ring._write

    def late(ring: Ring, cycled: Cycled) -> None:
        assert may.wait(240)
        write(ring, cycled)

    monkeypatch.setattr(Ring, "_write", late)
    ring = recorded(stage, tmp_path / "replay", most=100_000)
    node = stage.loop.board.nodes[0].node.name
    for number in range(400):
        stage.service.cordon(node, number % 2 == 0, "me")
    may.set()
    assert ring.drained()
    assert ring.held().size > 50_000, "what was written is kept"
    before = ring.held().last
    stage.submit("after", virtual={"seconds": 60})
    assert ring.drained()
    assert ring.held().last > before
    found = rerun(lines_of(ring.newest()))
    assert found["same"] == found["cycles"] > 0
    ring.close()


def test_a_record_goes_on_after_a_restart(stage, tmp_path):
    folder = tmp_path / "replay"
    ring = recorded(stage, folder)
    busy(stage, 10)
    assert ring.drained()
    before = ring.held()
    ring.close()
    with open(max(folder.iterdir()), "ab") as last:
        last.write(b'{"v":2,"torn')
    again = Ring(folder)
    assert again.held().last == before.last
    assert rerun(lines_of(again.record()))["same"] > 0
    again.close()


def test_a_plan_that_differs_is_noticed(stage, tmp_path):
    ring = recorded(stage, tmp_path / "replay")
    busy(stage, 10)
    assert ring.drained()
    lines = ring.record().splitlines()
    entry = json.loads(lines[5])
    lines[5] = json.dumps({**entry, "plan": "0" * 64}).encode()
    assert rerun(lines_of(b"\n".join(lines)))["differ"] == [entry["cycle"]]
    ring.close()


def test_a_bundle_without_names_replays_as_before(stage, tmp_path):
    ring = recorded(stage, tmp_path / "replay")
    busy(stage, 25)
    assert ring.drained()
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("replay.jsonl", ring.record())
        archive.writestr("projects.json", json.dumps([{"name": "team-a", "quotas": []}]))
        archive.writestr("server.log", "team-a")
    bare = redacted(bundle.getvalue())
    with zipfile.ZipFile(io.BytesIO(bare)) as archive:
        text = b"".join(archive.read(name) for name in archive.namelist())
        assert "server.log" not in archive.namelist()
    left = re.findall(rb".{30}(?:team-a|\"w1\"|sim-0).{20}", text)
    assert not left, left[:3]
    found = rerun(lines_of(bare))
    assert found["same"] == found["cycles"] > 20
    ring.close()


def recorded_change(folder, row):
    """A record in which a changed row brings labels, a name and a note."""
    ring, bare = Ring(folder / "replay"), replace(row, labels=(), name="one", shared=(), phase_message="")
    ring.take(Cycled(1, 1, 1, Settings(), (), Plan(), (bare,)))
    ring.take(Cycled(1, 2, 2, Settings(), (News(row),), Plan()))
    assert ring.drained()
    record = ring.record()
    ring.close()
    assert b"S3CR3T" in record
    return record


def test_nothing_that_a_person_typed_is_in_a_bundle_without_names(tmp_path):
    said = "S3CR3T"
    launch = Launch(
        said,
        (said,),
        (said, f"--password={said}"),
        (said,),
        (said,),
        f"/{said}",
        SeenFolder(f"/{said}", 1, 2, "b"),
    )
    request = Request(1, 500, owner=f"{said}-ann")
    group = TaskGroup("main", request, launch=launch)
    row = Workload(
        "id", said, "p", Kind.TRAINING, launch, (group,), user=f"{said}-ann", labels=((said, said),),
        annotations=((said, said),), shared=(f"user:{said}-bob",), cancelled_by=f"{said}-eve",
        phase_message=said, serial=1,
    )  # fmt: skip
    task = Task("id", "main-0", "main", 0, claims=Placement("n", (Share("gpu", 500, 1, f"{said}-ann"),)))
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("workloads.json", json.dumps([asdict(row)]))
        archive.writestr("tasks.json", json.dumps([asdict(task)]))
        archive.writestr("history/id.jsonl", said)
        archive.writestr("replay.jsonl", recorded_change(tmp_path, row))
    with zipfile.ZipFile(io.BytesIO(redacted(bundle.getvalue()))) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert len(texts) == 3 and not [text for text in texts if said in text]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"v":99,"program":"9.9"}\n', "a newer Pliant .9.9.; this one reads version 5"),
        (b'{"v":1,"program":"0.1"}\n', "an older Pliant .0.1.; this one reads version 5"),
        (b'{"v":2,"program":"0.2"}\n', "an older Pliant .0.2.; this one reads version 5"),  # no standings
        (b"[1]\n", "line 1 is no line of a record"),
    ],
)
def test_what_cannot_be_read(data, said):
    with pytest.raises(Unreadable, match=said):
        list(lines_of(data))


def test_a_cycle_that_is_not_there():
    with pytest.raises(Unreadable, match="there is no cycle 7 in this record"):
        rerun([], ("cycle", 7))


def test_another_core_decides(stage, tmp_path):
    """A core without the action `grow` decides some recorded cycles differently."""
    ring = recorded(stage, tmp_path / "replay")
    busy(stage, 30)
    assert ring.drained()
    path = tmp_path / "record.jsonl"
    path.write_bytes(ring.record())
    ring.close()
    other = tmp_path / "other"
    (other / "pliant").parent.mkdir()
    subprocess.run(["cp", "-r", str(SOURCE / "pliant"), str(other / "pliant")], check=True)
    module = other / "pliant" / "sched" / "settings.py"
    text = module.read_text()
    assert '"allocate", "hasten", "grow")' in text
    module.write_text(text.replace('"allocate", "hasten", "grow")', '"allocate", "hasten")'))
    results = []
    for core in (SOURCE, other):
        words = [sys.executable, "-P", str(SOURCE / "pliant" / "store" / "rerun.py"), str(path)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(core)}
        )
        results.append(json.loads(done.stdout))
    assert results[0]["same"] == results[0]["cycles"] == results[1]["cycles"]
    assert results[1]["same"] < results[1]["cycles"], "the other version never grows anything"


def test_a_loop_without_recorder_has_nothing_to_show(stage):
    assert isinstance(stage.loop, Loop)
    assert stage.loop.recorder.held().first is None
    with pytest.raises(NotFound, match="records no cycles"):
        stage.loop.recorder.record(cycle=1)
