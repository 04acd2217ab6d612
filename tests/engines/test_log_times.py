"""The time of each line of a log, for logs that grow, rotate, are truncated and incomplete."""

import os

import pytest

from pliant.control.clock import stamp
from pliant.engines.local.folder import log_times, logs
from pliant.engines.local.folder.layout import Folder

WORD = log_times.WORD
T = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def mark(offset, ms):
    return offset.to_bytes(8, "little") + (T + ms).to_bytes(8, "little")


def put(folder, text, *marks, name="log", extra=b"", inode=None):
    """Writes a log and its supervisor's marks: pairs (offset, ms after T)."""
    (folder / name).write_text(text)
    header = WORD + (inode or (folder / name).stat().st_ino).to_bytes(8, "little")
    times = name.replace("log", "log-times")
    (folder / times).write_bytes(header + b"".join(mark(*it) for it in marks) + extra)


def read(folder, *, tail=None, since=None, timestamps=True):
    moment = None if since is None else T + since
    found = logs.read(
        folder, follow=False, tail=tail, since=moment, ended=lambda: True, timestamps=timestamps
    )
    return b"".join(found).decode()


def lines(*pairs):
    return "".join(f"{'-' if ms is None else stamp(T + ms)} {text}\n" for ms, text in pairs)


def test_a_line_has_the_time_at_which_it_began(folder):
    put(folder, "one\ntwo\nthree\n", (0, 5), (4, 1234), (8, 60_000))
    assert read(folder) == lines((5, "one"), (1234, "two"), (60_000, "three"))
    assert read(folder).startswith("2023-11-14T22:13:20.005Z one\n2023-11-14T22:13:21.234Z two\n")
    assert read(folder, tail=2) == lines((1234, "two"), (60_000, "three"))
    assert read(folder, timestamps=False) == "one\ntwo\nthree\n"


def test_lines_of_one_write_have_its_time(folder):
    put(folder, "a\nb\nc\nlater\n", (0, 1), (6, 2))
    assert read(folder) == lines((1, "a"), (1, "b"), (1, "c"), (2, "later"))


def test_since_begins_with_a_whole_line(folder):
    put(folder, "old\nhalf of a line\nnew\nnewest\n", (0, 0), (9, 1000), (23, 2000))
    assert read(folder, since=-5) == lines((0, "old"), (0, "half of a line"), (1000, "new"), (2000, "newest"))
    assert read(folder, since=500, timestamps=False) == "new\nnewest\n"
    assert read(folder, since=1500) == lines((2000, "newest"))
    assert read(folder, since=500, tail=1) == lines((2000, "newest"))
    assert read(folder, since=2001) == ""


def test_rotated_files_have_their_own_times(folder):
    put(folder, "1\n", (0, 1), name="log.2")
    put(folder, "2\nhal", (0, 2), (2, 3), name="log.1")
    put(folder, "f\n4\n", (2, 4))
    assert read(folder) == lines((1, "1"), (2, "2"), (3, "half"), (4, "4"))
    assert read(folder, tail=2) == lines((3, "half"), (4, "4"))


def test_marks_of_another_file_are_not_taken(folder):
    """The log is rotated but not its marks, as when the supervisor is killed in between."""
    put(folder, "1\n", (0, 1), name="log.1")
    (folder / "log-times.1").rename(folder / "log-times")
    (folder / "log").write_text("2\n")
    assert read(folder) == lines((1, "1"), (None, "2"))


def test_a_torn_last_mark_is_none(folder):
    for torn in range(1, 16):
        put(folder, "one\ntwo\n", (0, 1), extra=mark(4, 2)[:torn])
        assert read(folder) == lines((1, "one"), (1, "two"))


def test_a_mark_past_the_end_changes_nothing(folder):
    put(folder, "one\ntwo\n", (0, 1), (4, 2), (8, 3), (2**40, 4))
    assert read(folder) == lines((1, "one"), (2, "two"))
    assert read(folder, since=3) == ""


def test_bytes_that_were_refused_and_came_later_have_the_later_time(folder):
    put(folder, "one\ntwo\n", (0, 1), (4, 2), (4, 3))
    assert read(folder) == lines((1, "one"), (3, "two"))


def test_a_log_that_was_cut_short(folder):
    """Later output begins at lower offsets again."""
    put(folder, "new\nnewer\n", (0, 1), (4, 2), (1000, 3), (0, 4), (4, 5))
    assert read(folder) == lines((4, "new"), (5, "newer"))
    put(folder, "one\n", (0, 1), (4, 2), (8, 3))
    assert read(folder) == lines((1, "one"))


@pytest.mark.parametrize("content", [b"", b"PLTIM", b"\xff" * 160, WORD, bytes(range(256)) * 6])
def test_marks_that_are_none(folder, content):
    put(folder, "one\n")
    (folder / "log-times").write_bytes(content)
    assert read(folder) == lines((None, "one"))
    assert read(folder, since=0) == lines((None, "one"))


def test_a_time_that_no_calendar_has(folder):
    put(folder, "one\ntwo\n", (0, 2**63), (4, 1))
    assert read(folder) == lines((None, "one"), (1, "two"))


def test_a_fifo_in_the_place_of_the_marks(folder):
    put(folder, "one\n")
    (folder / "log-times").unlink()
    os.mkfifo(folder / "log-times")
    assert read(folder) == lines((None, "one"))


def test_following_a_log_that_grows_rotates_and_starts_again(folder, monkeypatch):
    monkeypatch.setattr(logs, "POLL", 0.001)
    put(folder, "1\nhal", (0, 1), (2, 2))
    ended = []
    stream = logs.read(folder, follow=True, tail=None, since=None, ended=lambda: bool(ended), timestamps=True)

    def text(wanted):
        seen = ""
        while len(seen) < len(wanted):
            seen += next(stream).decode()
        return seen

    wanted = lines((1, "1"), (2, "half"))[:-2]
    assert text(wanted) == wanted
    with (folder / "log-times").open("ab") as times, (folder / "log").open("ab") as log:
        times.write(mark(7, 3))
        times.flush()
        log.write(b"f\n3\n")
    assert text("f\n" + lines((3, "3"))) == "f\n" + lines((3, "3"))
    (folder / "log").rename(folder / "log.1")
    (folder / "log-times").rename(folder / "log-times.1")
    put(folder, "4\n", (0, 4))
    assert text(lines((4, "4"))) == lines((4, "4"))
    ended.append(True)
    assert b"".join(stream) == b""


def test_an_older_release_noted_no_times(folder):
    assert log_times.timed(folder)  # no output yet
    (folder / "log").write_text("one\n")
    assert not log_times.timed(folder)
    put(folder, "one\n")
    assert log_times.timed(folder)
