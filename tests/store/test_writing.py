"""Commits that share a transaction, and failures that leave nothing written in part."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from pliant.control.ports import Batch, StaleEpoch
from pliant.model.workload import Attempt, Task, Workload
from pliant.store import Database, StoreBusy, StoreError, connect, open_store
from tests.store.postgres import Server
from tests.store.samples import event, running, task, workload


def together(store: Database, calls: list[tuple[int, Batch]]) -> list[Exception | None]:
    """Outcomes of commits from one thread each, all waiting for the write lock at the same time."""
    outcomes: list[Exception | None] = [None] * len(calls)

    def call(index: int) -> None:
        try:
            store.commit(*calls[index])
        except Exception as error:
            outcomes[index] = error

    writer = store._writer
    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(calls))]
    with writer._lock:
        for thread in threads:
            thread.start()
        until(lambda: len(writer._queue) == len(calls))
    for thread in threads:
        thread.join()
    return outcomes


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_those_who_wait_share_one_transaction(store: Database) -> None:
    epoch = store.lead()
    before = store._writer.transactions
    assert together(store, [(epoch, running(n)) for n in range(1, 9)]) == [None] * 8
    assert store._writer.transactions == before + 1
    assert len(store.load().of(Workload)) == len(store.load().of(Attempt)) == 8


def test_in_a_shared_transaction_a_stale_epoch_fails_alone(store: Database) -> None:
    old, epoch = store.lead(), store.lead()
    outcomes = together(store, [(epoch, running(1)), (old, running(2)), (epoch, running(3))])
    assert [type(outcome) for outcome in outcomes] == [type(None), StaleEpoch, type(None)]
    assert [w.id for w in store.load().of(Workload)] == ["w-1", "w-3"]
    assert not store.events("w-2")


def test_in_a_shared_transaction_a_contradiction_fails_alone(store: Database) -> None:
    old, epoch = store.lead(), store.lead()
    bad = Batch(put=(workload(5), task(9)), events=(event("server"),))
    outcomes = together(store, [(epoch, running(1)), (epoch, bad), (old, running(2)), (epoch, running(3))])
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreError, StaleEpoch, type(None)]
    assert [w.id for w in store.load().of(Workload)] == ["w-1", "w-3"]
    assert len(store.events("w-1")) == len(store.events("w-3")) == 1  # once, though it took two attempts
    assert not store.events("server")


@pytest.mark.parametrize("durable", [True, False])
def test_what_must_survive_a_power_cut_is_synced(store: Database, durable: bool) -> None:
    asked, wanted = "PRAGMA synchronous", {True: 2, False: 1}  # FULL, NORMAL
    if store._link.path is None:
        asked, wanted = "SHOW synchronous_commit", {True: "on", False: "off"}
    for _ in range(2):
        with store._link.writing(durable) as connection:
            assert connection.exec_driver_sql(asked).scalar_one() == wanted[durable]
        with store._link.writing(not durable) as connection:
            assert connection.exec_driver_sql(asked).scalar_one() == wanted[not durable]


def test_a_shared_transaction_is_synced_if_one_must_be(
    file_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = file_store.lead()
    asked: list[bool] = []
    writing = connect.Link.writing
    monkeypatch.setattr(
        connect.Link,
        "writing",
        lambda link, durable, **more: asked.append(durable) or writing(link, durable, **more),
    )
    lazy = replace(running(1), durable=False)
    assert together(file_store, [(epoch, lazy), (epoch, running(2)), (epoch, lazy)]) == [None] * 3
    file_store.commit(epoch, lazy)
    assert asked == [True, False]


def test_a_full_disk_fails_all_and_changes_nothing(file_store: Database) -> None:
    epoch = file_store.lead()
    file_store.commit(epoch, running(1))
    with file_store._link.writers.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        connection.rollback()
    large = Batch(put=(workload(2, user="x" * 100_000), *running(3).put), events=(event("w-2"),))
    outcomes = together(file_store, [(epoch, large), (epoch, running(4))])
    assert all("the disk is full: free some space" in str(outcome) for outcome in outcomes), outcomes
    assert [w.id for w in file_store.load().of(Workload)] == ["w-1"]
    file_store.commit(epoch, large)  # a new connection has no page limit
    assert [w.id for w in file_store.load().of(Workload)] == ["w-1", "w-2", "w-3"]


def test_an_interrupted_writer_leaves_nobody_believing_in_success(
    file_store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = file_store.lead()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(file_store._writer, "_transact", interrupt)
    outcomes: list[BaseException] = []

    def call() -> None:
        try:
            file_store.commit(epoch, running(1))
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    with file_store._writer._lock:
        for thread in threads:
            thread.start()
        until(lambda: len(file_store._writer._queue) == 3)
    for thread in threads:
        thread.join()
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "KeyboardInterrupt",
        "StoreError",
        "StoreError",
    ]


LIMITED = """
import resource, signal, sys
from pathlib import Path
from pliant.model.workload import Workload
from pliant.store import StoreError, open_store
from tests.store.samples import running
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
store = open_store(path)
epoch = store.lead()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
done = 0
try:
    while True:
        store.commit(epoch, running(done + 1))
        done += 1
except StoreError as error:
    print(error)
assert len(store.load().of(Workload)) == done
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.commit(epoch, running(done + 1))
store.close()
print(done + 1)
"""


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    """The kernel refuses a write in a transaction; committed batches stay, and the store remains usable."""
    path = tmp_path / "state.db"
    done = python(LIMITED, path, 1_000_000)
    assert done.returncode == 0, done.stderr
    said, count = done.stdout.splitlines()
    assert "check the disk, its free space and its size limits" in said or "the disk is full" in said
    assert int(count) > 10
    store = open_store(path)
    assert len(store.load().of(Workload)) == int(count) == len(store.load().of(Attempt))
    store.close()


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from pliant.store import StoreError, open_store
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    store = open_store(Path(sys.argv[1]))
    store.lead()
except StoreError as error:
    print(error)
"""


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that other accounts can enter."""
    folder = Path(tempfile.mkdtemp(prefix="pliant-store-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_without_write_permission_it_says_what_to_do(open_folder: Path) -> None:
    path = open_folder / "state.db"
    open_store(path).close()
    path.chmod(0o444)
    open_folder.chmod(0o555)
    done = python(UNPRIVILEGED, path)
    assert (
        "make the file and its folder writable" in done.stdout or "writable for this user" in done.stdout
    ), done
    done = python(UNPRIVILEGED, open_folder / "new.db")
    assert done.stdout.strip() == f"store {open_folder / 'new.db'}: it cannot be made: Permission denied"


def test_a_file_that_was_removed_or_replaced_takes_nothing_more(file_store: Database, tmp_path: Path) -> None:
    epoch = file_store.lead()
    file_store.commit(epoch, running(1))
    (tmp_path / "state.db").rename(tmp_path / "moved.db")
    with pytest.raises(StoreError, match="its file was removed or replaced: restart the server"):
        file_store.commit(epoch, running(2))
    shutil.copy(tmp_path / "moved.db", tmp_path / "state.db")
    with pytest.raises(StoreError, match="removed or replaced"):
        file_store.lead()


@contextmanager
def held(where: str | Path) -> Iterator[None]:
    """Holds the write lock by an open transaction, as another process would."""
    if isinstance(where, Path):
        connection = sqlite3.connect(where, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.close()
    else:
        with psycopg.connect(where) as other:
            other.execute("SELECT epoch FROM state FOR UPDATE")
            yield


@pytest.mark.slow
def test_a_lock_that_another_process_keeps_is_named(
    where: str | Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "WAIT", 50)
    store = open_store(where)
    epoch = store.lead()
    with held(where):
        with pytest.raises(StoreBusy, match="kept it locked for too long"):
            store.commit(epoch, running(1))
        with pytest.raises(StoreBusy):
            store.lead()
        assert store.load().of(Workload) == ()  # readers do not wait
    store.commit(epoch, running(1))
    store.close()


def test_a_torn_log_is_a_shorter_one(file_store: Database, tmp_path: Path) -> None:
    """After a power cut any length of the log may be on disk; no batch is stored in part."""
    epoch = file_store.lead()
    for number in range(1, 21):
        file_store.commit(epoch, running(number))
    log = (tmp_path / "state.db-wal").read_bytes()
    counts = set()
    for length in range(0, len(log) + 1, max(1, len(log) // 40)):
        copy = tmp_path / "copy.db"
        shutil.copy(tmp_path / "state.db", copy)
        Path(f"{copy}-wal").write_bytes(log[:length])
        with sqlite3.connect(copy) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        connection.close()
        if "workloads" in tables:
            torn = open_store(copy)
            saved = torn.load()
            torn.close()
            count = len(saved.of(Workload))
            assert {w.id for w in saved.of(Workload)} == {f"w-{n}" for n in range(1, count + 1)}
            assert count == len(saved.of(Task)) == len(saved.of(Attempt))
            assert saved.settings.get("last", "0") == str(count)
            counts.add(count)
        for part in tmp_path.glob("copy.db*"):
            part.unlink()
    assert len(counts) > 10


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("mysql://root:secret@localhost/x", r"mysql://root:\*\*\*@localhost/x: Pliant keeps its state in"),
        ("sqlite://", "Pliant keeps its state in"),
        ("sqlite:///:memory:", "Pliant keeps its state in"),
        ("postgresql://me:secret@host:port/x", "^not a database address; an example"),
        ("/no/such/folder/state.db", "cannot be made: No such file or directory"),
        ("/", "it is a folder"),
    ],
)
def test_a_place_that_cannot_be_is_refused(where: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        open_store(where)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("my notes\n" * 500)
    with pytest.raises(StoreError, match=r"state.db: it is not a database of Pliant, or it is damaged"):
        open_store(path)
    assert path.read_text().startswith("my notes\n")


def test_a_database_of_something_else_is_refused(where: str | Path) -> None:
    if isinstance(where, Path):
        with sqlite3.connect(where) as file:
            file.execute("CREATE TABLE theirs (x INTEGER)")
        file.close()
    else:
        with psycopg.connect(where) as connection:
            connection.execute("CREATE TABLE theirs (x INTEGER)")
    with pytest.raises(StoreError, match="it holds other tables than Pliant's"):
        open_store(where)


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = open_store(path)
    epoch = store.lead()
    for number in range(1, 200):
        store.commit(epoch, running(number))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096 * 80)  # after the tables that a start reads
        file.write(b"\xff" * 4096 * 40)
    store = open_store(path)
    with pytest.raises(StoreError, match=r"it is damaged: restore a backup"):
        store.load()
    store.close()


def test_a_row_that_cannot_be_read_is_named(file_store: Database, tmp_path: Path) -> None:
    file_store.commit(file_store.lead(), running(1))
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("UPDATE workloads SET format = 99, body = replace(body, 'image', 'picture')")
    other.close()
    with pytest.raises(
        StoreError, match=r"row w-1 of workloads cannot be read: Workload.launch: unknown field"
    ):
        file_store.load()


def test_without_its_driver_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'pliant\[postgres\]'"):
        open_store("postgresql://me@host/x")


def test_servers_that_do_not_answer_are_named_without_their_password(postgres: Server) -> None:
    with pytest.raises(StoreError, match="no answer") as caught:
        open_store(f"postgresql://u:secret@/x?host={postgres.folder}/nowhere")
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreError, match="does not exist"):
        open_store(postgres.url("missing"))


def test_files_are_private(file_store: Database, tmp_path: Path) -> None:
    file_store.lead()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("state.db*")} == {0o600}


def test_a_leader_that_hangs_in_a_transaction_keeps_nobody_from_leading(postgres: Server) -> None:
    """It sent only part of a pipeline of statements: PostgreSQL waits for the rest without limit."""
    address = postgres.place()
    with closing(open_store(address)) as store, psycopg.connect(address) as hung:
        epoch = store.lead()
        hung.execute("SET idle_in_transaction_session_timeout = 100")
        hung.commit()
        with suppress(psycopg.OperationalError), hung.pipeline():
            hung.execute("SELECT epoch FROM state FOR UPDATE")
            hung.execute("UPDATE leadership SET renewed = renewed + 1")
            hung.pgconn.send_flush_request()
            while hung.pgconn.flush():
                pass
            assert store.claim(store.seen()) == epoch + 1
            with pytest.raises(StaleEpoch):
                store.renew(epoch)


def test_a_server_opens_ten_connections_for_readers_at_most(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "READER_WAIT", 0.05)
    address = postgres.place() + "&application_name=ten-at-most"
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ten-at-most'"
    with closing(open_store(address)) as store, ExitStack() as held_open:
        store.lead()  # the one connection for writing
        for _ in range(10):
            reader = held_open.enter_context(store._link.reading())
        assert reader.exec_driver_sql(counted).scalar_one() == 11
        with pytest.raises(StoreBusy, match="all connections for reading are in use: try again"):
            store.load()
        held_open.close()
        store.load()
