"""A task's input: frames in its FIFO, for a pipe and for a terminal."""

import os
import signal
import stat
from pathlib import Path

import pytest

from pliant.engines.local.launch.standard_input import FRAME, TaskInput
from tests.supervise.starter import Attempt, until


def test_standard_input_comes_in_frames_once_each_and_ends(attempt: Attempt) -> None:
    attempt.shell("read a; echo $a; wc -c; exec <&-; sleep 1000", "--stdin")
    fifo = attempt.path("input")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert TaskInput(attempt.folder).send(b"one\n", stream=7, at=0, end=False) == 4
    attempt.says("one\n")  # the input goes on after a writer has closed
    data, at = b"x" * 300_000, 0
    while at < len(data):  # more than fits at once; each piece twice, as after a lost answer
        for _ in range(2):
            taken = TaskInput(attempt.folder).send(data[at : at + 9000], stream=7, at=4 + at, end=False)
        at += taken
    for _ in range(2):
        until(lambda: TaskInput(attempt.folder).send(b"", stream=7, at=4 + at, end=True), "room for the end")
    attempt.says("300000")
    for at in range(5):  # without a reader: it blocks neither
        TaskInput(attempt.folder).send(b"z" * 60_000, stream=8, at=at * 60_000, end=False)
    attempt.stop()
    assert attempt.wait()["signal"] == signal.SIGTERM
    assert not fifo.exists()
    with pytest.raises(ValueError, match="it has ended"):
        TaskInput(attempt.folder).send(b"late", stream=7, at=0, end=False)


def test_a_terminal_with_input(attempt: Attempt) -> None:
    script = "test -t 0 && stty -echo && echo go && read a && echo got $a && stty size && cat && read b"
    attempt.shell(script, "--tty", "--stdin")
    attempt.says("go")
    TaskInput(attempt.folder).resize(50, 132)
    line = b"x" * 3000 + b"\n"
    assert TaskInput(attempt.folder).send(line, stream=1, at=0, end=False) == len(line)
    attempt.says("got " + "x" * 3000)
    attempt.says("50 132")
    for _ in range(2):  # the end also counts once: a second one would end `read b`
        assert TaskInput(attempt.folder).send(b"to cat\n", stream=2, at=0, end=True) == 8
    attempt.says("to cat")
    TaskInput(attempt.folder).send(b"\x03", stream=3, at=0, end=False)  # Ctrl-C
    assert attempt.wait()["signal"] == signal.SIGINT


def test_what_a_task_with_closed_input_does_not_read_is_thrown_away(attempt: Attempt) -> None:
    """Its senders finish, and the supervisor does not retry for ever."""
    attempt.shell("exec <&-; echo closed; sleep 1000", "--stdin")
    attempt.says("closed\n")
    at = 0
    while at < 300_000:
        at += TaskInput(attempt.folder).send(b"z" * min(60_000, 300_000 - at), stream=8, at=at, end=False)
    attempt.stop()
    assert attempt.wait()["signal"] == signal.SIGTERM


def test_what_is_no_frame_harms_the_task_and_nothing_else(attempt: Attempt) -> None:
    """Any process of the account can write into the FIFO: more data than a frame may have, half a frame, an
    unknown kind."""
    attempt.shell("cat >/dev/null; sleep 1000", "--stdin")
    writing = os.open(attempt.path("input"), os.O_WRONLY)
    for kind, said, data in ((b"D", 60_000, b"x" * 60_000), (b"?", 10, b"0123456789"), (b"D", 4000, b"few")):
        os.write(writing, FRAME.pack(kind, said, 1, 0) + data)
    os.write(writing, b"half")
    os.close(writing)
    attempt.stop()
    assert attempt.wait()["signal"] == signal.SIGTERM


@pytest.mark.parametrize("other", ["file", "link"])
def test_what_was_put_in_the_place_of_the_input_gets_nothing(tmp_path: Path, other: str) -> None:
    target = tmp_path / "target"
    if other == "file":
        (tmp_path / "input").write_bytes(b"")
    else:
        os.mkfifo(target)
        (tmp_path / "input").symlink_to(target)
        reading = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ValueError, match="something else was put" if other == "file" else "it has ended"):
        TaskInput(tmp_path).send(b"secret", stream=1, at=0, end=False)
    if other == "file":
        assert (tmp_path / "input").read_bytes() == b""
    else:
        assert os.read(reading, 100) == b""
        os.close(reading)
