"""Backups of a store in use, and their restore."""

import multiprocessing
import os
import signal
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.ports import Batch, Saved
from pliant.model.workload import Attempt, Task, Workload
from pliant.store import Database, StoreError, archive, open_store, restore
from pliant.store.codec import FORMAT
from tests.store.conftest import Release
from tests.store.postgres import Server
from tests.store.samples import attempt, event, running, workload


@pytest.fixture
def backup(store: Database, tmp_path: Path) -> Path:
    """A backup of a store with rows of several kinds and epoch 3."""
    store.lead(), store.lead()
    epoch = store.lead()
    for number in range(1, 5):
        store.commit(epoch, running(number))
    store.commit(epoch, Batch(put=(attempt(1, ended=5), workload(2, deleted=9)), events=(event("server"),)))
    target = tmp_path / "backup.db"
    store.backup(target)
    return target


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """An empty place to restore to."""
    if request.param == "sqlite":
        return tmp_path / "restored.db"
    return request.getfixturevalue("postgres").place()


def everything(where: str | Path) -> tuple[Saved, object]:
    store = open_store(where)
    try:
        history = [store.events(subject) for subject in ("w-1", "w-2", "server")]
        return store.load(), (history, store.attempts("w-1"), store.ended())
    finally:
        store.close()


def test_what_was_backed_up_comes_back(
    store: Database, where: str | Path, backup: Path, target: str | Path
) -> None:
    restore(backup, target)
    assert everything(target) == everything(where)
    restored = open_store(target)
    epoch = restored.lead()
    assert epoch == 4
    restored.commit(epoch, Batch(put=running(9).put, events=(event("server", 9),)))
    numbers = [number for number, _ in restored.events("server")]
    assert len(numbers) == 2 and numbers[1] > numbers[0]
    restored.close()


def test_a_backup_is_one_private_file(backup: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["backup.db"]
    assert backup.stat().st_mode & 0o777 == 0o600
    before = backup.read_bytes()
    archive.check(backup)
    assert backup.read_bytes() == before


def test_a_backup_of_a_store_in_use_holds_whole_batches(store: Database, tmp_path: Path) -> None:
    epoch = store.lead()
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            store.commit(epoch, replace(running(written + 1), durable=False))
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(3):
            least = written
            store.backup(tmp_path / f"{turn}.db")
            saved, _ = everything(tmp_path / f"{turn}.db")
            count = len(saved.of(Workload))
            assert least <= count
            assert {w.id for w in saved.of(Workload)} == {f"w-{n}" for n in range(1, count + 1)}
            assert (
                len(saved.of(Task)) == len(saved.of(Attempt)) == count == int(saved.settings.get("last", 0))
            )
    finally:
        stop.set()
        writer.join()


def back_up_without_end(where: Path, target: Path, out: int) -> None:
    """A backup that says when its draft is complete, and then publishes nothing."""

    def stay(_: Path) -> None:
        os.write(out, b"ready")
        signal.pause()

    archive.check = stay
    open_store(where).backup(target)


def test_a_backup_removes_what_a_killed_one_has_left_and_nothing_else(
    file_store: Database, tmp_path: Path
) -> None:
    """While the other backup lives its draft stays; also a folder that only has such a name stays."""
    file_store.commit(file_store.lead(), running(1))
    folder = tmp_path / "backups"
    other = folder / f"{archive.DRAFT}mine"
    other.mkdir(parents=True)
    (other / "lock").write_text("mine")
    (other / "notes").write_text("mine")
    (folder / f"{archive.DRAFT}link").symlink_to(other)
    kept = {path.name for path in folder.iterdir()}
    read, write = os.pipe()
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=back_up_without_end, args=(tmp_path / "state.db", folder / "one.db", write))
    child.start()
    os.close(write)
    try:
        assert os.read(read, 5) == b"ready"
        (draft,) = {path.name for path in folder.iterdir()} - kept
        file_store.backup(folder / "two.db")
        assert {path.name for path in folder.iterdir()} == {*kept, draft, "two.db"}, "it is being written"
    finally:
        os.close(read)
        child.kill()
        child.join(60)
    assert child.exitcode == -signal.SIGKILL and (folder / draft / "draft").stat().st_size > 0
    file_store.backup(folder / "three.db")
    assert {path.name for path in folder.iterdir()} == {*kept, "two.db", "three.db"}
    assert {path.name for path in other.iterdir()} == {"lock", "notes"}


def test_a_backup_never_replaces_a_file(store: Database, tmp_path: Path) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("mine")
    with pytest.raises(StoreError, match=r"notes.txt exists: choose another name"):
        store.backup(target)
    assert target.read_text() == "mine"
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        store.backup(tmp_path / "no" / "folder.db")


def test_a_file_that_appears_meanwhile_is_not_replaced(
    file_store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup.db"
    monkeypatch.setattr(archive, "check", lambda _: target.write_text("mine"))
    with pytest.raises(StoreError, match=r"backup.db cannot be written: File exists"):
        file_store.backup(target)
    assert target.read_text() == "mine"
    assert not [*tmp_path.glob(f"{archive.DRAFT}*")]


def test_without_hard_links_it_works_too(
    file_store: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    target = tmp_path / "backup.db"
    file_store.commit(file_store.lead(), running(1))
    file_store.backup(target)
    restore(target, tmp_path / "other.db")
    restore(target, tmp_path / "other.db", overwrite=True)
    for name in ("other.db", "other.db.replaced"):
        assert len(everything(tmp_path / name)[0].of(Workload)) == 1
    monkeypatch.setattr(archive, "check", lambda _: (tmp_path / "taken.db").write_text("mine"))
    with pytest.raises(StoreError, match=r"taken.db cannot be written: File exists"):
        file_store.backup(tmp_path / "taken.db")
    assert (tmp_path / "taken.db").read_text() == "mine"


def test_of_a_damaged_store_there_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = open_store(path)
    epoch = store.lead()
    for number in range(1, 200):
        store.commit(epoch, running(number))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096 * 80)  # after the tables that a start reads
        file.write(b"\xff" * 4096 * 20)
    store = open_store(path)
    with pytest.raises(StoreError, match="damaged"):
        store.backup(tmp_path / "backup.db")
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.db"]


def test_restoring_over_a_store_must_be_asked_for_and_keeps_it_aside(backup: Path, tmp_path: Path) -> None:
    path = tmp_path / "there.db"
    old = open_store(path)
    for _ in range(7):
        epoch = old.lead()
    old.commit(epoch, running(50))
    with pytest.raises(StoreError, match=r"there.db exists: restore elsewhere"):
        restore(backup, path)
    with pytest.raises(StoreError, match=r"there.db is in use: stop the server first"):
        restore(backup, path, overwrite=True)
    assert [w.id for w in old.load().of(Workload)] == ["w-50"]
    old.close()
    restore(backup, path, overwrite=True)
    saved, _ = everything(path)
    assert [w.id for w in saved.of(Workload)] == ["w-1", "w-3", "w-4"]
    aside, _ = everything(tmp_path / "there.db.replaced")
    assert [w.id for w in aside.of(Workload)] == ["w-50"]
    new = open_store(path)
    assert new.lead() == 8  # 7 was the epoch of the replaced store
    new.close()


def test_a_log_that_was_left_behind_does_not_come_back(backup: Path, tmp_path: Path) -> None:
    """The server was killed: its last transactions are in the log beside the replaced file."""
    path = tmp_path / "there.db"
    killed = open_store(tmp_path / "killed.db")
    killed.commit(killed.lead(), running(50))
    for part in ("", "-wal", "-shm"):
        Path(f"{path}{part}").write_bytes(Path(tmp_path / f"killed.db{part}").read_bytes())
    killed.close()
    restore(backup, path, overwrite=True)
    assert [w.id for w in everything(path)[0].of(Workload)] == ["w-1", "w-3", "w-4"]


def test_a_damaged_store_can_be_replaced(backup: Path, tmp_path: Path) -> None:
    path = tmp_path / "there.db"
    path.write_bytes(b"rubbish" * 1000)
    restore(backup, path, overwrite=True)
    assert len(everything(path)[0].of(Workload)) == 3
    assert Path(f"{path}.replaced").read_bytes() == b"rubbish" * 1000


def test_restoring_into_a_postgresql_in_use_must_be_asked_for(backup: Path, postgres: Server) -> None:
    url = postgres.place()
    old = open_store(url)
    for _ in range(7):
        epoch = old.lead()
    old.commit(epoch, running(50))
    with pytest.raises(StoreError, match="holds a store: restore elsewhere"):
        restore(backup, url)
    restore(backup, url, overwrite=True)
    assert [w.id for w in old.load().of(Workload)] == ["w-1", "w-3", "w-4"]
    assert old.lead() == 8
    old.close()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "schema 9999"),
        (
            f"UPDATE tasks SET format = {FORMAT + 1}",
            f"rows of tasks have format {FORMAT + 1} of a newer Pliant",
        ),
        ("DROP TABLE state", "holds other tables"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM workloads", "is damaged: stray row in"),
    ],
)
def test_a_backup_that_cannot_be_used_is_refused(
    spoil: str, said: str, file_store: Database, tmp_path: Path
) -> None:
    file_store.commit(file_store.lead(), running(1))
    file_store.backup(tmp_path / "backup.db")
    with sqlite3.connect(tmp_path / "backup.db") as connection:
        connection.executescript(spoil)
    connection.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StoreError, match=said):
        restore(tmp_path / "backup.db", tmp_path / "target.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        (b"", "is empty: it is not a backup"),
        (b"notes" * 99, "is not a database of"),
    ],
)
def test_what_is_no_backup_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(StoreError, match=said):
        restore(source, tmp_path / "target.db")
    assert not (tmp_path / "target.db").exists()


def test_a_backup_is_not_restored_onto_itself(backup: Path) -> None:
    with pytest.raises(StoreError, match="onto itself"):
        restore(backup, backup, overwrite=True)


def test_an_older_backup_is_brought_up_to_date(backup: Path, target: str | Path, release: Release) -> None:
    release(True)
    restore(backup, target)
    assert len(everything(target)[0].of(Workload)) == 3
    release(False)
    with pytest.raises(StoreError, match="schema 9999"):
        open_store(target)
