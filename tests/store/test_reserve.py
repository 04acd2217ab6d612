"""Disk space reserved for the case of a full disk."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.store import open_store, reserve
from pliant.store.errors import StoreError
from pliant.store.folder import StateFolder
from pliant.store.reserve import PIECE, SIZE, Reserve
from tests.house.gaps import gap
from tests.store.samples import running


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        gap("no small disk", "run as root, with the right to mount a tmpfs")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True, timeout=60)


def _fill(disk: Path) -> Path:
    with (disk / "ballast").open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return disk / "ballast"


def test_it_is_kept_spent_in_pieces_and_kept_again(disk: Path) -> None:
    kept = Reserve(disk)
    assert not kept.scarce(spend=False) and (disk / "reserve").stat().st_blocks * 512 >= SIZE
    ballast = _fill(disk)
    assert kept.scarce(spend=False) and (disk / "reserve").stat().st_size == SIZE
    assert kept.scarce(spend=True) and (disk / "reserve").stat().st_size == SIZE - PIECE
    ballast.unlink()
    assert not kept.scarce(spend=True) and (disk / "reserve").stat().st_size == SIZE


def test_a_disk_too_small_for_it_keeps_none(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "SCARCE", 22 * 2**20)
    assert not Reserve(disk).scarce(spend=True) and not (disk / "reserve").exists()


def test_a_folder_of_a_newer_release_is_refused_before_its_reserve_changes(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.path.mkdir(mode=0o700)
    (folder.path / "VERSION").write_text("99\n")
    with pytest.raises(StoreError, match="layout version 99"):
        folder.prepare()
    assert [path.name for path in folder.path.iterdir()] == ["VERSION"]
    (folder.path / "VERSION").write_text("1\n")
    folder.prepare()
    assert (folder.path / "reserve").exists()


def test_a_store_writes_on_with_it(disk: Path) -> None:
    Reserve(disk).scarce(spend=False)
    store = open_store(disk / "pliant.db")
    _fill(disk)
    first = store.lead()
    assert [store.lead() for _ in range(200)] == [*range(first + 1, first + 201)]
    assert (disk / "reserve").stat().st_size < SIZE
    _fill(disk)
    for number in range(20):
        store.commit(first + 200, running(number, 1))
    store.close()


def test_a_server_writes_where_it_can_be_reached_with_it(disk: Path) -> None:
    Reserve(disk).scarce(spend=False)
    for left in (SIZE - PIECE, SIZE - 2 * PIECE):
        _fill(disk)
        StateFolder(disk).write("port", f"{left}\n", mode=0o600)
        assert ((disk / "port").read_text(), (disk / "reserve").stat().st_size) == (f"{left}\n", left)
    (disk / "reserve").unlink()
    _fill(disk)
    with pytest.raises(OSError, match="No space left"):
        StateFolder(disk).write("port", "none\n", mode=0o600)
    assert (disk / "port").read_text() == f"{left}\n"
