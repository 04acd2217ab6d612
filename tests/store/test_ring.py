"""The record of cycles: what its thread has taken from the queue is not yet written."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pliant.control.recording import Cycled
from pliant.model.reason import NoCapacity, Suspended
from pliant.sched.plan import Plan, Verdicts
from pliant.store.rerun import digest
from pliant.store.ring import Ring


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
