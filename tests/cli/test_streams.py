"""Logs, exec, bash and --watch: bytes are passed on as they arrive."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from tests.cli.fake import Answer, Chunks
from tests.cli.items import OUTCOME, pending, workload


@pytest.fixture
def a1(fake):
    fake.workloads = [workload("a1")]
    return fake


def test_logs_are_passed_on_as_they_are(a1, run):
    a1.chunks["/api/v1/workloads/id-a1/logs"] = Chunks([b"step 1\n", "verlust größer\n".encode()])
    result = run("pliant logs a1 -p team-a")
    assert result == (0, "step 1\nverlust größer\n", "")
    assert a1.last.query == []


def test_options_of_logs(a1, run):
    run("pliant logs a1 -f --tail 5 --since 2m --timestamps --pod a1-main-0 --attempt 2 -p team-a")
    assert dict(a1.last.query) == {
        "follow": "true",
        "tail": "5",
        "sinceSeconds": "120",
        "timestamps": "true",
        "pod": "a1-main-0",
        "attempt": "2",
    }
    run("pliant logs a1 --since-time 2026-01-01T00:00:00Z -p team-a")
    assert int(dict(a1.last.query)["sinceSeconds"]) > 0


EXECS = [
    ("exec a1 nvidia-smi -L", ["nvidia-smi", "-L"], False, False),
    ("exec a1 -- nvidia-smi -L", ["nvidia-smi", "-L"], False, False),
    ("exec a1 -it bash", ["bash"], True, True),
    ("exec -it a1 bash -c 'ls -t'", ["bash", "-c", "ls -t"], True, True),
    ("exec a1 --stdin --tty -- ls -i", ["ls", "-i"], True, True),
    ("exec -i a1 cat -- x", ["cat", "--", "x"], False, True),
    ("exec a1 --pod a1-main-0 -- env -i", ["env", "-i"], False, False),
    ("exec a1 grep -p x", ["grep", "-p", "x"], False, False),
    ("bash a1", ["/bin/bash"], False, True),
    ("ssh a1", ["/bin/bash", "-l"], False, True),
    ("ssh a1 nvidia-smi -L", ["/bin/bash", "-l", "-c", "nvidia-smi -L"], False, True),
    ("ssh a1 'ls | wc -l'", ["/bin/bash", "-l", "-c", "ls | wc -l"], False, True),
    ("training exec a1 -- ls", ["ls"], False, False),
]


@pytest.mark.parametrize(("line", "command", "tty", "stdin"), EXECS, ids=[case[0] for case in EXECS])
def test_what_belongs_to_the_command(line, command, tty, stdin, a1, run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(open(os.devnull, "rb")))  # noqa: SIM115 - closed by the wrapper
    a1.chunks["/api/v1/exec/s1/output"] = Chunks([b"x"])
    assert run(f"pliant -p team-a {line}").code == 0
    sent = a1.sent("POST", "/api/v1/workloads/id-a1/exec")[0]
    assert (sent["command"], sent["tty"], sent["stdin"]) == (command, tty, stdin)
    assert sent.get("pod") == ("a1-main-0" if "--pod" in line else None)
    sys.stdin.close()


def test_exec_returns_the_commands_exit_code(a1, run):
    a1.answers["GET", "/api/v1/exec/s1"] = Answer(body={"exitCode": 3})
    assert run("pliant -p team-a exec a1 false").code == 3
    a1.answers["GET", "/api/v1/exec/s1"] = Answer(body={"exitCode": -9})
    assert run("pliant -p team-a exec a1 false").code == 137


def test_exec_needs_a_command(a1, run):
    result = run("pliant -p team-a exec a1")
    assert result.code == 2
    assert result.err.startswith("Error: Missing argument 'COMMAND...'")


def test_piped_input_reaches_the_command_and_ends(a1):
    done = subprocess.run(
        [sys.executable, "-m", "pliant.cli", "-p", "team-a", "exec", "-i", "a1", "cat"],
        input=b"hello\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The command may end before all input is read; the input is sent in order.
    posts = [request for request in a1.requests if request.path == "/api/v1/exec/s1/input"]
    assert [request.body for request in posts] in ([], [b"hello\n"], [b"hello\n", b""])


class Slow(Chunks):
    """Chunks of a stream that stays open until the test sets `go_on`."""

    def __init__(self, *first):
        super().__init__(first)
        self.go_on = threading.Event()

    def __iter__(self):
        yield from super().__iter__()
        self.go_on.wait(200)


def sse(kind, item, mark="1"):
    return f"id: {mark}\nevent: {kind}\ndata: {json.dumps(item)}\n\n".encode()


def test_watch_shows_each_change(a1, run):
    changed = pending("a1")
    a1.chunks["/api/v1/watch"] = Chunks(
        [
            b": hello\n\n",
            sse("workload", workload("b1", projectName="team-b")),
            sse("workload", changed, "2"),
            sse("deleted", {"id": "id-a1"}, "3"),
        ]
    )
    a1.answers["GET", "/api/v1/workloads"] = Answer(body={"workloads": a1.workloads})
    asked = []

    def once(request, path):
        asked.append(request.headers.get("last-event-id"))
        return (
            Answer(200, a1.chunks["/api/v1/watch"])
            if len(asked) == 1
            else Answer(503, {"message": "going down"})
        )

    a1._stream = once
    result = run("pliant list --watch --columns name,status --no-headers -p team-a")
    assert result.out == "a1  Running\n\na1  Pending\n\n\n"
    assert result.err == "Error: going down\n"
    assert result.code == 8
    assert asked == [None, "3"]


def test_watch_as_json_is_one_change_per_line(a1, run):
    a1.chunks["/api/v1/watch"] = Chunks(
        [sse("workload", pending("a1")), sse("deleted", {"id": "id-a1"}, "2")]
    )
    a1.answers["GET", "/api/v1/workloads"] = Answer(body={"workloads": []})
    once = iter([Answer(200, a1.chunks["/api/v1/watch"])])
    a1._stream = lambda request, path: next(once, Answer(503, {"message": "going down"}))
    lines = run("pliant list -w -o json -p team-a").out.splitlines()
    changes = [json.loads(line) for line in lines[1:]]
    assert lines[0] == "[]"
    assert [change["event"] for change in changes] == ["workload", "deleted"]
    assert changes[0]["object"]["name"] == "a1"


def test_watch_drops_what_no_longer_matches(a1, run):
    a1.chunks["/api/v1/watch"] = Chunks(
        [
            sse("workload", pending("a1")),
            sse("workload", pending("a1"), "2"),
            sse("workload", workload("a1"), "3"),
        ]
    )
    once = iter([Answer(200, a1.chunks["/api/v1/watch"])])
    a1._stream = lambda request, path: next(once, Answer(503, {"message": "going down"}))
    result = run("pliant list -w --status running --columns name,status --no-headers -p team-a")
    assert result.out == "a1  Running\n\n\na1  Running\n\n"


def test_a_log_that_ends_before_its_attempt_is_taken_up_where_it_ended(a1, run):
    """A server ends its streams cleanly when it restarts."""
    runs = OUTCOME | {"phase": "Running", "exitCode": None}
    answers = iter([(b"step 1\n", runs), (b"step 1\nstep 2\n", OUTCOME)])

    def stream(request, path):
        printed, outcome = next(answers)
        a1.answers["GET", "/api/v1/workloads/id-a1/outcome"] = Answer(body=outcome)
        return Answer(200, Chunks([printed]))

    a1._stream = stream
    result = run("pliant logs -f a1 -p team-a")
    assert (result.out, result.code) == ("step 1\nstep 2\n", 0)


def test_ctrl_c_ends_following_quietly(a1):
    stream = Slow(b"step 1\n")
    a1.chunks["/api/v1/workloads/id-a1/logs"] = stream
    process = subprocess.Popen(
        [sys.executable, "-m", "pliant.cli", "logs", "-f", "a1", "-p", "team-a"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"step 1\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
        assert (process.returncode, out, err) == (130, b"", b"\n")
    finally:
        stream.go_on.set()
        process.kill()
        process.communicate()


def test_what_ssh_returns_when_it_runs_nothing(a1, run):
    assert run("pliant ssh nowhere -p team-a").code == 255
    a1.workloads[0]["runningPods"] = 0
    assert run("pliant ssh a1 -p team-a true").code == 255


def test_the_entry_for_ssh(a1, run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run("pliant ssh-config a1 -p team-a --user ann")
    assert done.code == 0, done.err
    entry = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert (entry["Host"], entry["User"], entry["HostKeyAlias"]) == ("a1.pliant", "ann", "id-a1.pliant")
    assert re.search(r"^\S+ --server http://\S+ ssh-proxy a1 -p team-a$", entry["ProxyCommand"]), entry
    assert f"{tmp_path}/.ssh/authorized_keys does not exist" in done.err
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "authorized_keys").touch()
    assert "does not exist" not in run("pliant ssh-config a1 -p team-a").err
    assert run("pliant ssh-config nowhere -p team-a").code == 3
    assert run("pliant ssh-proxy nowhere -p team-a").code == 255
