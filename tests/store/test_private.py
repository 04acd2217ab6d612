"""A state folder that other accounts could write to is refused; the error names the unsafe part."""

import os
from pathlib import Path

import pytest

from pliant.store.errors import StoreError
from pliant.store.folder import StateFolder
from pliant.store.private import demand_private
from tests.house.gaps import gap


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    made = tmp_path / "parent"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture
def foreign() -> int:
    if os.geteuid() != 0:
        gap("not root", "run as root: the test gives folders to another account")
    return 4711


def test_a_folder_of_ours_is_taken_and_made_closed(parent: Path) -> None:
    StateFolder(parent / "state").prepare()
    assert (parent / "state").stat().st_mode & 0o777 == 0o700
    demand_private(parent / "state")
    (parent / "link").symlink_to(parent / "state")
    demand_private(parent / "link")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_a_parent_to_which_others_may_write(parent: Path, mode: int) -> None:
    parent.chmod(mode)
    if mode & 0o1000:
        os.chown(parent, 0, 0)
        demand_private(parent / "state")  # sticky, as /tmp: accounts cannot rename others' files
        return
    os.chown(parent, -1, 4711)
    with pytest.raises(
        StoreError, match=f"others may write to {parent} .*mode {mode:04o}.*chmod go-w {parent}"
    ):
        StateFolder(parent / "state").prepare()
    assert not (parent / "state").exists()


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777])
def test_a_folder_that_is_open_to_others(parent: Path, mode: int) -> None:
    (parent / "state").mkdir()
    (parent / "state").chmod(mode)
    with pytest.raises(StoreError, match=f"mode {mode:04o} and is open to others.*chmod 700 {parent}/state"):
        StateFolder(parent / "state").prepare()
    assert not list((parent / "state").iterdir())


def test_a_folder_of_somebody_else(parent: Path, foreign: int) -> None:
    (parent / "state").mkdir(mode=0o700)
    os.chown(parent / "state", foreign, foreign)
    with pytest.raises(StoreError, match=f"{parent}/state belongs to user 4711"):
        StateFolder(parent / "state").prepare()


def test_a_link_of_somebody_else(parent: Path, foreign: int) -> None:
    (parent / "real").mkdir(mode=0o700)
    (parent / "state").symlink_to(parent / "real")
    os.chown(parent / "state", foreign, foreign, follow_symlinks=False)
    with pytest.raises(StoreError, match=f"{parent}/state belongs to user 4711"):
        StateFolder(parent / "state").prepare()


def test_a_link_into_a_folder_that_others_may_write_to(parent: Path) -> None:
    wide = parent / "wide"
    wide.mkdir()
    wide.chmod(0o777)
    (parent / "state").symlink_to(wide / "state")
    with pytest.raises(StoreError, match=f"others may write to {wide}"):
        StateFolder(parent / "state").prepare()


def test_a_file_and_a_link_in_a_circle(parent: Path) -> None:
    (parent / "file").touch()
    with pytest.raises(StoreError, match=f"{parent}/file is not a folder"):
        demand_private(parent / "file" / "state")
    (parent / "circle").symlink_to(parent / "circle")
    with pytest.raises(StoreError, match="leads nowhere"):
        demand_private(parent / "circle")
