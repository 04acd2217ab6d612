"""The record of cycles: what its thread has taken from the queue is not yet written."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pliant.control.decider.port import News
from pliant.control.recording import Cycled
from pliant.model.reason import NoCapacity, Suspended
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.verdicts import Verdicts
from pliant.sched.world.rows import Row
from pliant.store.rerun import digest, lines_of
from pliant.store.ring import Ring, lean
from pliant.wire.record import Rows
from tests.store.samples import workload


class Nothing:
    """A cycle of which the writing thread is told, and nothing else."""

    base = None


def test_it_is_drained_when_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, may = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        writes.set()
        assert may.wait(60)

    monkeypatch.setattr(Ring, "_write", slow)
    ring = Ring(tmp_path / "replay")
    try:
        ring.take(cast(Cycled, Nothing()))
        assert writes.wait(60)
        assert not ring.drained(0)
        may.set()
        assert ring.drained(60)
    finally:
        may.set()
        ring.close()


def test_verdicts_one_by_one_as_older_versions_hold_them_have_the_same_checksum() -> None:
    full, busy = NoCapacity(2000, 1, 1000, 1000, 1), Suspended()
    now = Plan(verdicts=Verdicts.of_each(("a", "b", "c"), (full, busy, full)))
    before = replace(now, verdicts=tuple(now.verdicts))
    assert digest(before) == digest(now) != digest(replace(now, verdicts=now.verdicts.without({"b"})))


def cycle(number: int, *news: News, base: tuple[Row, ...] | None = None) -> Cycled:
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
        patch.setattr(json, "dumps", lambda *_, **__: 1 / 0)
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
