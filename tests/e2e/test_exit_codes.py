"""Exit codes of run, wait, attach, logs -f and submit --attach, and keys while a job is followed."""

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.walkthrough import Stage
from tests.e2e.witness import client, statuses, until

ENDS = {
    "true": 0,
    "exit 3": 3,
    "exit 7": 7,
    "exit 127": 127,
    "kill -9 $$": 137,
    "kill -15 $$": 143,
}
"""A job's script -> the exit code of every command that waits for it."""


def submitted(shared: Stage, name: str, script: str, more: str = "") -> None:
    done = shared.run(
        f"pliant submit {name} -i ubuntu --backoff-limit 0 {more} --command -- bash -c '{script}'"
    )
    assert done.code == 0, done.said


@pytest.mark.parametrize(("script", "code"), ENDS.items())
def test_all_that_wait_return_the_code_of_the_job(shared: Stage, script: str, code: int) -> None:
    name = f"end-{code}"
    submitted(shared, name, f"echo from the job; {script}")
    found = {
        command: shared.run(f"pliant {command}")
        for command in (f"wait {name}", f"logs -f {name}", f"attach {name}")
    }
    again = f"pliant submit {name}-a -i ubuntu --backoff-limit 0 --attach --command -- bash -c '{script}'"
    found["submit --attach"] = shared.run(again)
    found["submit --wait"] = shared.run(again.replace("-a -i", "-w -i").replace("--attach", "--wait"))
    found["run"] = shared.run(f"pliant run --name {name}-r -i ubuntu --command -- bash -c '{script}'")
    assert {command: done.code for command, done in found.items()} == dict.fromkeys(found, code)
    assert found[f"logs -f {name}"].out == found[f"attach {name}"].out == "from the job\n"


def test_wait_tells_how_each_ended(shared: Stage) -> None:
    submitted(shared, "well", "true")
    submitted(shared, "badly", "exit 3")
    done = shared.run("pliant wait well badly")
    assert (done.code, sorted(done.out.splitlines())) == (3, ["badly failed (exit code 3)", "well succeeded"])
    assert shared.run("pliant wait badly --for succeeded").code == 3, "it can succeed no more"
    assert shared.run("pliant wait well --for=condition=complete").code == 0
    assert shared.run("pliant wait nowhere").code == 125
    assert shared.run("pliant wait well --for sleeping").code == 125


def test_a_wait_ends_in_time_or_with_the_state(shared: Stage) -> None:
    submitted(shared, "endless", "sleep infinity")
    assert shared.run("pliant wait endless --for running").out == "endless is running\n"
    late = shared.run("pliant wait endless --timeout 1s")
    assert (late.code, late.said) == (124, "Error: timed out after 1s; still waiting for endless.\n")
    cancelled = shared.run("pliant cancel endless")
    assert (cancelled.code, cancelled.out) == (0, "endless is being cancelled.\n")
    over = shared.run("pliant wait endless")
    assert (over.code, over.out) == (143, "endless was cancelled\n")
    assert shared.run("pliant cancel endless").out == "endless had already been cancelled.\n"
    assert shared.run("pliant logs endless").code == 0, "its log stays"
    with client(shared) as api:
        item = next(item for item in api.workloads("team-a") if item["name"] == "endless")
    assert item["phaseMessage"].startswith("Cancelled by ")
    assert (item["phase"], item["status"]) == ("Failed", "Cancelled")


def test_a_job_that_is_deleted_while_it_is_awaited(shared: Stage) -> None:
    submitted(shared, "over", "true")
    submitted(shared, "leaving", "sleep infinity")
    with subprocess.Popen(
        ["bash", "-c", "exec pliant wait over leaving"], env=shared.env, stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "over succeeded\n"  # so it knows the other one, too
        assert shared.run("pliant delete leaving").code == 0
        assert waiting.stdout.read() == "leaving was deleted\n"
    assert waiting.returncode == 143
    assert shared.run("pliant cancel leaving").code == 3


def test_every_attempt_is_in_the_history(shared: Stage) -> None:
    assert shared.run("pliant submit tries --backoff-limit 1 -- sh -c 'exit 3'").code == 0
    assert shared.run("pliant wait tries").code == 3
    told = json.loads(shared.run("pliant history tries --attempts -o json").out)
    [entry] = told
    assert [(one["attempt"], one["exitCode"]) for one in entry["tries"]] == [(1, 3), (2, 3)]
    assert all(one["startedAt"] <= one["endedAt"] for one in entry["tries"])
    table = shared.run("pliant history tries --attempts").out.splitlines()
    assert len(table) == 3 and table[0].split()[:4] == ["#", "NAME", "TASK", "ATTEMPT"]


def test_every_retry_is_announced(shared: Stage) -> None:
    script = (
        'test -e "$PLIANT_CHECKPOINT_DIR/second" && exit 4; touch "$PLIANT_CHECKPOINT_DIR/second"; kill -9 $$'
    )
    failed = "attempt 1 failed (task-0 was killed by SIGKILL). Retry 1 of 1 starts in "
    done = shared.run(f"pliant submit twice -i ubuntu --backoff-limit 1 --command -- bash -c '{script}'")
    assert done.code == 0, done.said
    followed = shared.run("pliant logs -f twice")
    assert followed.code == 4
    assert f"-- twice: {failed}" in followed.said
    attached = shared.run(f"pliant submit again --backoff-limit 1 --attach -- bash -c '{script}'")
    assert attached.code == 4, "attached before its first attempt, or between both"
    assert f"-- again: {failed}" in attached.said


def test_a_pause_after_a_success_is_announced_as_no_failure(shared: Stage) -> None:
    script = 'test -e "$PLIANT_CHECKPOINT_DIR/second" && exit 4; touch "$PLIANT_CHECKPOINT_DIR/second"'
    always = "--restart-policy Always --backoff-limit 0"
    done = shared.run(f"pliant training submit always -i ubuntu {always} --command -- bash -c '{script}'")
    assert done.code == 0, done.said
    followed = shared.run("pliant logs -f always")
    assert followed.code == 4, followed.said
    said = "attempt 1 ended (task-0 ended with exit code 0). The next attempt starts in "
    assert f"-- always: {said}" in followed.said


# -- keys ------------------------------------------------------------------------------------------


class Terminal:
    """A command, such as `pliant run`, on a terminal of its own."""

    def __init__(self, shared: Stage, line: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # nohup may have run the tests
                signal.signal(number, signal.SIG_DFL)
            os.execvpe("bash", ["bash", "-c", line], shared.env)
        self.said = ""

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def hang_up(self) -> None:
        os.close(self._fd)

    def reads(self, text: str, times: int = 1, *, or_else: str = "", deadline: float = 120) -> None:
        end = time.monotonic() + deadline
        while self.said.count(text) < times and not (or_else and or_else in self.said):
            assert time.monotonic() < end, f"waited for {text!r} in {self.said!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self.said += os.read(self._fd, 65536).decode(errors="replace")

    def answers(self, command: str, text: str) -> bool:
        """True if this output comes within a second."""
        self.type(f"{command}\r")
        end = time.monotonic() + 1
        while text not in self.said and time.monotonic() < end:
            if select.select([self._fd], [], [], 0.1)[0]:
                self.said += os.read(self._fd, 65536).decode(errors="replace")
        return text in self.said

    def code(self) -> int:
        def ended() -> int | None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) + 1000 if pid else None

        return until(ended, "pliant run to end") - 1000


@contextmanager
def followed(shared: Stage, name: str) -> Iterator[Terminal]:
    line = f"exec pliant run --name {name} -i ubuntu --command -- bash -c 'echo ready; sleep infinity'"
    terminal = Terminal(shared, line)
    terminal.reads("ready")
    try:
        yield terminal
    finally:
        shared.run(f"pliant cancel {name} --now")


def phase(shared: Stage, name: str) -> str:
    with client(shared) as api:
        return str(api.find(name, "team-a")["phase"])


def test_ctrl_c_twice_cancels(shared: Stage) -> None:
    with followed(shared, "twice-c") as terminal:
        terminal.type("\x03")
        again = "Ctrl-C again within 2s cancels it"
        terminal.reads(again)
        assert phase(shared, "twice-c") == "Running"
        while "Cancelling twice-c." not in terminal.said:  # on a busy machine the 2 s may be over by now
            asked = terminal.said.count(again)
            terminal.type("\x03")
            terminal.reads(again, asked + 1, or_else="Cancelling twice-c.")
        terminal.reads("was cancelled after")
        assert terminal.code() == 143
        assert phase(shared, "twice-c") == "Failed"
        assert not processes(shared, "twice-c")


@pytest.mark.parametrize(("name", "leave"), [("quit", lambda it: it.type("\x1c")), ("hup", Terminal.hang_up)])
def test_the_job_goes_on_without_its_terminal(
    shared: Stage, name: str, leave: Callable[[Terminal], None]
) -> None:
    with followed(shared, f"left-{name}") as terminal:
        assert "If this terminal goes away, it keeps running." in terminal.said
        leave(terminal)
        assert terminal.code() == 130
        assert phase(shared, f"left-{name}") == "Running"


def test_the_end_of_run_by_kill_cancels(shared: Stage) -> None:
    with followed(shared, "termed") as terminal:
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.code() == 143
        assert phase(shared, "termed") == "Failed"


def processes(shared: Stage, name: str) -> list[Path]:
    """Pids of the processes of the attempts of the workload of that name, from /proc."""
    with client(shared) as api:
        mark = f"PLIANT_ATTEMPT={api.find(name, 'team-a')['id']}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes():
                found.append(entry.parent)
        except OSError:
            continue  # it ended while we looked, or is another user's
    return found


def test_a_signal_alone_ends_nothing(shared: Stage) -> None:
    """Every process of the job gets the signal, even one in a session of its own."""
    script = (
        'trap "echo main" USR1; setsid bash -c "trap \\"echo other\\" USR1; echo up; '
        'while :; do sleep 0.1; done" & echo up; while :; do sleep 0.1; done'
    )
    done = shared.run(f"pliant submit hears -- bash -c {shlex.quote(script)}")
    assert done.code == 0, done.said
    until(lambda: shared.run("pliant logs hears").out.count("up") == 2, "both listen")
    assert shared.run("pliant cancel hears --signal USR1").out == "hears got SIGUSR1.\n"
    until(lambda: {"main", "other"} <= set(shared.run("pliant logs hears").out.split()), "both heard it")
    assert statuses(shared)["hears"] == "Running"
    assert "sent SIGUSR1 to hears" in shared.run("pliant describe job hears").out
    assert shared.run("pliant cancel hears --signal NO").code == 2
    assert shared.run("pliant cancel hears --signal USR1 --now").code == 2
    assert shared.run("pliant cancel hears --now").code == 0
    assert shared.run("pliant wait hears").code == 143
    assert shared.run("pliant cancel hears --signal USR1").code == 5


# -- standard input --------------------------------------------------------------------------------


def test_a_job_reads_nothing_unless_it_is_told_to(shared: Stage) -> None:
    done = shared.run("echo lost | pliant run -- sh -c 'cat; echo over'")
    assert (done.code, done.out) == (0, "over\n"), done.said
    done = shared.run("echo lost | pliant submit --attach -- sh -c 'cat; echo over'")
    assert (done.code, done.out.splitlines()[-1]) == (0, "over"), done.said
    assert "lost" not in done.out


def test_what_is_piped_into_run_arrives_whole_over_a_restart_of_the_server(shared: Stage) -> None:
    """More input than its FIFO holds, from a writer that is slower than the server's restart."""
    line = "(seq 100000; sleep 1; seq 100001 300000) | pliant run piped --stdin -- sh -c 'sleep 1; sha256sum'"
    with subprocess.Popen(["bash", "-c", line], env=shared.env, stdout=subprocess.PIPE, text=True) as running:
        until(lambda: statuses(shared).get("piped") == "Running", "it runs")
        assert shared.run("pliant restart").code == 0
        out, _ = running.communicate(timeout=240)
    expected = shared.run("seq 300000 | sha256sum").out
    assert (running.returncode, out) == (0, expected)


def test_a_terminal_of_the_job(shared: Stage) -> None:
    script = "stty -echo; echo ready; while read a; do eval $a; done; exit 4"
    terminal = Terminal(shared, f"exec pliant run term --stdin -t -- bash -c '{script}'")
    terminal.reads("ready")
    assert "`~.` at the start of a line detaches" in terminal.said
    terminal.resize(33, 111)
    until(lambda: terminal.answers("stty size", "33 111"), "the new size has arrived")
    terminal.type("echo =$((6*7))=\r")
    terminal.reads("=42=")
    terminal.type("trap 'echo caught' INT; echo $((10+1))th\r")
    terminal.reads("11th")  # unread input before Ctrl-C is lost, as on any terminal
    terminal.type("\x03")
    terminal.reads("caught")
    terminal.type("\x04")
    assert terminal.code() == 4


def test_a_terminal_is_left_and_taken_up_again(shared: Stage) -> None:
    terminal = Terminal(
        shared, "exec pliant run left --stdin -t -- bash -c 'echo ready; read a; echo got $a'"
    )
    terminal.reads("ready")
    terminal.type("~.")
    assert terminal.code() == 130
    terminal.reads("left keeps running. Follow it with: pliant attach -it left")
    again = Terminal(shared, "exec pliant attach -it left")
    again.reads("ready")
    again.type("~~word\r")
    again.reads("got ~word")
    assert again.code() == 0


def test_input_for_a_job_that_takes_none(shared: Stage) -> None:
    submitted(shared, "deaf", "sleep infinity")
    shared.run("pliant wait deaf --for running")
    done = shared.run("(echo x; sleep 3; pliant cancel deaf --now) | pliant attach -i deaf")
    assert "Input is no longer sent: deaf takes no input: it was submitted without --stdin." in done.err
    assert done.code == 143
    assert shared.run("pliant run -t -- true").code == 125
