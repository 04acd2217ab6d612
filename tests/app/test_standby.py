"""A standby server keeps trying to take the lead, whatever fails."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant import standby
from pliant.api.connections.certificates import Certificates
from pliant.control.clock import SteadyClock
from pliant.control.decider.core import Inline
from pliant.control.follower import Follower
from pliant.control.lease import Seen
from pliant.engines.virtual.engine import VirtualEngine
from pliant.engines.virtual.machines import Machines
from pliant.engines.virtual.timeline import Timeline
from pliant.store import Database, open_store
from pliant.store.errors import StoreBusy
from pliant.store.folder import StateFolder
from tests.api.stage import nodes, until


class Front:
    """A web server without a network."""

    def __init__(self, *_: object, **__: object) -> None:
        self.should_exit = False

    def run(self, sockets: list[socket.socket]) -> None:
        until(lambda: self.should_exit)
        for it in sockets:
            it.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    made = open_store(tmp_path / "pliant.db")
    made.lead()
    yield made
    made.close()


@pytest.mark.parametrize("trouble", [StoreBusy("it is locked"), RuntimeError("can't start new thread")])
def test_a_replica_that_could_not_take_the_lead_once_takes_it_later(
    store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    troubles, claim = [trouble], store.claim

    def claimed(seen: Seen) -> int | None:
        if troubles:
            raise troubles.pop()
        return claim(seen)

    monkeypatch.setattr(standby, "Front", Front)
    monkeypatch.setattr(store, "claim", claimed)
    folder = StateFolder(tmp_path)
    replica = standby.Replica(folder, store, Certificates(folder.path, "127.0.0.1"), 0, 0.1)
    won = replica.wait()
    assert won is not None and won.epoch == 2 and not troubles
    os.close(won.lock)
    for it in (*won.sockets, won.own):
        it.close()


def test_a_reader_that_the_store_keeps_waiting_does_not_keep_a_server_from_leading(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lead by then: otherwise no server would lead."""
    machines = Machines(Timeline(0), nodes())
    follower = Follower(store, store, VirtualEngine(machines), SteadyClock(), Inline())
    follower.open()
    hangs, over, seen = threading.Event(), threading.Event(), store.seen

    def silent() -> Seen:
        hangs.set()
        assert over.wait(240)
        return seen()

    monkeypatch.setattr(store, "seen", silent)
    reader = threading.Thread(target=follower.catch_up)
    reader.start()
    try:
        assert hangs.wait(240)
        assert follower.release() is None
    finally:
        over.set()
        reader.join()
    assert follower.release() is not None
