"""What is typed into a task: frames in its FIFO, on a pipe and on a terminal."""

import signal
import stat

import pytest

from pliant.engines.local.standard_input import TaskInput
from tests.supervise.starter import Attempt, until


def test_standard_input_comes_in_frames_once_each_and_ends(attempt: Attempt) -> None:
    attempt.shell("read a; echo $a; wc -c; exec <&-; sleep 1000", "--stdin")
    fifo = attempt.path("input")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert TaskInput(attempt.folder).send(b"one\n", stream=7, at=0, end=False) == 4
    attempt.says("one\n")  # a writer that came and went is no end of the input
    data, at = b"x" * 300_000, 0
    while at < len(data):  # more than fits at once; each piece again, as after a lost answer
        for _ in range(2):
            taken = TaskInput(attempt.folder).send(data[at : at + 9000], stream=7, at=4 + at, end=False)
        at += taken
    for _ in range(2):
        until(lambda: TaskInput(attempt.folder).send(b"", stream=7, at=4 + at, end=True), "room for the end")
    attempt.says("300000")
    for at in range(5):  # nobody reads that: it stops neither
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
    assert TaskInput(attempt.folder).send(b"to cat\n", stream=2, at=0, end=True) == 8
    attempt.says("to cat")
    TaskInput(attempt.folder).send(b"\x03", stream=3, at=0, end=False)  # Ctrl-C
    assert attempt.wait()["signal"] == signal.SIGINT
