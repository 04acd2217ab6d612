"""The folder that a node's agent shares with pods."""

import os
from pathlib import Path

import pytest

from pliant.devices import ledger
from pliant.devices.config import GpuConf, Grant, parse, render
from pliant.devices.kept import INSIDE, Folder, bound, read

UUID = "GPU-00000000-0000-4000-8000-000000000001"


def conf(limit: int = 4096, epoch: int = 1, place: str = INSIDE) -> GpuConf:
    return GpuConf("w-a/worker-0/1", Path(place), (Grant(UUID, limit, limit),), epoch)


def test_a_pod_gets_its_limits_whole_and_a_change_replaces_the_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "kept")
    assert folder.claim()
    kept = folder.put("team_a", "uid-1", conf())
    place = tmp_path / "kept" / "team_a"
    file, inside = place / "conf" / "gpu.conf", place / "ledger"
    assert parse(file.read_text()) == conf() and kept.ledger == inside
    assert (inside.stat().st_mode & 0o777, (place / "conf").stat().st_mode & 0o022) == (0o666, 0)
    before = file.stat().st_ino
    folder.put("team_a", "uid-1", conf())
    assert file.stat().st_ino == before, "nothing has changed"
    inside.unlink()
    ledger.create(inside, "w-a/worker-0/1")
    folder.put("team_a", "uid-1", conf(2048, 2))
    assert parse(file.read_text()) == conf(2048, 2)
    assert inside.read_bytes()[24] == 2, "running programs are told"
    file.write_text("half")
    folder.put("team_a", "uid-1", conf(2048, 2))
    assert parse(file.read_text()) == conf(2048, 2), "it is put back"


def test_what_others_left_goes_and_what_is_kept_stays(tmp_path: Path) -> None:
    """As after a restart: an earlier agent of the node was killed in the middle of its work."""
    folder = Folder(tmp_path)
    folder.put("team_a", "uid-1", conf())
    (tmp_path / "team_a" / "ledger").write_text("in use")
    folder.put("team_b", "uid-2", conf())
    folder.put("team_c", "uid-3", conf())
    (tmp_path / ".new-team_d" / "conf").mkdir(parents=True)
    again = Folder(tmp_path)
    again.put("team_a", "uid-1", conf(2048, 2))
    again.sweep({"team_a": "uid-1", "team_b": "uid-9"})
    assert [each.name for each in tmp_path.iterdir()] == ["team_a"]
    assert (tmp_path / "team_a" / "ledger").read_text() == "in use"
    again.put("team_a", "uid-4", conf())
    assert (tmp_path / "team_a" / "ledger").read_text() == "", "a new pod of that name begins with nothing"


def test_one_agent_at_a_time(tmp_path: Path) -> None:
    first, second = Folder(tmp_path), Folder(tmp_path)
    assert first.claim() and first.claim() and not second.claim()


def test_where_nothing_can_be_written_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", Path("/proc/pliant-fractions")):
        with pytest.raises(ValueError, match=r"nothing can be written to .*Mount that folder .*as root"):
            Folder(path).claim()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not what was written"),
        ("limit=all", "not what was written"),
        (render(conf())[:-7], "cut short|not what was written"),
        (render(conf(0)), "a limit of 0 bytes"),
        (render(conf()).replace(UUID, "GPU-1"), "is not the UUID of a GPU"),
        (render(conf(place="/etc/passwd")), "its ledger is /etc/passwd, not /run/pliant/ledger"),
    ],
)
def test_an_annotation_that_is_broken(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(text)


def test_a_ledger_is_no_longer_than_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger.create(path, "w")
    assert not bound(path)
    os.truncate(path, ledger.SIZE + 1)
    assert bound(path) and path.stat().st_size == ledger.SIZE and not bound(path)
