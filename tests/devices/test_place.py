"""The folder of ledgers, and gpu.conf when it is read again."""

import os
import secrets
import shutil
from pathlib import Path

import pytest

from pliant.devices import config
from pliant.devices.config import GpuConf, Grant
from pliant.devices.place import Place
from tests.house.gaps import gap

UUID = "GPU-00000000-0000-4000-8000-000000000000"


def test_a_place_is_found_again_and_goes(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    run.mkdir(mode=0o700)
    place = Place(state, {"XDG_RUNTIME_DIR": str(run)})
    assert not list(run.iterdir()) and place.present("ledgers") == []
    (place.folder("ledgers") / "a").touch()
    assert place.root.parent == run and place.root.stat().st_mode & 0o777 == 0o700
    other = Place(state, {})  # the next server was started from somewhere else
    assert other.root == place.root and [path.name for path in other.present("ledgers")] == ["a"]
    other.remove()
    assert not list(run.iterdir()) and list(state.iterdir()) == []


def test_two_state_folders_have_two_places(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    for state in (first, copy):
        state.mkdir()
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    root = Place(first, environ).root
    (copy / "gpu-place").write_text(f"{root}\n")  # came along with the copy
    assert Place(copy, environ).root != root


def test_what_is_left_of_state_folders_that_are_gone_goes(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    places = []
    for name in ("mine", "living", "gone"):
        (tmp_path / name).mkdir()
        places.append(Place(tmp_path / name, environ))
        places[-1].folder("cards")
    roots = [place.root for place in places]
    (tmp_path / "pliant-strange").mkdir()
    (tmp_path / "gone" / "gpu-place").unlink()
    (tmp_path / "gone").rmdir()
    places[0].tidy()
    assert [root.exists() for root in roots] == [True, True, False]
    assert (tmp_path / "pliant-strange").exists()


@pytest.mark.parametrize("runtime", ["relative", "/no/such/folder", "/with space", "open to others"])
def test_places_that_are_none_are_passed_over(tmp_path: Path, runtime: str) -> None:
    if runtime == "open to others":
        tmp_path.chmod(0o777)
        runtime = str(tmp_path)
    assert Place(tmp_path, {"XDG_RUNTIME_DIR": runtime}).chosen in (Path("/dev/shm"), tmp_path / "gpu")


def test_a_name_that_somebody_made_first_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the second name, nor the folder that a note names if it belongs to another account by now."""
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    run.mkdir(mode=0o700)
    names = iter(["one", "two", "three", "four"])
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(names))
    mine = f"pliant-{os.geteuid()}"
    (run / f"{mine}-one").mkdir()
    (run / f"{mine}-two").symlink_to(tmp_path)
    place = Place(state, {"XDG_RUNTIME_DIR": str(run)})
    assert place.root == state / "gpu" and place.root.stat().st_mode & 0o077 == 0
    place.remove()
    assert place.root == run / f"{mine}-three"
    again = Place(state, {"XDG_RUNTIME_DIR": str(run)})
    shutil.move(place.root, tmp_path / "elsewhere")
    (run / f"{mine}-three").symlink_to(tmp_path / "elsewhere")
    assert again.root == run / f"{mine}-four"


def test_a_folder_of_another_account_is_neither_used_nor_read(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        gap("not root", "run the tests as root: they make a folder of another account")
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    run.mkdir(mode=0o700)
    theirs = run / "pliant-0-theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "state").write_text(f"{state}\n")
    (state / "gpu-place").write_text(f"{theirs}\n")
    os.chown(theirs, 65534, 65534)
    place = Place(state, {"XDG_RUNTIME_DIR": str(run)})
    assert place.root.parent == run and place.root != theirs
    (theirs / "state").unlink()
    os.mkfifo(theirs / "state")
    place.tidy()
    assert theirs.exists()


def test_what_was_written_is_read() -> None:
    share = Grant(UUID, 5 << 30, 3 << 30, 500, "fair", 20_000, Path("/run/turns/0"))
    whole = Grant(UUID.replace("0000-4", "0001-4"), 1 << 30)
    conf = GpuConf("w/task-0/1", Path("/run/ledger"), (share, whole), 7)
    assert config.parse(config.render(conf)) == conf


@pytest.mark.parametrize("text", ["", "\n", "x", "pliant-gpu 1\nend 0\n", "pliant-gpu 1\nworkload\nend 0\n"])
def test_what_was_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it is"):
        config.parse(text)


def test_half_of_it_is_refused() -> None:
    whole = config.render(GpuConf("w", Path("/l"), (Grant(UUID, 1 << 30),)))
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match="it is"):
            config.parse(whole[:cut])
