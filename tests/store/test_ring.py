"""The record of cycles: a cycle that the thread has taken from the queue is not written yet."""

import inspect
import json
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import fields, make_dataclass, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pliant.control.decider.port import News
from pliant.control.errors import NotFound, Unavailable
from pliant.control.recording import Cycled
from pliant.model.ledger import Disruptions
from pliant.model.machine import Placement, Share
from pliant.model.reason import Cancelled, Hastened, Named, NoCapacity, Placed, Reason, Suspended
from pliant.model.workload import AttemptId, Task, TaskPhase
from pliant.sched.plan import (
    Decision,
    Guarantee,
    Plan,
    Protection,
    QueueStanding,
    ResizeIntent,
    StartIntent,
    StopIntent,
    Verb,
)
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.rows import Row
from pliant.store import ring as ring_module
from pliant.store.rerun import VERSION, Checksums, digest, lines_of
from pliant.store.ring import Ring, lean
from pliant.wire.record import Rows
from tests.store.samples import workload


def test_it_is_drained_when_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, may = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        writes.set()
        assert may.wait(60)

    monkeypatch.setattr(Ring, "_write", slow)
    ring = Ring(tmp_path / "replay")
    try:
        ring.take(cycle(1))
        assert writes.wait(60)
        assert not ring.drained(0)
        may.set()
        assert ring.drained(60)
    finally:
        may.set()
        ring.close()


FULL, BUSY = NoCapacity(2000, 1, 1000, 1000, 1), Suspended()


def test_verdicts_one_by_one_and_in_runs_as_older_versions_hold_them_have_the_same_checksum() -> None:
    told = Verdicts.of_each(("a", "b", "c", "d"), (FULL, BUSY, BUSY, FULL))
    older = make_dataclass("Older", [field.name for field in fields(Plan)])
    rest = {field.name: getattr(Plan(), field.name) for field in fields(Plan)}
    runs = SimpleNamespace(workloads=told.workloads, runs=((FULL, 1), (BUSY, 2), (FULL, 1)))
    for held in (tuple(told), runs):
        assert digest(older(**rest | {"verdicts": held})) == digest(Plan(verdicts=told))
    assert digest(Plan(verdicts=told)) != digest(Plan(verdicts=told.without({"b"})))


ATTEMPT, OTHER = AttemptId("w", "main-0", 2), AttemptId("w", "main-0", 3)
PLACE, ELSEWHERE = Placement("n1", (Share("n1.0"),)), Placement("n1", (Share("n1.1"),))
ROW = Task("w", "main-0", "main", 0, TaskPhase.ORDERED, PLACE, PLACE, attempt=2)
GIVEN = Placed("n1", 1000, Named("project", "p1"), 1000, 8000)
CHOSEN = Decision(Verb.PLACE, "allocate", "w", ("main-0",), 0, 1000, GIVEN)
MOVED = Decision(Verb.MOVE, "hasten", "v", ("main-0",), 1000, 1000, Hastened("n1", "n2"))
STANDING = QueueStanding("p1", "default", 16_000, 8_000)
RULE = Protection("p1", "default", None, Guarantee(60_000, "pool", None))
WAITING = Verdicts.of_each(("a", "b", "c", "d"), (FULL, BUSY, BUSY, FULL))
PLAN = Plan(
    (CHOSEN, MOVED), (ROW,), (StartIntent(ROW, PLACE, 0),), (StopIntent(ATTEMPT, MOVED.reason, 1),),
    (ResizeIntent(ATTEMPT, PLACE, 0),), WAITING, 5_000, (Disruptions("p1", (1,)),), (STANDING,), (RULE,),
)  # fmt: skip


def decided(**change: Any) -> Plan:
    """PLAN with a changed first decision."""
    parts = {name: getattr(CHOSEN, name) for name in inspect.signature(Decision).parameters}
    return replace(PLAN, decisions=(Decision(**parts | change), MOVED))


def waiting(workloads: str, *reasons: Reason) -> Plan:
    return replace(PLAN, verdicts=Verdicts.of_each(tuple(workloads), reasons))


CHANGES = [
    replace(PLAN, decisions=(MOVED, CHOSEN)),
    replace(PLAN, decisions=(CHOSEN,)),
    decided(verb=Verb.GROW),
    decided(action="grow"),
    decided(workload="u"),
    decided(tasks=("main-1",)),
    decided(gpu_before=1),
    decided(gpu_after=999),
    decided(reason=replace(GIVEN, allocated=1001)),
    decided(reason=replace(GIVEN, project=Named("project", "p1", "name"))),
    decided(beneficiary="v"),
    replace(PLAN, tasks=()),
    replace(PLAN, tasks=(replace(ROW, attempt=3),)),
    replace(PLAN, tasks=(replace(ROW, claims=ELSEWHERE),)),
    replace(PLAN, starts=(StartIntent(ROW, ELSEWHERE, 0),)),
    replace(PLAN, starts=(StartIntent(replace(ROW, attempt=3), PLACE, 0),)),
    replace(PLAN, starts=(StartIntent(ROW, PLACE, -1),)),
    replace(PLAN, stops=(StopIntent(OTHER, MOVED.reason, 1),)),
    replace(PLAN, stops=(StopIntent(ATTEMPT, Hastened("n1", "n3"), 1),)),
    replace(PLAN, stops=(StopIntent(ATTEMPT, MOVED.reason, 0),)),
    replace(PLAN, resizes=(ResizeIntent(ATTEMPT, ELSEWHERE, 0),)),
    waiting("acbd", FULL, BUSY, BUSY, FULL),
    waiting("abce", FULL, BUSY, BUSY, FULL),
    waiting("abc", FULL, BUSY, BUSY),
    waiting("abcde", FULL, BUSY, BUSY, FULL, FULL),
    waiting("abcd", FULL, FULL, BUSY, FULL),
    waiting("abcd", BUSY, FULL, FULL, BUSY),
    waiting("abcd", FULL, BUSY, BUSY, replace(FULL, asked=2001)),
    waiting("abcd", FULL, Cancelled(), Cancelled(), FULL),
    replace(PLAN, wake=None),
    replace(PLAN, wake=5_001),
    replace(PLAN, disruptions=(Disruptions("p1", (2,)),)),
    replace(PLAN, standings=(STANDING._replace(fair_share=8_001),)),
    replace(PLAN, standings=(STANDING._replace(quota=-1),)),
    replace(PLAN, standings=()),
    replace(PLAN, protections=(RULE._replace(preemption=Guarantee(60_001, "pool", None)),)),
]
"""Plans that differ from PLAN, each in one other thing."""


def test_a_checksum_is_another_one_if_anything_is_different() -> None:
    """Also if only the differences to the previous plan are encoded."""
    alone = [(plan, digest(plan)) for plan in (Plan(), PLAN, *CHANGES)]
    assert len({told for _, told in alone}) == len(CHANGES) + 2
    checksums = Checksums()
    for before, after in product(alone, alone):
        for plan, told in (before, after):
            assert checksums.of(plan) == told


def test_a_checksum_is_the_one_of_all_programs_that_write_this_version() -> None:
    assert VERSION == 5
    assert digest(PLAN) == "e7b77aa8731ecb53c21d2bb263778a2349d721fb10de3ad2008cd586f9908fcb"


def test_who_reads_and_who_closes_does_not_wait_for_more_to_gather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_module, "GATHER", 600)
    monkeypatch.setattr(ring_module, "PATIENCE", 600)
    ring = Ring(tmp_path / "replay")
    ring.take(cycle(1, base=(workload(1),)))
    ring.take(cycle(2, News(workload(2))))
    assert len(ring.record().splitlines()) == 2
    ring.take(cycle(3))
    ring.close()
    (path,) = (tmp_path / "replay").iterdir()
    assert len(path.read_bytes().splitlines()) == 3


def test_who_reads_while_cycles_follow_one_another_waits_for_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_module, "PATIENCE", 600)
    write, read = Ring._write, threading.Event()

    def followed(ring: Ring, cycled: Cycled) -> None:
        """Adds another cycle after each write."""
        write(ring, cycled)
        if not read.is_set():
            ring.take(cycle(cycled.cycle + 1))

    monkeypatch.setattr(Ring, "_write", followed)
    ring = Ring(tmp_path / "replay")
    ring.take(cycle(1, base=(workload(1),)))
    assert ring.record()
    read.set()
    ring.close()


def cycle(number: int, *news: News, base: Sequence[Row] | None = None) -> Cycled:
    return Cycled(1, number, number, Settings(), news, Plan(), base)


def read(ring: Ring) -> dict[str, Any]:
    """The rows that its record ends with, by id."""
    rows, found = Rows(), dict[str, Any]()
    for entry in lines_of(ring.record()):
        for _, body, gone in rows.of(entry):
            found.pop(body["id"], None)
            found |= {} if gone else {body["id"]: body}
    return found


def test_of_a_row_that_is_known_the_record_has_what_has_changed(tmp_path: Path) -> None:
    ring, one, two = Ring(tmp_path / "replay"), workload(1), workload(2)
    ring.take(cycle(1, base=(one,)))
    ring.take(cycle(2, News(replace(one, priority=7)), News(two)))
    ring.take(cycle(3, News(one), News(replace(two, held="why")), News(workload(3), gone=True)))
    ring.take(cycle(4, News(two, gone=True)))
    ring.take(cycle(5, News(replace(two, priority=9)), News(replace(one, labels=(("a", "b"),)))))
    ring.take(cycle(6, News(replace(two, priority=8))))
    assert ring.drained(60)
    told = [json.loads(line).get("news") for line in ring.record().splitlines()]
    assert told[1] == [[0, {"priority": 7}], ["Workload", lean(two), False]]
    assert told[2][:2] == [[0, {"priority": one.priority}], [1, {"held": "why"}]]
    assert told[3] == [[1]]
    assert told[5] == [[2, {"priority": 8}]]
    assert read(ring) == {
        "w-1": {**lean(one), "priority": one.priority, "labels": [["a", "b"]]},
        "w-2": {**lean(two), "priority": 8},
    }
    ring.close()


def test_after_a_cycle_that_could_not_be_written_it_waits_for_a_whole_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, one, two = Ring(tmp_path / "replay"), workload(1), workload(2)
    ring.take(cycle(1, base=(one,)))
    assert ring.drained(60)
    with monkeypatch.context() as patch:
        patch.setattr(Checksums, "of", lambda *_: 1 / 0)
        ring.take(cycle(2, News(two)))
        assert ring.drained(60)
    assert ring.due
    ring.take(cycle(3, News(replace(two, priority=7))))
    assert ring.drained(60)
    assert read(ring) == {"w-1": lean(one)}
    ring.take(cycle(4, News(one), base=(one, two)))
    ring.take(cycle(5, News(replace(two, priority=7))))
    assert ring.drained(60)
    assert read(ring)["w-2"] == {**lean(two), "priority": 7}
    ring.close()


class Disk:
    """The disk of a ring, which hangs between hang() and go_on()."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs, self.writes = threading.Event(), threading.Event()
        self.works = threading.Event()
        self.works.set()
        write = Ring._write

        def wait(ring: Ring, cycled: Cycled) -> None:
            self.writes.set()
            assert self.works.wait(240)
            write(ring, cycled)

        monkeypatch.setattr(Ring, "_write", wait)
        monkeypatch.setattr(ring_module, "GATHER", 0)
        monkeypatch.setattr(ring_module, "PATIENCE", 0.05)

    def hang(self, ring: Ring, cycled: Cycled) -> None:
        """From this cycle on nothing is written."""
        self.writes.clear()
        self.works.clear()
        ring.take(cycled)
        assert self.writes.wait(60)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.works.set()


def test_while_the_disk_hangs_the_memory_of_waiting_cycles_is_bounded(tmp_path: Path, disk: Disk) -> None:
    """Eight times as much comes as may wait. The estimate of a cycle is at least half of what it takes."""
    bound, rows = 2**19, [workload(number) for number in range(10)]
    ring = Ring(tmp_path / "replay", backlog=bound)
    ring.take(cycle(1, base=rows))
    assert ring.drained(60)
    disk.hang(ring, cycle(2))
    tracemalloc.start()
    try:
        for number in range(3, 403):
            ring.take(cycle(number, *(News(replace(row, name="x" * 50)) for row in rows)))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bound / 4 < used < 2 * bound, f"{used} bytes wait for the disk"
    assert not ring.due, "a whole world would wait, too"
    disk.works.set()
    ring.close()


def test_what_was_left_out_while_the_disk_hung_reads_as_a_gap(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted, logged once for each time that the disk hangs, and known after a restart."""
    one, ring = workload(1), Ring(tmp_path / "replay", backlog=5_000)
    caplog.set_level("INFO", ring_module.__name__)

    def outage(first: int) -> int:
        """`first` and a few others wait and are written, 20 are left out; returns the number of the first."""
        disk.hang(ring, cycle(first))
        number = first + 1
        while not ring._left_out.cycles:
            ring.take(cycle(number))
            number += 1
        for later in range(number, number + 19):
            ring.take(cycle(later))
        with pytest.raises(Unavailable, match="its disk does not answer"):
            ring.record()
        disk.works.set()
        assert ring.drained(60)
        return number - 1

    ring.take(cycle(1, base=(one,)))
    assert ring.drained(60)
    gap = outage(2)
    assert ring.held().last == (1, gap - 1) and ring.held().missed == 20
    for wanted in ({"cycle": gap}, {"at": gap}, {"at": gap + 500}):
        with pytest.raises(NotFound, match=f"cycle 1 to {gap - 1}, without 20 that could not be written"):
            ring.record(**wanted)
    assert not ring.due
    ring.take(cycle(gap + 20))
    assert ring.due and ring.held().missed == 21, "the disk works: a whole world can be written"
    ring.take(cycle(gap + 21, base=(one,)))
    ring.take(cycle(gap + 22, News(replace(one, priority=7))))
    assert ring.drained(60) and ring.held().missed == 21
    assert read(ring)["w-1"]["priority"] == 7
    said = [record.message for record in caplog.records if record.name == ring_module.__name__]
    assert said == [
        "the disk takes no cycles: later ones are left out of the record until it does",
        "the record continues; it lacks 21 cycles",
    ]
    ring.close()
    ring = Ring(tmp_path / "replay", backlog=5_000)
    assert ring.held().last == (1, gap + 22) and ring.held().missed == 21
    for wanted in ({"cycle": gap}, {"cycle": gap + 20}, {"at": gap}, {"at": gap + 20}):
        with pytest.raises(NotFound, match=f"cycle 1 to {gap + 22}, without 21 that could not be written"):
            ring.record(**wanted)
    for before in (ring.record(cycle=gap - 1), ring.record(at=gap - 1)):
        assert len(before.splitlines()) == gap - 1
    assert len(ring.record(at=gap + 21).splitlines()) == 2
    ring.close()


def test_what_the_disk_refused_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles are gathered in memory before a full disk refuses them."""
    ring = Ring(tmp_path / "replay")
    ring.take(cycle(1, base=(workload(1),)))
    assert ring.drained(60)

    class Full:
        def write(self, data: bytes) -> None: ...

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

        close = flush

    ring._open.close()
    monkeypatch.setattr(ring, "_open", Full())
    ring.take(cycle(2))
    ring.take(cycle(3))
    assert ring.drained(60)
    assert ring.held().last == (1, 1) and ring.held().missed == 2 and ring.due
    with pytest.raises(NotFound, match="without 2 that could not be written"):
        ring.record(at=2)
    ring.close()
