"""Logouts of the web console, which every server over the store knows."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pliant.control.audit import TRAIL, Trail
from pliant.control.ports import Batch
from pliant.control.still import StillLoop
from pliant.control.usecases.logouts import Logouts
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Machines
from pliant.engines.virtual.timeline import Timeline
from pliant.model.identity import EndedSession
from pliant.store import StoreError, open_store
from pliant.store.ended import LIFE, brought_along
from pliant.store.folder import StateFolder

NOW = 1_700_000_000_000


@contextmanager
def leading(where: str | Path, now: int = NOW) -> Iterator[StillLoop]:
    """A server that has taken the lead over the store at that place."""
    store = open_store(where)
    engine = VirtualEngine(Machines(Timeline(now), []))
    loop = StillLoop(store, {engine.name: engine}, Timeline(now))
    loop.open()
    try:
        yield loop
    finally:
        loop.close()
        store.close()


def test_the_next_leader_knows_a_logout_whatever_its_state_folder(where: str | Path) -> None:
    with leading(where) as first:
        Logouts(first).add("ended", 100)
        assert "ended" in Logouts(first) and "other" not in Logouts(first)
    with leading(where) as second:
        assert "ended" in Logouts(second) and "other" not in Logouts(second)


def test_the_audit_has_the_logout_once(where: str | Path) -> None:
    """The request to the API has recorded it."""
    trail = Trail(
        "r-1", "user:u-1", "anna", "", "", "POST", "/api/v1/me/logout", "self:write", "create", True
    )
    token = TRAIL.set(trail)
    try:
        with leading(where) as loop:
            Logouts(loop).add("ended", 100)
            assert not loop.store.audited(0, NOW + 1)
    finally:
        TRAIL.reset(token)


def test_a_logout_is_forgotten_once_no_cookie_of_it_is_valid(where: str | Path) -> None:
    with leading(where) as loop:
        Logouts(loop).add("short", 100)
        Logouts(loop).add("long", 200)
    with leading(where, NOW + 100_000) as loop:
        Logouts(loop).forget()
        assert "short" not in Logouts(loop) and "long" in Logouts(loop)
        assert loop.store.load().of(EndedSession) == (EndedSession("long", NOW + 200_000),)


def test_a_logout_that_cannot_be_recorded_is_told_and_not_kept(
    where: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(epoch: int, batch: Batch) -> None:
        raise StoreError("the disk is full")

    with leading(where) as loop:
        with monkeypatch.context() as patch:
            patch.setattr(loop.store, "commit", full)
            with pytest.raises(OSError, match="the disk is full"):
                Logouts(loop).add("ended", 100)
        assert "ended" not in Logouts(loop)


def test_logouts_in_a_folder_of_an_older_release_are_taken_into_the_store(
    where: str | Path, tmp_path: Path
) -> None:
    (tmp_path / "ended").mkdir()
    for name, age in (("young", 0), ("old", LIFE + 1)):
        (tmp_path / "ended" / name).touch()
        at = time.time() - age
        os.utime(tmp_path / "ended" / name, (at, at))
    folder = StateFolder(tmp_path)
    with leading(where, round(time.time() * 1000)) as loop:
        assert "young" in brought_along(folder, Logouts(loop))
        assert not (tmp_path / "ended").exists()
        assert "young" in brought_along(folder, Logouts(loop))  # at the next start
        assert [row.id for row in loop.store.load().of(EndedSession)] == ["young"]


def test_the_files_of_an_older_release_stay_until_the_store_has_them(
    where: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(epoch: int, batch: Batch) -> None:
        raise StoreError("the disk is full")

    (tmp_path / "ended").mkdir()
    (tmp_path / "ended" / "young").touch()
    with leading(where, round(time.time() * 1000)) as loop:
        monkeypatch.setattr(loop.store, "commit", full)
        with pytest.raises(OSError, match="the disk is full"):
            brought_along(StateFolder(tmp_path), Logouts(loop))
    assert (tmp_path / "ended" / "young").exists()
