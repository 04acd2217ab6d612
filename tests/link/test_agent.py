"""How an agent reacts to allocation documents, and which clients a job's master refuses."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pliant.train.agent.fleet import Exit
from pliant.train.agent.link import Holding
from pliant.train.agent.place import Place, begin
from pliant.train.agent.service import Agent
from pliant.train.errors import MasterAway, Refused, TrainError
from pliant.train.master.calls import MasterClient
from pliant.train.master.service import Master
from tests.house.waiting import until
from tests.link.conftest import ATTEMPT, A, B, entry, write


class Source:
    """A link with answers set by the test."""

    def __init__(self) -> None:
        self.held: Holding | None = None
        self.told = 0  # how often `wait` returned something new
        self.acks: list[tuple[int, str, tuple[str, ...]]] = []
        self.reports: list[Mapping[str, Any]] = []

    def tell(self, version: int, *devices: str, draining: Sequence[str] = (), left: int = 30_000) -> None:
        self.held = Holding(version, devices, tuple((gpu, left) for gpu in draining))

    def wait(self, after: int, timeout_s: float) -> Holding | None:
        threading.Event().wait(0.002)
        found = self.held if self.held is not None and self.held.version > after else None
        self.told += found is not None
        return found

    def ack(self, version: int, kind: str, devices: Sequence[str]) -> None:
        self.acks.append((version, kind, tuple(devices)))

    def progress(self, status: Mapping[str, Any]) -> None:
        self.reports.append(status)


class Workers:
    """A fleet, and a master that knows its workers as members."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.lives: list[str] = []
        self.slow: set[str] = set()  # devices on which a worker does not leave
        self.left_ms: list[int | None] = []
        self.exits: list[Exit] = []
        self.state, self.error, self.away = "training", None, False
        self.address = "127.0.0.1:1"  # the master's

    def hold(self, devices: Sequence[str], *, left_ms: int | None = None) -> None:
        self.left_ms.append(left_ms)
        self.wanted = list(devices)  # last, because tests wait for it

    def poll(self) -> list[Exit]:
        self.lives = [gpu for gpu in self.lives if gpu in self.wanted or gpu in self.slow]
        self.lives += [gpu for gpu in self.wanted if gpu not in self.lives and self.state == "training"]
        exits, self.exits = self.exits, []
        return exits

    def end(self, code: int) -> None:
        self.exits = [Exit(f"w-{gpu}", gpu, code, None, code in (0, 75)) for gpu in self.lives]
        self.wanted, self.lives = [], []

    def devices(self) -> list[str]:
        return list(self.lives)

    def pids(self) -> dict[str, int]:
        return {f"w-{gpu}": 1 for gpu in self.lives}

    def call(self, name: str, body: Any, **_: Any) -> dict[str, Any]:
        if self.away:
            raise MasterAway("away")
        workers = [{"worker": f"w-{gpu}", "state": "member"} for gpu in self.lives]
        return {"state": self.state, "error": self.error, "workers": workers, "step": 5}


class Rig:
    def __init__(self, *, mortal: bool = False) -> None:
        self.source, self.workers, self.stop = Source(), Workers(), threading.Event()
        made: Any = self.workers
        self.agent = Agent(
            self.source, made, made, master=None, stop=self.stop, grace_ms=10_000, mortal=mortal
        )
        self.code: list[int] = []
        self.thread = threading.Thread(target=lambda: self.code.append(self.agent.run()))
        self.thread.start()

    def ends(self) -> int:
        self.thread.join(60)
        return self.code[0]


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(mortal=getattr(request, "param", False))
    yield made
    made.workers.slow.clear()
    made.stop.set()
    made.thread.join(60)
    assert not made.thread.is_alive()


def test_it_says_drained_only_when_nothing_lives_there(rig: Rig) -> None:
    rig.source.tell(1, A, B)
    until(lambda: (1, "joined", (A, B)) in rig.source.acks, "both train")
    rig.workers.slow = {B}
    rig.source.tell(2, A, draining=[B])
    until(lambda: rig.workers.wanted == [A], "it lets one go")
    assert rig.workers.left_ms[-1] == (30_000 - 5000) * 8 // 10, "in time for SIGTERM and SIGKILL before ours"
    until(lambda: len(rig.source.reports) > 1, "a second look")
    assert [ack for ack in rig.source.acks if ack[1] == "drained"] == []
    rig.workers.slow.clear()
    until(lambda: (2, "drained", (B,)) in rig.source.acks, "it says so")
    rig.source.tell(3, A)
    rig.source.tell(4, A, B)
    until(lambda: (4, "joined", (A, B)) in rig.source.acks, "it has grown")
    assert [ack[0] for ack in rig.source.acks if ack[1] == "joined"] == [1, 2, 4]


def test_a_stop_is_a_leave_of_all(rig: Rig) -> None:
    rig.source.tell(1, A, B)
    until(lambda: rig.workers.lives == [A, B], "they train")
    rig.stop.set()
    rig.source.tell(2, A, B)
    assert rig.ends() == 0
    assert rig.workers.wanted == [] and rig.workers.left_ms[-1] == 6000


@pytest.mark.parametrize("rig", [True], indirect=True)
@pytest.mark.parametrize(("asked", "code"), [(False, 137), (True, None)])
def test_a_mortal_agent_ends_as_killed_when_its_worker_is(rig: Rig, asked: bool, code: int | None) -> None:
    rig.source.tell(1, A, B)
    until(lambda: rig.workers.lives == [A, B], "they train")
    rig.workers.exits = [Exit(f"w-{A}", A, None, 9, asked)]
    until(lambda: not rig.workers.exits, "it knows")
    if code is not None:
        assert rig.ends() == code
        assert rig.workers.wanted == [], "the other has left"
    else:  # it was asked to leave and did not in time
        rig.stop.set()
        assert rig.ends() == 0


def test_without_worker_and_master_it_is_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.source.tell(1, A)
    until(lambda: rig.workers.lives == [A], "it trains")
    monkeypatch.setattr("pliant.train.agent.service.AWAY_S", 0.1)
    until(lambda: rig.agent._status != {}, "it has heard of the job before")
    rig.workers.away = True
    rig.workers.state = "over"  # then this double starts no workers
    rig.workers.end(1)
    assert rig.ends() == 1


def test_while_it_stops_it_reads_each_document_once(rig: Rig) -> None:
    rig.source.tell(1, A)
    until(lambda: rig.workers.lives == [A], "it trains")
    rig.workers.slow = {A}
    rig.stop.set()
    until(lambda: rig.workers.wanted == [], "it stops")
    rig.source.tell(2, A, B)
    until(lambda: rig.source.told == 2, "it reads")
    enough = len(rig.source.reports) + 2
    until(lambda: len(rig.source.reports) > enough, "some turns")
    assert rig.source.told == 2 and rig.workers.wanted == []


def test_a_device_that_comes_back_is_used_again(rig: Rig) -> None:
    rig.source.tell(1, A, B)
    until(lambda: rig.workers.lives == [A, B], "they train")
    rig.source.tell(2, A, draining=[B])
    until(lambda: rig.workers.lives == [A], "one leaves")
    rig.workers.exits = [Exit("w-b", B, 0, None, True)]
    rig.source.tell(3, B)
    until(lambda: rig.workers.lives == [B], "the other one is what is left")
    until(lambda: (3, "joined", (B,)) in rig.source.acks, "it trains there")
    assert rig.thread.is_alive()


def test_it_goes_on_while_the_master_is_away(rig: Rig) -> None:
    rig.workers.away = True
    rig.source.tell(1, A)
    until(lambda: rig.workers.lives == [A], "it trains")
    rig.workers.away = False
    until(lambda: (1, "joined", (A,)) in rig.source.acks, "it is back")


@pytest.mark.parametrize(
    ("state", "worker", "code", "words"),
    [
        ("finished", 0, 0, ""),
        ("failed", 0, 1, "the job has failed. ZeroDivisionError"),
        ("training", 75, 1, "has refused the workers of this task"),
    ],
)
def test_it_ends_as_the_job_does(
    rig: Rig, state: str, worker: int, code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    rig.source.tell(1, A)
    until(lambda: rig.workers.lives == [A], "it trains")
    rig.workers.state, rig.workers.error = state, "ZeroDivisionError"  # type: ignore[assignment]
    rig.workers.end(worker)
    assert rig.ends() == code
    assert words in capfd.readouterr().err


# -- the door --------------------------------------------------------------------------------------


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path, "job-1", "right")
    yield made
    made.close()


def knock(master: Master, token: str = "right", **changed: Any) -> dict[str, Any]:
    body = {
        "protocol": 1,
        "job": "job-1",
        "worker": "w0",
        "pid": 1,
        "host": "127.0.0.1",
        "now_ms": 0,
        "settings": None,
        "generation": 0,
        "step": -1,
        "history": [],
    }
    client = MasterClient(master.address, token)
    try:
        return client.call("register", body | changed, patience_s=0.0)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("token", "changed", "status", "words"),
    [
        ("right", {"protocol": 2}, 409, "Install the same Pliant"),
        ("right", {"job": "job-2"}, 409, "job-2"),
        ("wrong", {}, 401, "token"),
    ],
)
def test_who_does_not_belong_is_turned_away(
    master: Master, token: str, changed: dict[str, Any], status: int, words: str
) -> None:
    with pytest.raises(Refused, match=words) as caught:
        knock(master, token, **changed)
    assert caught.value.status == status
    with MasterClientFor(master) as client:
        assert client.call("status")["workers"] == [], "nothing has changed"
    assert knock(master)["silence_ms"] > 0


class MasterClientFor:
    def __init__(self, master: Master) -> None:
        self.client = MasterClient(master.address, "right")

    def __enter__(self) -> MasterClient:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()


def place(folder: Path, **changed: Any) -> Place:
    fields = {
        "job": "job-1",
        "task": "worker-0",
        "number": 1,
        "attempt_dir": folder,
        "folder": folder / "train",
        "address": None,
        "leads": True,
    }
    return Place(**fields | changed)


def test_a_port_that_is_taken_is_named_with_the_cure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TrainError, match=rf"cannot listen on 127.0.0.1:{port}.*submit the job again"):
            begin(place(tmp_path, address=("127.0.0.1", port)), threading.Event())


def test_the_master_of_another_job_is_not_joined(master: Master, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "token").write_text("right")
    host, _, port = master.address.partition(":")
    there = place(tmp_path, job="job-9", address=(host, int(port)), leads=False)
    with pytest.raises(TrainError, match="belongs to another job, job-1"):
        begin(there, threading.Event())


def test_who_waits_for_a_leader_can_be_stopped(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(TrainError, match="Stopped while waiting"):
        begin(place(tmp_path, address=("127.0.0.1", 1), leads=False), stop)


@pytest.mark.parametrize(
    ("more", "leads", "shared"),
    [
        ({}, True, False),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5", "RANK": "0"}, True, True),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5", "RANK": "2"}, False, True),
    ],
)
def test_its_place_in_the_job(folder: Path, more: dict[str, str], leads: bool, shared: bool) -> None:
    env = {
        "PLIANT_ATTEMPT": ATTEMPT,
        "PLIANT_ATTEMPT_DIR": str(folder),
        "PLIANT_CHECKPOINT_DIR": "/c",
        **more,
    }
    found = Place.from_environment(env)
    assert (found.job, found.prefix, found.leads) == ("w-1", "task-0-1-", leads)
    assert found.folder == (Path("/c/.train") if shared else folder / "train")


@pytest.mark.parametrize("kept", [True, False])
def test_tasks_that_have_no_folder_in_common_share_a_word(folder: Path, tmp_path: Path, kept: bool) -> None:
    """On a cluster. Without a folder that outlives the pod, it writes into the pod."""
    env = {
        "PLIANT_ATTEMPT": ATTEMPT,
        "PLIANT_ATTEMPT_DIR": str(folder),
        "PLIANT_TRAIN_TOKEN": "word",
        "MASTER_ADDR": "master-0.pliant-w-1",
        "MASTER_PORT": "23456",
        "RANK": "1",
        **({"PLIANT_CHECKPOINT_DIR": str(tmp_path / "volume")} if kept else {}),
    }
    found = Place.from_environment(env)
    assert found.folder == (tmp_path / "volume" if kept else folder) / ".train"
    token = found.folder / "token"
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("word", 0o600)
    assert found.address == ("master-0.pliant-w-1", 23456)


def test_the_master_of_several_machines_listens_for_all_of_them(tmp_path: Path) -> None:
    """Its own name may not resolve yet; clients get it all the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    there = place(tmp_path, address=("nobody.knows.it.invalid", port), leads=True)
    monkey = pytest.MonkeyPatch()
    monkey.setattr("pliant.train.agent.place._bury", lambda place, client: None)
    try:
        master, client = begin(there, threading.Event())
    finally:
        monkey.undo()
    assert master is not None
    try:
        assert client.address == f"nobody.knows.it.invalid:{port}"
        with socket.create_connection(("127.0.0.1", port), 30):
            pass
    finally:
        master.close()


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PLIANT_ATTEMPT": ATTEMPT, "PLIANT_ATTEMPT_DIR": str(folder), **more}
    command = [sys.executable, "-m", "pliant.train.agent", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)


def test_there_is_one_agent_in_a_task(folder: Path) -> None:
    from pliant.train.agent.service import _take_lead

    lead = _take_lead(folder)
    assert lead is not None
    try:
        write(folder, 1, entry("active", A))
        done = run(folder, "--", "true")
        assert done.returncode == 1 and "already has an agent" in done.stderr
    finally:
        os.close(lead)


def test_outside_of_a_task_and_without_a_command_it_says_what_to_do(folder: Path) -> None:
    assert "usage: python -m pliant.train.agent [--mortal] -- COMMAND" in run(folder).stderr
    done = run(folder, "--", "true", PLIANT_ATTEMPT="")
    assert done.returncode == 1 and "no task of the scheduler" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_are_started_one_per_device_and_the_agent_has_none(folder: Path) -> None:
    """Here the command ends at once without training: the job says so."""
    write(folder, 1, entry("active", A, B))
    script = "import os; os.write(1, b' '.join((os.environb[b'PLIANT_TRAIN_DEVICE'], %s, b'.')))"
    script %= "os.environb[b'CUDA_VISIBLE_DEVICES']"
    done = run(folder, "--", sys.executable, "-c", script, CUDA_VISIBLE_DEVICES=f"{A},{B}")
    assert sorted(done.stdout.split(" .")) == ["", f"{A} {A}", f"{B} {B}"]
    assert done.returncode == 1 and "ended before its training was over" in done.stderr


def test_a_script_that_fails_again_and_again_ends_the_task_with_its_first_words(folder: Path) -> None:
    write(folder, 1, entry("active", A))
    done = run(folder, "--", sys.executable, "-c", "raise SystemExit('no such data')")
    assert done.returncode == 1
    assert "the job has failed. 1 worker failed" in done.stderr and "no such data" in done.stderr
