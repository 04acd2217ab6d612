"""The master over HTTP: access, refusals with their messages, and what survives a restart."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pliant.train.errors import MasterAway, Refused, TrainError
from pliant.train.master.calls import MasterClient
from pliant.train.master.httpd import listen
from pliant.train.master.ledger import Event, Ledger, Span, applied, file_system
from pliant.train.master.membership import Times
from pliant.train.master.service import Master
from pliant.train.rendezvous.line import Line
from pliant.train.worker.work import work

SETTINGS = {
    "records": 100,
    "global_batch": 10,
    "seed": 0,
    "shuffle": True,
    "model": "m",
    "steps_per_epoch": 10,
}
TIMES = Times(silence=60_000, adopt=60_000, start=0, join_window=0)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = Master(folder, "job", "secret", times=TIMES)
        self.client = MasterClient(self.master.address, "secret", patience_s=60)

    def restart(self) -> None:
        self.stop()
        self.__init__(self.folder)  # type: ignore[misc]

    def stop(self) -> None:
        self.client.close()
        self.master.close()

    def register(self, worker: str, **more: Any) -> dict[str, Any]:
        now = int(time.time() * 1000)
        body = {"protocol": 1, "job": "job", "worker": worker, "pid": 1, "host": "127.0.0.1", "now_ms": now}
        return self.client.call("register", {**body, "settings": SETTINGS, **more})

    def ready(
        self, worker: str, why: str = "join", step: int = -1, generation: int = 0, wait_ms: int = 60_000
    ) -> dict[str, Any]:
        body = {"worker": worker, "why": why, "step": step, "generation": generation}
        return self.client.call("ready", body, wait_ms=wait_ms)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path)
    yield found
    found.stop()


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"protocol": 2}, "version", "Install the same Pliant"),
        ({"job": "other"}, "job", "belongs to job 'other', this is the master of 'job'"),
        ({"settings": {**SETTINGS, "model": "x"}}, "settings", "has model 'x', this job trains with 'm'"),
        ({"settings": {**SETTINGS, "records": 90}}, "settings", "has records 90, this job trains with 100"),
        ({"pid": "1"}, "malformed", "'pid' should be int"),
    ],
)
def test_who_does_not_belong_here(rig: Rig, more: dict[str, Any], code: str, words: str) -> None:
    rig.register("a")
    with pytest.raises(Refused, match=words) as refused:
        rig.register("b", **more)
    assert refused.value.code == code
    assert {w["worker"] for w in rig.client.call("status")["workers"]} == {"a"}


def test_a_batch_that_is_smaller_than_the_workers(rig: Rig) -> None:
    small = {**SETTINGS, "global_batch": 2}
    rig.register("a", settings=small)
    rig.register("b", settings=small)
    with pytest.raises(Refused, match=r"global_batch=2 is too small for 3 workers: c has no records.*larger"):
        rig.register("c", settings=small)


def test_clocks_that_differ_are_named_and_change_nothing(rig: Rig) -> None:
    rig.register("a", now_ms=int(time.time() * 1000) - 3_600_000)
    assert rig.client.call("status")["warnings"][0].startswith("The clock of a differs")
    assert rig.ready("a")["what"] == "train"


def test_another_token_opens_nothing(rig: Rig) -> None:
    stranger = MasterClient(rig.master.address, "guess")
    for name in ("status", "register", "ready", "store", "stop", "leave"):
        with pytest.raises(Refused) as refused:
            stranger.call(name)
        assert refused.value.status == 401
    stranger.close()


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff", b'"x"'])
def test_what_is_no_json_object(rig: Rig, data: bytes) -> None:
    host, _, port = rig.master.address.partition(":")
    line = http.client.HTTPConnection(host, int(port), timeout=60)
    line.request("POST", "/v1/status", data, {"Authorization": "Bearer secret"})
    assert line.getresponse().status == 400
    line.close()


def test_unknown_calls_and_strangers(rig: Rig) -> None:
    with pytest.raises(Refused, match="There is no /v1/nothing"):
        rig.client.call("nothing")
    with pytest.raises(Refused, match="register again") as refused:
        rig.ready("never-seen")
    assert refused.value.status == 410


def test_a_port_that_is_taken() -> None:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    with pytest.raises(Refused, match=r"cannot listen on 127\.0\.0\.1:\d+.*Choose another port with --port"):
        listen("127.0.0.1", taken.getsockname()[1])
    taken.close()


def test_nobody_answers() -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    client = MasterClient(f"127.0.0.1:{free.getsockname()[1]}", "x")
    with pytest.raises(MasterAway, match="does not answer"):
        client.call("status", patience_s=0.1)
    free.close()


def test_a_broken_connection_is_noticed_at_once(rig: Rig) -> None:
    rig.register("a")
    rig.register("b")
    line = MasterClient(rig.master.address, "secret")
    line.call("watch", {"worker": "b", "after": -1})
    line.close()
    until = time.monotonic() + 60
    while rig.master.members.workers["b"].down_since is None:
        assert time.monotonic() < until
        time.sleep(0.002)


def test_a_new_master_goes_on_where_the_old_one_was(rig: Rig) -> None:
    rig.register("a")
    assert rig.ready("a")["generation"] == 1
    rig.client.call("restored", {"worker": "a", "generation": 1, "step": 0, "checkpoint": None})
    rig.client.call("progress", {"worker": "a", "generation": 1, "step": 60, "loss": 0.5})
    rig.restart()
    status = rig.client.call("status")
    assert (status["generation"], status["step"], status["world"]) == (1, 60, 1)
    rig.register("a", generation=1, step=61)
    rig.register("b")
    assert rig.ready("a", "boundary", 61, 1, wait_ms=0)["what"] in ("wait", "train")


def test_a_new_master_learns_again_what_was_told_to_the_one_before(rig: Rig) -> None:
    """Also if no connection broke: the request was in the socket's queue, and the new master took it."""
    line = Line(rig.client, "a", "job", "127.0.0.1")
    line.settings = SETTINGS
    line.register()
    assert rig.ready("a")["generation"] == 1
    told = {"here/0": "AA=="}
    line.entered(1, 0, lambda: told)
    line.register()
    question = {"worker": "a", "generation": 1, "get": ["here/0"]}
    assert rig.client.call("store", question)["values"] == told
    with rig.master._lock:  # as a new master that has read the ledger
        rig.master._boot = "another"
        rig.master._kv.clear()
    line.start()
    assert rig.client.call("store", question, wait_ms=30_000)["values"] == told
    told = {**told, "there/0": "AQ=="}  # as if added while it registers: it registers once more
    line._boot = ""
    assert rig.client.call("store", {**question, "get": ["there/0"]}, wait_ms=30_000)["values"]
    line.close()
    for thread in threading.enumerate():
        if thread.name.startswith("pliant-"):
            thread.join(30)


def test_what_is_said_of_a_generation_before_it_is_entered_is_not_lost(rig: Rig) -> None:
    line = Line(rig.client, "a", "job", "127.0.0.1")
    line.settings = SETTINGS
    line.register()
    assert rig.ready("a")["generation"] == 1
    line.start()
    rig.register("b")  # joins while a is entering its generation
    rig.ready("b", wait_ms=0)
    until = time.monotonic() + 60
    while not line._heard.get("boundary"):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not line.boundary.is_set()
    line.entered(1, 0)
    assert line.boundary.is_set(), "b would wait until something else changes"
    line.entered(2, 0)
    assert not line.boundary.is_set()
    line._heard |= {"dead": 3}
    line.entered(3, 0)
    assert line.over.is_set()
    line.close()
    for thread in threading.enumerate():
        if thread.name.startswith("pliant-"):
            thread.join(30)


def test_a_ledger_that_was_lost_is_rebuilt_from_a_survivor(rig: Rig) -> None:
    rig.register("a")
    rig.ready("a")
    history = [
        {
            "generation": 1,
            "members": ["a", "b"],
            "step": 0,
            "source": 0,
            "sync": True,
            "restore": True,
            "restored": 0,
        },
        {"generation": 2, "members": ["a"], "step": 25, "source": 0, "sync": False, "restore": False},
    ]
    rig.stop()
    for path in rig.folder.glob("ledger.db*"):
        path.unlink()
    rig.__init__(rig.folder)  # type: ignore[misc]
    rig.register("a", generation=2, step=40, history=history)
    assert applied(rig.master.ledger.events()) == [Span(1, ("a", "b"), 1, 25), Span(2, ("a",), 26, 40)]
    assert rig.client.call("status")["world"] == 1


def test_what_a_generation_that_is_over_reports_is_not_written(rig: Rig) -> None:
    rig.register("a")
    rig.ready("a")
    rig.client.call("progress", {"worker": "a", "generation": 1, "step": 5})
    rig.register("b")
    rig.ready("b", wait_ms=0)
    rig.ready("a", "boundary", 5, 1, wait_ms=0)
    assert rig.client.call("status")["generation"] == 2
    before = rig.master.ledger.events()
    rig.client.call("progress", {"worker": "a", "generation": 1, "step": 500})
    rig.client.call("restored", {"worker": "a", "generation": 1, "step": 3, "checkpoint": None})
    rig.ready("a", "lost", 700, 1, wait_ms=0)
    assert rig.master.ledger.events() == before
    assert rig.client.call("status")["step"] == 5
    rig.client.call("progress", {"worker": "a", "generation": 2, "step": 500})
    assert rig.master.ledger.events()[-1].body["step"] == 500


def test_a_record_is_put_aside_in_each_epoch_for_itself(rig: Rig) -> None:
    rig.register("a", settings={**SETTINGS, "max_skipped_records": 2})
    rig.ready("a")
    bad = {"worker": "a", "index": 7, "error": "ValueError"}
    for epoch in (0, 0, 1):
        assert rig.client.call("quarantine", {**bad, "epoch": epoch}) == {"skip": True}
    lines = [event.body for event in rig.master.ledger.events() if event.kind == "quarantine"]
    assert [(line["epoch"], line["index"]) for line in lines] == [(0, 7), (1, 7)]
    rig.restart()
    rig.register("a", settings={**SETTINGS, "max_skipped_records": 2})
    with pytest.raises(Refused, match="2 are skipped already"):
        rig.client.call("quarantine", {**bad, "epoch": 2})


def test_a_queue_among_a_slow_worker_and_a_fast_one(rig: Rig) -> None:
    done: dict[str, list[int]] = {"slow": [], "fast": []}
    begun, ahead = threading.Event(), threading.Event()

    def run(name: str) -> None:
        client = MasterClient(rig.master.address, "secret")

        def compute(places: range) -> None:
            if name == "slow":
                begun.set()
                assert ahead.wait(60), "the other one takes over what is left"
            assert begun.wait(60)
            done[name].extend(places)
            if len(done["fast"]) > 120:
                ahead.set()

        work(client, name, "q", 200, compute, size=100, stride=5)
        client.close()

    threads = [threading.Thread(target=run, args=(name,)) for name in done]
    for name in done:
        rig.register(name)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(done["slow"] + done["fast"]) == list(range(200))
    assert len(done["fast"]) > len(done["slow"]) > 0


# -- the ledger itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "lustre"])
def test_the_ledger_is_refused_on_network_file_systems(tmp_path: Path, kind: str) -> None:
    mounts = f"1 0 8:1 / / rw - ext4 /dev/x rw\n2 1 0:5 / {tmp_path} rw shared:1 - {kind} server:/x rw\n"
    with pytest.raises(TrainError, match=f"that is {kind}.*local disk with --dir"):
        Ledger(tmp_path / "job", mounts=mounts)
    assert file_system(Path("/elsewhere"), mounts) == "ext4"


def test_the_ledger_is_append_only(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append("progress", {"generation": 1, "step": 3})
    for order in ("UPDATE log SET kind = 'x'", "DELETE FROM log"):
        with pytest.raises(Exception, match="append-only"):
            ledger._db.execute(order)
    ledger.close()
    assert [event.kind for event in Ledger(tmp_path).events()] == ["progress"]


def test_a_line_is_on_disk_when_it_is_written(tmp_path: Path) -> None:
    """SQLite's FULL syncs each transaction; with NORMAL a power cut loses the last lines."""
    ledger = Ledger(tmp_path)
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    ledger.close()


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database" * 1000)
    with pytest.raises(TrainError, match=r"cannot be read as a ledger.*Move it away"):
        Ledger(tmp_path)


def events(*lines: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(i, 0, kind, body) for i, (kind, body) in enumerate(lines)]


def formed(number: int, step: int, *members: str, restore: bool = False) -> tuple[str, dict[str, Any]]:
    return "generation", {"generation": number, "members": list(members), "step": step, "restore": restore}


def test_steps_that_are_redone_count_once() -> None:
    log = events(
        formed(1, 0, "a", "b", restore=True),
        ("restored", {"generation": 1, "step": 0}),
        ("progress", {"generation": 1, "step": 10}),
        formed(2, 12, "a"),  # 11 and 12 were applied but not yet reported
        ("progress", {"generation": 2, "step": 20}),
        ("progress", {"generation": 1, "step": 30}),  # from a dropped worker: ignored
        formed(3, 20, "c", restore=True),  # all were lost
        ("restored", {"generation": 3, "step": 8}),  # back to a checkpoint
        ("progress", {"generation": 3, "step": 9}),
    )
    assert applied(log[:6]) == [Span(1, ("a", "b"), 1, 12), Span(2, ("a",), 13, 20)]
    assert applied(log) == [Span(1, ("a", "b"), 1, 8), Span(3, ("c",), 9, 9)]
