"""Where ledgers lie, and what gpu.conf says when it is read again."""

from pathlib import Path

import pytest

from pliant.devices import config
from pliant.devices.config import GpuConf, Grant
from pliant.devices.place import Place

UUID = "GPU-00000000-0000-4000-8000-000000000000"


def test_a_place_is_found_again_and_goes(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    run.mkdir()
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
    (tmp_path / "pliant-strange").mkdir()
    (tmp_path / "gone" / "gpu-place").unlink()
    (tmp_path / "gone").rmdir()
    roots = [place.chosen for place in places]
    places[0].tidy()
    assert [root.exists() for root in roots] == [True, True, False]
    assert (tmp_path / "pliant-strange").exists()


@pytest.mark.parametrize("runtime", ["relative", "/no/such/folder", "/with space"])
def test_places_that_are_none_are_passed_over(tmp_path: Path, runtime: str) -> None:
    assert Place(tmp_path, {"XDG_RUNTIME_DIR": runtime}).chosen.parent in (Path("/dev/shm"), tmp_path / "gpu")


@pytest.mark.parametrize("bad", ["a link", "open to others"])
def test_a_place_of_somebody_else_is_refused(tmp_path: Path, bad: str) -> None:
    place = Place(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)})
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    if bad == "a link":
        place.chosen.symlink_to(target)
    else:
        place.chosen.mkdir()
        place.chosen.chmod(0o755)
    with pytest.raises(PermissionError, match="remove it"):
        place.folder("ledgers")


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
