"""up, down, restart, status, backup, restore and debug bundle against a stub server."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pliant.cli.server import daemon

STUB = Path(__file__).with_name("stub_server.py")


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state" / "pliant"
    yield folder
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has already ended
        pid = json.loads((folder / "server.json").read_text())["pid"]
        if str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():  # else its pid was reused
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def mode(monkeypatch, state):
    """Makes `up` start the stub in the chosen mode."""
    chosen = {"mode": "serve"}

    def arguments(folder, **options):
        given = json.dumps({key: list(v) if isinstance(v, tuple) else v for key, v in options.items() if v})
        return [sys.executable, str(STUB), chosen["mode"], folder, given]

    monkeypatch.setattr(daemon, "arguments", arguments)
    return chosen


def record(state):
    return json.loads((state / "server.json").read_text())


def test_the_server_is_started_with_what_was_said():
    words = daemon.arguments("/s", simulate=["1x2", "2x4"], port=8080, take_over=True)
    assert words == [
        *(
            sys.executable,
            "-m",
            "pliant.app",
            "serve",
            "--state",
            "/s",
            "--simulate",
            "1x2",
            "--simulate",
            "2x4",
        ),
        *("--port", "8080", "--take-over"),
    ]


def test_how_the_server_speaks_tls():
    words = daemon.arguments("/s", host="0.0.0.0", tls=True, certificate=("/c.pem", "/c.key"))
    assert words[6:] == ["--host", "0.0.0.0", "--tls", "--certificate", "/c.pem", "/c.key"]
    assert daemon.arguments("/s", tls=False)[6:] == ["--no-tls"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--cert c.pem", "--cert and --key must be given together."),
        ("--key c.key", "--cert and --key must be given together."),
        ("--no-tls --cert c.pem --key c.key", "--cert and --no-tls exclude each other."),
        ("--standby --tls", "--standby takes its settings from the leading server: omit the other options."),
    ],
)
def test_options_of_tls_that_do_not_go_together(run, mode, state, options, words):
    done = run(f"pliant up {options}")
    assert done.code == 2
    assert words in done.err
    assert not state.exists()


def test_an_authority_that_cannot_be_used_is_not_kept(run, state, tmp_path):
    (tmp_path / "empty.pem").write_text("nothing\n")
    for server, file, words in (
        ("http://127.0.0.1:1", "empty.pem", "--ca is for https://"),
        ("https://127.0.0.1:1", "empty.pem", "holds no certificates"),
        ("https://127.0.0.1:1", "none.pem", "Cannot read"),
    ):
        done = run(f"pliant login --server {server} --token t --ca {tmp_path / file}")
        assert done.code != 0
        assert words in done.err


def test_up_status_down(run, mode, state):
    up = run("pliant up --simulate 1x2")
    url, pid = record(state)["url"], record(state)["pid"]
    assert up == (
        0,
        f"Pliant runs at {url} (pid {pid}, state folder {state})\n"
        f"Web console: {url}/console (`pliant console` opens it logged in)\n"
        "  node-1: 2 simulated GPUs of 16Gi, 32 cores, 128Gi\n",
        "",
    )
    assert state.stat().st_mode & 0o777 == 0o700
    assert os.getsid(pid) == pid, "it lives in a session of its own"
    assert {os.readlink(f"/proc/{pid}/fd/{n}") for n in (1, 2)} == {str(state / "server.log")}
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    assert run("pliant status").out == (
        f"Server:        {url} (pid {pid}, version 0.1.0)\n"
        f"State folder:  {state}\n"
        "Running for:   1h2m5s\n"
        "Nodes:         1\n"
        "GPUs:          0.00 of 2 allocated, simulated\n"
        "Tasks running: 0\n"
    )
    assert json.loads(run("pliant status -o json").out)["gpus"] == 2
    assert run("pliant status -o name").out == f"{url}\n"
    assert run("pliant down") == (0, "Stopped the server.\n", "")
    assert json.loads((state / "asked.json").read_text()) == {"stopTasks": True}
    assert not daemon.alive(pid)


def test_down_where_nothing_runs(run, state):
    assert run("pliant down") == (0, f"No server runs here (state folder {state}).\n", "")


def test_what_the_server_has_to_say_is_passed_on(run, mode, state, monkeypatch):
    monkeypatch.setenv("STUB_NOTICE", "No GPU was found: 1x2 is simulated.")
    assert run("pliant up").err == "Note: No GPU was found: 1x2 is simulated.\n"


def test_down_with_tasks_asks_and_without_a_terminal_refuses(run, mode, state, monkeypatch):
    monkeypatch.setenv("STUB_TASKS", "2")
    run("pliant up")
    pid = record(state)["pid"]
    assert run("pliant down") == (
        5,
        "",
        "Error: 2 tasks are still running.\nUse `down --yes` to stop them too.\n",
    )
    assert daemon.alive(pid)
    assert run("pliant down --yes").out == "Stopped the server and 2 tasks.\n"


def test_restart_keeps_tasks_options_and_address(run, mode, state, monkeypatch):
    monkeypatch.setenv("STUB_TASKS", "2")
    run("pliant up --simulate 1x2")
    before = record(state)
    assert run("pliant restart").code == 0
    assert json.loads((state / "asked.json").read_text()) == {"stopTasks": False}
    port = int(before["url"].rpartition(":")[2])
    options = json.loads((state / "argv.json").read_text())
    assert json.loads(options[0]) == {"simulate": ["1x2"], "port": port}
    assert record(state)["pid"] != before["pid"]


def test_a_server_that_gives_up_is_quoted(run, mode, state):
    mode["mode"] = "fail5"
    assert run("pliant up") == (5, "", f"Error: A server already uses {state}.\n")


def test_a_server_that_crashes_shows_the_end_of_its_log(run, mode, state):
    state.mkdir(parents=True)
    (state / "server.log").write_text("of an earlier life\n")
    mode["mode"] = "crash"
    result = run("pliant up")
    assert result.code == 1
    assert result.err.endswith("RuntimeError: out of luck\n")
    assert "earlier life" not in result.err


def test_a_server_that_never_answers_is_ended(run, mode, state, monkeypatch):
    monkeypatch.setattr(daemon, "START_LIMIT", 0.5)
    mode["mode"] = "silent"
    result = run("pliant up")
    assert result.code == 1
    assert result.err.startswith("Error: The server did not answer within 0 s and was ended.\n")


def test_a_server_that_was_killed(run, mode, state):
    run("pliant up")
    pid = record(state)["pid"]
    os.kill(pid, signal.SIGKILL)
    assert daemon.wait_gone(pid, 60)
    assert run("pliant status") == (
        8,
        "",
        f"Error: The server (pid {pid}) has ended.\nStart it with `pliant up`.\n",
    )
    assert run("pliant down").out == f"No server runs here (state folder {state}).\n"
    (state / "server.json").unlink()


def test_tasks_left_behind_by_a_killed_server_are_found(run, mode, state):
    state.mkdir(parents=True)
    environment = {**os.environ, "PLIANT_ATTEMPT_DIR": f"{state}/attempts/w/task-0/1"}
    task = subprocess.Popen(["sleep", "1000"], env=environment)
    try:
        deadline = time.monotonic() + 60
        while daemon.left_behind(str(state)) != 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert daemon.left_behind(str(state)) == 1
        assert run("pliant down --yes") == (
            0,
            "Stopped the server.\n",
            "The server is not running, but 1 of its tasks still runs: starting it to stop them.\n",
        )
    finally:
        task.kill()
        task.wait()


def test_a_state_folder_that_cannot_be(run, tmp_path):
    (tmp_path / "file").write_text("")
    assert run(f"pliant up --state {tmp_path}/file/x") == (
        1,
        "",
        f"Error: Cannot create the state folder {tmp_path}/file/x: Not a directory.\n"
        "Choose another with --state DIR.\n",
    )


def test_backup_restore_and_bundle(run, mode, state, tmp_path, monkeypatch):
    run("pliant up")
    monkeypatch.chdir(tmp_path)
    assert run("pliant backup b.db").out == f"Backup written to {tmp_path}/b.db\n"
    assert run("pliant debug bundle -O x.zip").out == f"Debug bundle written to {tmp_path}/x.zip\n"
    assert (tmp_path / "x.zip").read_bytes() == b"PK-a-zip"
    assert run("pliant restore b.db") == (
        3,
        "",
        f"Error: There is no file {tmp_path}/b.db.\n"
        "For the files of a deleted job use `pliant restore-files NAME`.\n",
    )


def test_foreground_becomes_the_server(run, mode, state, monkeypatch):
    became = []

    def become(path, words):
        became.append((path, words))
        raise SystemExit(0)  # as execv never returns

    monkeypatch.setattr(os, "execv", become)
    assert run("pliant up --foreground --port 9999") == (0, "", "")
    assert became[0][0] == sys.executable
    assert json.loads(became[0][1][-1]) == {"port": 9999}


def test_a_taken_port_is_told_by_a_code(tmp_path):
    """`restart` then tries another port; it depends on the code, not on the message."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(daemon.PortTaken):
            daemon.start(daemon.arguments(str(tmp_path), simulate=["1x1"], port=port), str(tmp_path))
