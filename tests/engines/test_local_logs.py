"""Reads logs while they grow, rotate and end."""

import os
from contextlib import suppress

import pytest

from pliant.engines.local.folder import logs
from pliant.engines.local.folder.layout import Folder
from pliant.model.workload import AttemptId
from tests.engines.contract import A
from tests.engines.local_rig import LocalRig, until


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def put(folder, name, text, at=None):
    (folder / name).write_text(text)
    if at is not None:
        os.utime(folder / name, ns=(at * 1_000_000, at * 1_000_000))


def read(folder, *, tail=None, since=None):
    return b"".join(logs.read(folder, follow=False, tail=tail, since=since, ended=lambda: True)).decode()


def test_oldest_first(folder):
    put(folder, "log.10", "0\n")
    put(folder, "log.2", "1\n")
    put(folder, "log.1", "2\n")
    put(folder, "log", "3\n4")
    put(folder, "log.gz", "no log of ours")
    assert read(folder) == "0\n1\n2\n3\n4"
    assert read(folder, tail=3) == "2\n3\n4"
    assert read(folder, tail=100) == "0\n1\n2\n3\n4"
    assert read(folder, tail=0) == ""


def test_a_line_that_a_rotation_cut_is_one_line(folder):
    put(folder, "log.1", "a\nlong ")
    put(folder, "log", "line\nb\n")
    assert read(folder, tail=2) == "long line\nb\n"


def test_since_leaves_out_what_was_not_written_to(folder):
    put(folder, "log.2", "old\n", at=1000)
    put(folder, "log.1", "middle\n", at=2000)
    put(folder, "log", "new\n", at=3000)
    assert read(folder, since=1500) == "middle\nnew\n"
    assert read(folder, since=2500, tail=5) == "new\n"
    assert read(folder, since=3500) == ""


def test_no_log_is_no_output(folder):
    assert read(folder) == ""


def test_follow_across_rotations(folder, monkeypatch):
    monkeypatch.setattr(logs, "POLL", 0.001)
    ended = []
    stream = logs.read(folder, follow=True, tail=None, since=None, ended=lambda: bool(ended))

    def text(wanted):
        seen = b""
        while len(seen) < len(wanted):
            seen += next(stream)
        return seen.decode()

    assert next(stream) == b""
    put(folder, "log", "1\n")
    assert text("1\n") == "1\n"
    assert next(stream) == b""
    with open(folder / "log", "a") as log:
        log.write("2\n")
    (folder / "log").rename(folder / "log.1")
    put(folder, "log", "3\n")
    assert text("2\n3\n") == "2\n3\n"
    for number in (2, 1):  # twice before the next look
        (folder / "log.1").rename(folder / f"log.{number + 1}")
        (folder / "log").rename(folder / "log.1")
        put(folder, "log", f"{6 - number}\n")
    assert text("4\n5\n") == "4\n5\n"
    with open(folder / "log", "a") as log:
        log.write("6\n")
    ended.append(True)
    assert b"".join(stream) == b"6\n"


def test_follow_a_log_that_starts_again(folder, monkeypatch):
    monkeypatch.setattr(logs, "POLL", 0.001)
    put(folder, "log", "a long line\n")
    stream = logs.read(folder, follow=True, tail=None, since=None, ended=lambda: False)
    assert next(stream) == b"a long line\n" and next(stream) == b""
    put(folder, "log", "short\n")
    assert next(stream) == b"short\n"
    stream.close()


def test_a_stream_that_is_dropped_leaves_no_descriptor(folder):
    put(folder, "log.1", "1\n")
    put(folder, "log", "2\n")
    stream = logs.read(folder, follow=True, tail=None, since=None, ended=lambda: False)
    assert next(stream) == b"1\n" and open_in(folder)
    stream.close()
    stream = logs.read(folder, follow=True, tail=1, since=None, ended=lambda: False)
    assert next(stream) == b"2\n" and next(stream) == b""
    stream.close()
    assert open_in(folder) == []


def open_in(folder):
    """Our open descriptors of files there; other threads may open and close files meanwhile."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if path.startswith(str(folder.path))]


def test_a_chatty_task_rotates_and_nothing_is_read_twice(tmp_path):
    rig = LocalRig(tmp_path, log_max=2000, log_keep=2)
    rig.open()
    try:
        rig.start(A, rig.shell('for i in $(seq 1 1000); do echo "line $i"; done'))
        assert rig.end(A).succeeded
        lines = rig.log(A).splitlines()
        numbers = [int(line.split()[1]) for line in lines]
        assert numbers == list(range(numbers[0], 1001)) and 300 < len(numbers) < 700
        assert rig.log(A, tail=2) == "line 999\nline 1000\n"
    finally:
        rig.clean()


def test_logs_of_what_ended_are_kept_and_followed_to_their_end(tmp_path):
    rig = LocalRig(tmp_path)
    rig.open()
    try:
        rig.start(A, rig.shell("echo first; exit 1"))
        rig.end(A)
        again = AttemptId(A.workload, A.task, 2)
        rig.start(again, rig.shell("echo second"))
        rig.end(again)
        rig.drop()
        rig.open(known=False)
        assert rig.log(A, follow=True) == "first\n"
        assert rig.log(again) == "second\n"
    finally:
        rig.clean()


def test_a_followed_log_ends_when_its_workload_is_forgotten(tmp_path):
    """The files are removed while the follower sleeps between two looks."""
    rig = LocalRig(tmp_path)
    rig.open()
    try:
        row = rig.start(A, rig.shell("echo first; sleep 1000")).workload
        until(lambda: rig.log(A), "its output")
        stream = rig.engine.logs(A, follow=True, tail=None, since=None)
        assert [next(stream), next(stream)] == [b"first\n", b""]
        rig.stop(A)
        rig.end(A)
        rig.engine.forget(row)
        assert b"".join(stream) == b""
    finally:
        rig.clean()
