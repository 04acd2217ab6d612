"""Commands inside a running task: on pipes, on a terminal, until they or the task end."""

import os
import signal

import pytest

from tests.engines.contract import A
from tests.engines.local_rig import LocalRig, kill, processes, until


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(tmp_path)
    rig.open()
    rig.run(A, rig.forever())
    yield rig
    rig.clean()


def execute(rig, *argv, tty=False, stdin=False):
    return rig.engine.exec(A, argv, tty=tty, stdin=stdin, rows=30, columns=90)


def output(session):
    seen = b""
    while (data := session.read(1.0)) != b"":
        seen += data or b""
    return seen.decode()


def said(session, wanted):
    """Reads until the output has that."""
    seen = ""
    while wanted not in seen:
        data = session.read(1.0)
        assert data != b"", f"it ended and said only {seen!r}"
        seen += (data or b"").decode()
    return seen


def test_it_sees_what_the_task_sees(rig):
    session = execute(rig, "sh", "-c", "echo $RUNAI_JOB_NAME $PLIANT_ATTEMPT; pwd; echo oops >&2; exit 3")
    assert output(session) == f"name-w-a {A}\n{rig.state}/checkpoints/w-a\noops\n"
    assert session.exit_code() == 3
    assert session.read(0) == b"", "its end is its end"


def test_who_closes_its_output_early_is_waited_for(rig):
    session = execute(rig, "sh", "-c", "echo up; exec > /dev/null 2>&1; read _; exit 4", stdin=True)
    assert said(session, "up\n") == "up\n"
    assert session.read(0.1) is None and session.exit_code() is None
    session.write(b"\n")
    assert output(session) == "" and session.exit_code() == 4


def test_a_signal_becomes_an_exit_code_as_in_shells(rig):
    session = execute(rig, "sh", "-c", "kill -TERM $$")
    assert output(session) == ""
    assert session.exit_code() == 128 + signal.SIGTERM


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [("no-such-command", 127, "No such file or directory"), ("/", 126, "Permission denied")],
)
def test_a_command_that_does_not_exist(rig, command, code, reason, tty):
    session = execute(rig, command, tty=tty)
    assert output(session).strip() == f"{command}: {reason}"
    assert session.exit_code() == code
    session.kill()


def test_input_on_pipes(rig):
    session = execute(rig, "cat", stdin=True)
    session.write(b"one\n")
    assert said(session, "one\n") == "one\n"
    assert session.read(0) is None and session.exit_code() is None
    session.write(b"two\n")
    session.close_stdin()
    assert output(session) == "two\n"
    assert session.exit_code() == 0
    session.write(b"too late\n")
    session.close_stdin()
    session.resize(10, 10)


def test_without_input_there_is_none(rig):
    session = execute(rig, "cat")
    session.write(b"nobody hears\n")
    assert output(session) == "" and session.exit_code() == 0


def test_a_terminal(rig):
    session = execute(rig, "sh", "-c", 'tty; stty size; echo "$TERM"; read x; stty size; exec cat', tty=True)
    first = said(session, "xterm-256color\r\n").split("\r\n")
    assert first[0].startswith("/dev/pts/") and first[1] == "30 90"
    session.resize(20, 70)
    session.write(b"\n")
    said(session, "20 70\r\n")
    session.write(b"typed\n")
    said(session, "typed\r\ntyped\r\n")
    session.close_stdin()
    assert output(session) == "" and session.exit_code() == 0


def test_ctrl_c_on_a_terminal(rig):
    session = execute(
        rig, "sh", "-c", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done", tty=True
    )
    said(session, "up\r\n")
    session.write(b"\x03")
    assert "caught" in output(session)
    assert session.exit_code() == 9


@pytest.mark.parametrize("tty", [False, True])
def test_it_ends_with_the_task(rig, tty):
    session = execute(rig, "sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 1000; done", tty=tty)
    said(session, "up")
    until(lambda: len(processes(rig.state, A)) >= 3, "the supervisor, the task and the command")
    rig.stop(A)
    assert rig.end(A).stopped  # the rig checks that nothing lives when it is said
    assert processes(rig.state, A) == []
    assert output(session) == "" and session.exit_code() == 128 + signal.SIGKILL


def test_what_it_leaves_behind_ends_with_the_task(rig):
    session = execute(rig, "sh", "-c", "setsid sleep 1000 & echo left")
    assert output(session) == "left\n", "nobody waits for what keeps the stream open"
    assert session.exit_code() == 0
    until(lambda: len(processes(rig.state, A)) == 3, "the supervisor, the task and what was left")
    rig.stop(A)
    rig.end(A)
    assert processes(rig.state, A) == []


def test_kill_ends_its_whole_group(rig):
    session = execute(rig, "sh", "-c", "sleep 1000 & echo up; wait")
    said(session, "up\n")
    until(lambda: len(processes(rig.state, A)) == 4, "all of its group")
    session.kill()
    until(lambda: len(processes(rig.state, A)) == 2, "supervisor and task remain")
    assert session.read(1.0) == b""
    session.kill()


def test_a_closed_engine_takes_its_sessions_with_it(rig):
    session = execute(rig, "sh", "-c", "echo up; exec sleep 1000")
    said(session, "up\n")
    rig.drop()
    assert session.read(0) == b""
    until(lambda: len(processes(rig.state, A)) == 2, "supervisor and task remain")
    rig.open()


def test_sessions_leave_no_descriptors_and_no_zombies(rig):
    output(execute(rig, "true"))
    before = len(os.listdir("/proc/self/fd"))
    for tty in (False, True):
        session = execute(rig, "sh", "-c", "echo up; exit 5", tty=tty, stdin=True)
        assert "up" in output(session) and session.exit_code() == 5
        session = execute(rig, "sleep", "1000", tty=tty)
        kill(session.pid)
        until(lambda session=session: session.exit_code() is not None, "it is reaped")
        session.kill()
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, "all are closed")


def test_no_command_is_an_error(rig):
    with pytest.raises(ValueError, match="exec needs a command"):
        execute(rig)


def test_a_working_folder_that_is_gone_is_an_error(rig):
    (rig.state / "checkpoints" / "w-a").rmdir()
    with pytest.raises(ValueError, match=r"working folder .* is gone"):
        execute(rig, "true")
