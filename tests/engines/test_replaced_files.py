"""A job replaces a file that the server reads: the server reads no other file, and does not hang."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.engines.local.folder import logs
from pliant.engines.local.folder.layout import Folder, read_json
from pliant.engines.local.folder.regular import MOST, Odd, open_regular, read_regular

SECRET = b"a line of somebody else"


def fifo(path: Path, other: Path) -> None:
    os.mkfifo(path)


def link(path: Path, other: Path) -> None:
    path.symlink_to(other)


def hard_link(path: Path, other: Path) -> None:
    path.hardlink_to(other)


def folder(path: Path, other: Path) -> None:
    path.mkdir()


def zero(path: Path, other: Path) -> None:
    path.symlink_to("/dev/zero")


def device(path: Path, other: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # as /dev/zero
    except PermissionError:
        zero(path, other)


KINDS = [fifo, link, hard_link, folder, zero, device]


@pytest.fixture
def other(tmp_path: Path) -> Path:
    made = tmp_path / "other"
    made.write_bytes(SECRET + b"\n")
    return made


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    made = tmp_path / "attempt"
    made.mkdir()
    (made / "claim").touch()
    return Folder(made)


def shown(place: Folder, *, follow: bool = False, tail: int | None = None) -> bytes:
    return b"".join(logs.read(place, follow=follow, tail=tail, since=None, ended=lambda: True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("follow", "tail"), [(False, None), (False, 5), (True, None)])
def test_in_the_place_of_a_log(
    place: Folder, other: Path, kind: Callable[[Path, Path], None], follow: bool, tail: int | None
) -> None:
    kind(place / "log", other)
    said = shown(place, follow=follow, tail=tail)
    assert said.startswith(b"pliant: this log is not shown: ") and SECRET not in said
    assert len(said.splitlines()) == 1
    assert logs.last_said(place, "a line") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_place_of_an_older_log(place: Folder, other: Path, kind: Callable[[Path, Path], None]) -> None:
    kind(place / "log.1", other)
    (place / "log").write_text("mine\n")
    assert shown(place) == b"mine\n"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["exit.json", "lock", "claim", "agent.json", "allocation.json"])
def test_in_the_place_of_a_document(
    place: Folder,
    other: Path,
    kind: Callable[[Path, Path], None],
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other.write_text(json.dumps({"pid": 1, "start": 1, "ended_ms": 1, "code": 0, "signal": None}))
    (place / name).unlink(missing_ok=True)
    kind(place / name, other)
    assert read_json(place / name) is None
    assert f"not read: {place / name}" in caplog.text
    assert place.read_exit() is None and place.holder() is None and not place.locked()


@pytest.mark.parametrize("name", ["exit.json", "lock", "order.json"])
def test_in_the_place_of_the_folder(place: Folder, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (place / "claim").unlink()
    place.path.rmdir()
    place.path.write_text("")
    assert read_json(place / name) is None and f"not read: {place / name}" in caplog.text
    assert place.read_exit() is None and place.holder() is None and not place.locked()


def test_ten_gigabytes_of_nothing(place: Folder) -> None:
    for name in ("exit.json", "log"):
        with open(place / name, "wb") as file:
            file.truncate(10 * 2**30)
    assert place.read_exit() is None
    with pytest.raises(Odd, match="more than"):
        read_regular(place / "exit.json")
    most = 0
    for piece in logs.read(place, follow=False, tail=None, since=None, ended=lambda: True):
        most += len(piece)
    assert most == logs.MOST
    assert sum(map(len, logs.read(place, follow=False, tail=1, since=None, ended=lambda: True))) <= logs.MOST


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "null",
        '{"ended_ms": "x", "code": 0, "signal": null}',
        "[" * 100_000,
        '{"ended_ms": 1, "code": []}',
        '{"ended_ms": -1, "code": 0, "signal": null}',
    ],
)
def test_a_record_of_an_end_that_a_job_wrote(place: Folder, text: str) -> None:
    (place / "exit.json").write_text(text)
    assert place.read_exit() is None


def test_an_error_that_is_no_text_can_be_sent(place: Folder) -> None:
    (place / "exit.json").write_text('{"ended_ms": 1, "code": 126, "signal": null, "error": "exec \\ud800"}')
    end = place.read_exit()
    assert end is not None and end.error == "exec ?"


def test_a_file_of_this_account_is_read(place: Folder) -> None:
    (place / "claim").write_bytes(b"x" * 70_000)
    assert read_regular(place / "claim") == b"x" * 70_000
    os.close(open_regular(place / "claim"))
    assert MOST > 70_000


def test_a_file_of_another_account(place: Folder) -> None:
    if os.geteuid() == 0:
        (place / "log").write_bytes(SECRET)
        os.chown(place / "log", 4711, 4711)
        assert SECRET not in shown(place)
