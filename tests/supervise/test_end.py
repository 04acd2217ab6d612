"""How attempts end: exit codes, signals, refusals of exec, stops, and what the task leaves behind."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.supervise.starter import SECONDS, Attempt, alive, carriers, until

KEYS = ["version", "attempt", "code", "signal", "stopped", "stop_requested_ms", "started_ms", "ended_ms"]
KEYS += ["killed", "error", "log_dropped", "max_rss_kb"]


def number_in(path: Path) -> int:
    """A pid that a task wrote into a file."""
    return int(until(lambda: path.exists() and path.read_text().strip(), f"a number in {path.name}"))


def test_exit_code(attempt: Attempt) -> None:
    before = time.time_ns() // 1_000_000
    attempt.shell("echo out; echo err >&2; exit 7")
    record = attempt.wait()
    assert list(record) == KEYS
    assert before <= record["started_ms"] <= record["ended_ms"] <= time.time_ns() // 1_000_000
    assert 100 < record["max_rss_kb"] < 100_000
    times = ("started_ms", "ended_ms", "max_rss_kb")
    assert {key: value for key, value in record.items() if key not in times} == {
        "version": 1,
        "attempt": attempt.id,
        "code": 7,
        "signal": None,
        "stopped": False,
        "stop_requested_ms": None,
        "killed": False,
        "error": None,
        "log_dropped": 0,
    }
    assert attempt.output() == "out\nerr\n"
    assert sorted(os.listdir(attempt.folder)) == ["exit.json", "lock", "log", "log-times"]
    assert attempt.lock_is_free()


def test_death_by_signal(attempt: Attempt) -> None:
    attempt.shell("kill -USR1 $$")
    record = attempt.wait()
    assert (record["code"], record["signal"]) == (None, signal.SIGUSR1)
    assert not record["stopped"]
    assert not record["killed"]


@pytest.mark.parametrize(
    ("command", "cwd", "code", "error"),
    [
        (["no-such-command", "x"], "/", 127, "exec no-such-command: No such file or directory"),
        (["/no/such\n\"file\\\u00fc"], "/", 127, "exec /no/such\n\"file\\\u00fc: No such file or directory"),
        ([b"bad\xff\xe2\x82"], "/", 127, "exec bad\ufffd\ufffd: No such file or directory"),
        (["/etc/passwd"], "/", 126, "exec /etc/passwd: Permission denied"),
        (["/dev"], "/", 126, "exec /dev: Permission denied"),
        (["true"], "/no/such/folder", 126, "cwd /no/such/folder: No such file or directory"),
        (["true"], "/etc/passwd", 126, "cwd /etc/passwd: Not a directory"),
        ([""], "/", 127, "exec: No such file or directory"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_run(
    attempt: Attempt, command: list[str], cwd: str, code: int, error: str
) -> None:
    attempt.launch(*command, options=["--cwd", cwd])
    record = attempt.wait()
    assert (record["code"], record["signal"], record["stopped"]) == (code, None, False)
    assert record["error"] == error
    assert attempt.ready.startswith("error ")
    assert "\ufffd" in error or attempt.output() == f"pliant-supervise: {error}\n"


def test_what_the_machine_refuses_is_an_error_of_the_attempt(attempt: Attempt) -> None:
    attempt.path("input").mkdir()
    attempt.launch("true", options=["--stdin"])
    record = attempt.wait()
    assert (record["code"], record["error"]) == (126, "stdin: Is a directory")
    assert record["started_ms"] > 0
    assert attempt.ready == "error stdin: Is a directory\n"
    assert attempt.output() == "pliant-supervise: stdin: Is a directory\n"


def test_a_command_is_looked_for_on_the_tasks_path_and_may_lack_an_interpreter(
    attempt: Attempt, tmp_path: Path
) -> None:
    script = tmp_path / "job"
    script.write_text('echo "$1 ran"\nexit 4\n')
    script.chmod(0o755)
    attempt.environment["PATH"] = f"/no/such/folder:{tmp_path}:{attempt.environment['PATH']}"
    attempt.launch("job", "it")
    assert attempt.wait()["code"] == 4
    assert attempt.output() == "it ran\n"


def test_a_stop_that_the_task_answers(attempt: Attempt) -> None:
    attempt.shell("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done")
    attempt.says("up\n")
    before = time.time_ns() // 1_000_000
    attempt.stop()
    record = attempt.wait()
    assert (record["code"], record["stopped"], record["killed"]) == (0, True, False)
    assert before <= record["stop_requested_ms"] <= record["ended_ms"]
    assert attempt.output().endswith("saved\n")


def test_a_stop_that_ends_the_task(attempt: Attempt) -> None:
    attempt.launch("sleep", "1000")
    attempt.stop()
    record = attempt.wait()
    assert (record["code"], record["signal"], record["stopped"]) == (None, signal.SIGTERM, True)
    assert not record["killed"]


def test_a_stop_that_the_task_ignores_ends_with_sigkill_after_the_grace(attempt: Attempt) -> None:
    attempt.shell("trap '' TERM; echo up; while :; do sleep 0.05; done", "--grace-ms", "400")
    attempt.says("up\n")
    begun = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the grace stays as it is
        os.kill(attempt.pid, number)
    record = attempt.wait()
    assert time.monotonic() - begun >= 0.399
    assert (record["code"], record["signal"]) == (None, signal.SIGKILL)
    assert record["stopped"]
    assert record["killed"]
    assert carriers(attempt.id) == []


def test_a_stop_at_any_moment_of_the_start_is_not_lost(new_attempt: Callable[..., Attempt]) -> None:
    """From the line in the lock on; a lost stop would take the grace of 30 s."""
    for _ in range(10):
        attempt = new_attempt()
        attempt.launch("sleep", "1000", at_once=True)
        until(attempt.path("lock").read_text, "a line in the lock")
        attempt.stop()
        assert attempt.wait()["stopped"]


def test_no_grace(attempt: Attempt) -> None:
    attempt.shell("trap '' TERM; echo up; while :; do sleep 1; done", "--grace-ms=0")
    attempt.says("up\n")
    attempt.stop()
    record = attempt.wait()
    assert record["signal"] == signal.SIGKILL
    assert record["killed"]


def test_hangup_and_interrupt_of_the_supervisor_change_nothing(attempt: Attempt) -> None:
    attempt.shell("until [ -e go ]; do sleep 0.01; done; exit 5")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1):
        os.kill(attempt.pid, number)
    (attempt.folder.parent / "go").touch()
    record = attempt.wait()
    assert (record["code"], record["stopped"]) == (5, False)


def test_a_suspended_task_can_answer_a_stop(attempt: Attempt) -> None:
    attempt.shell("trap 'exit 6' TERM; kill -STOP $$; while :; do sleep 0.01; done")
    stat = Path(f"/proc/{attempt.task_pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "a suspended task")
    attempt.stop()
    record = attempt.wait()
    assert (record["code"], record["stopped"]) == (6, True)


def test_what_the_task_leaves_behind_is_ended(attempt: Attempt, tmp_path: Path) -> None:
    """Processes in the background, in a session of their own without a parent, without the attempt's name."""
    attempt.shell(
        "sleep 1000 & echo $! > background\n"
        "(setsid sh -c 'echo $$ > escaped; exec sleep 1000' &)\n"
        "(setsid env -i sh -c 'echo $$ > nameless; exec /bin/sleep 1000' &)\n"
        "until [ -s escaped ] && [ -s nameless ]; do sleep 0.01; done; exit 3"
    )
    record = attempt.wait()
    assert (record["code"], record["stopped"], record["killed"]) == (3, False, False)
    for name in ("background", "escaped", "nameless"):
        assert not alive(number_in(tmp_path / name)), name
    assert carriers(attempt.id) == []


def test_a_leftover_may_finish_its_last_words(attempt: Attempt) -> None:
    attempt.shell(
        "(setsid sh -c 'trap \"echo bye; exit\" TERM; touch up; while :; do sleep 0.01; done' &)\n"
        "until [ -e up ]; do sleep 0.01; done; echo main"
    )
    record = attempt.wait()
    assert (record["code"], record["killed"]) == (0, False)
    assert attempt.output().startswith("main\n")
    assert attempt.output().endswith("bye\n")


def test_a_leftover_that_ignores_sigterm_is_killed_within_the_shorter_grace(attempt: Attempt) -> None:
    attempt.shell(
        "(setsid sh -c 'trap \"\" TERM; touch up; while :; do sleep 1; done' &)\n"
        "until [ -e up ]; do sleep 0.01; done",
        "--grace-ms=150",
    )
    record = attempt.wait()
    assert (record["code"], record["killed"], record["stopped"]) == (0, True, False)
    assert carriers(attempt.id) == []


def test_a_stop_reaches_what_escaped_and_once_only(attempt: Attempt, tmp_path: Path) -> None:
    attempt.shell(
        '(setsid sh -c \'trap "echo escaped >> got" TERM; touch escaped\n'
        "  until [ -e end ]; do sleep 0.01; done' &)\n"
        "trap 'echo main >> got' TERM\n"
        "until [ -e escaped ]; do sleep 0.01; done; echo up\n"
        "until [ -e end ]; do sleep 0.01; done"
    )
    attempt.says("up\n")
    attempt.stop()
    got = tmp_path / "got"
    until(lambda: got.exists() and len(got.read_text().split()) >= 2, "both heard of it")
    attempt.stop()  # a second stop is not forwarded
    (tmp_path / "end").touch()
    attempt.wait()
    assert sorted(got.read_text().split()) == ["escaped", "main"]


def test_after_a_stop_the_workers_have_the_whole_grace(attempt: Attempt, tmp_path: Path) -> None:
    """The main process ends at once; a worker that still saves is not killed after the leftovers' 2 s."""
    attempt.shell(
        "trap 'exit 0' TERM\n"
        'sh -c \'trap "touch saving; until [ -e go ]; do sleep 0.01; done; echo saved; exit" TERM\n'
        " touch up; while :; do sleep 0.01; done' &\n"
        "until [ -e up ]; do sleep 0.01; done; echo up; wait"
    )
    attempt.says("up\n")
    attempt.stop()
    until((tmp_path / "saving").exists, "the worker to save")
    until(lambda: not alive(attempt.task_pid), "the main process to end")
    time.sleep(2.1)  # tests the time itself: a shorter deadline would end the worker
    (tmp_path / "go").touch()
    record = attempt.wait()
    assert (record["code"], record["stopped"], record["killed"]) == (0, True, False)
    assert attempt.output().endswith("saved\n")


def test_a_swarm_of_processes_is_ended(attempt: Attempt) -> None:
    attempt.shell(
        "trap '' TERM; swarm() { while :; do sleep 0.02 & sleep 0.01; done; }\n"
        "for i in 1 2 3 4; do swarm & (setsid sh -c 'while :; do sleep 0.01 & wait; done' &); done\n"
        "echo up; wait",
        "--grace-ms=50",
    )
    attempt.says("up\n")
    attempt.stop()
    assert attempt.wait()["killed"]
    assert carriers(attempt.id) == []


def test_orphans_are_reaped_while_the_task_runs(attempt: Attempt, tmp_path: Path) -> None:
    attempt.shell(
        "for i in 1 2 3 4 5 6 7 8; do (sh -c 'echo $$ >> orphans' &); done\n"
        "until [ -e go ]; do sleep 0.01; done"
    )
    orphans = tmp_path / "orphans"
    until(lambda: orphans.exists() and len(orphans.read_text().split()) == 8, "8 orphans")
    pids = orphans.read_text().split()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no zombie of them")
    (tmp_path / "go").touch()
    assert attempt.wait()["code"] == 0


def test_a_stop_before_the_end_counts_even_if_seen_after_it(attempt: Attempt) -> None:
    """Both signals are pending when the supervisor continues."""
    attempt.shell("echo up; until [ -e go ]; do sleep 0.01; done")
    attempt.says("up\n")
    os.kill(attempt.pid, signal.SIGSTOP)
    (attempt.folder.parent / "go").touch()
    until(lambda: not alive(attempt.task_pid), "the task's end")
    attempt.stop()
    os.kill(attempt.pid, signal.SIGCONT)
    record = attempt.wait()
    assert (record["code"], record["stopped"]) == (0, True)


def test_the_record_is_never_seen_half_written(attempt: Attempt) -> None:
    attempt.shell("exit 0")
    assert attempt.process
    path = attempt.path("exit.json")
    while attempt.process.poll() is None:
        if path.exists():
            assert json.loads(path.read_text())["code"] == 0
    assert attempt.wait()["code"] == 0


def block_record(attempt: Attempt) -> Path:
    """Makes a folder in the place of exit.json, which no rename can replace."""
    blocker = attempt.path("exit.json")
    (blocker / "something").mkdir(parents=True)
    return blocker


def test_a_record_that_is_refused_is_tried_again_under_the_lock(attempt: Attempt) -> None:
    attempt.shell("until [ -e go ]; do sleep 0.01; done; exit 9")
    blocker = block_record(attempt)
    (attempt.folder.parent / "go").touch()
    until(lambda: not Path(f"/proc/{attempt.task_pid}").exists(), "the task to be reaped")
    assert not attempt.lock_is_free()
    assert alive(attempt.pid)
    (blocker / "something").rmdir()
    blocker.rmdir()
    assert attempt.wait()["code"] == 9


def test_sigterm_ends_the_tries_to_write_the_record(attempt: Attempt) -> None:
    attempt.shell("until [ -e go ]; do sleep 0.01; done; exit 9")
    block_record(attempt)
    (attempt.folder.parent / "go").touch()
    until(lambda: not Path(f"/proc/{attempt.task_pid}").exists(), "the task to be reaped")
    tried = attempt.path("exit.json.tmp")
    until(lambda: tried.exists() and b'"code":9' in tried.read_bytes(), "a first try")
    attempt.stop()
    assert attempt.process
    assert attempt.process.wait(SECONDS) == 1
    assert not tried.exists()
    assert attempt.lock_is_free()
