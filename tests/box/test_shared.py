"""A server that accounts of one machine share: two real accounts, one socket, no secrets."""

import http.client
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from examples.walkthrough import Stage
from pliant.shared import SharedBox
from pliant.store.errors import StoreError
from tests.box.accounts import acting as acting_as
from tests.box.box_rig import PYTHON, SECONDS, members, trees, until
from tests.box.conftest import requirements
from tests.box.server_rig import ServedBox, acting
from tests.e2e.witness import jupyter_status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SLEEP = ("--", "sh", "-c", "echo begun; exec sleep 100000")
JOBS = "/api/v1/workloads"
MIB = 2**20


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


@pytest.fixture(scope="module")
def box():
    requirements()
    made = ServedBox("shr")
    made.console = free_port()
    try:
        made.make()
        made.start()
        made.serve()
        for owner in (made.alice, made.bob):
            made.allow(owner)
        for owner, name in ((made.alice, "hers"), (made.bob, "his")):
            made.good(owner, "submit", name, "-g", "1", *SLEEP)
        made.hers, made.his = made.job(made.alice, "hers"), made.job(made.bob, "his")
        for owner, job in ((made.alice, made.hers), (made.bob, made.his)):
            until(lambda it=(owner, job): b"begun" in made.log(*it), "both jobs run")
        yield made
    finally:
        made.clean()


@pytest.fixture(autouse=True)
def nothing_left():
    """Removes nothing: the two jobs stay for the whole module."""


def tasks(box, owner) -> dict[int, int]:
    """pid -> uid of all processes in the control groups of that account's jobs."""
    found = {}
    for pid in members(f"{box.tag}/user-{owner.uid}"):
        with suppress(FileNotFoundError):  # it has ended meanwhile
            found[pid] = os.stat(f"/proc/{pid}").st_uid
    return found


def test_each_job_runs_as_who_submitted_it(box):
    for owner in (box.alice, box.bob):
        assert set(tasks(box, owner).values()) == {owner.uid}
    assert box.row(box.alice, "hers")["submittedBy"] == box.alice.name
    assert box.row(box.alice, "his")["submittedBy"] == box.bob.name  # she is of his project


FILLS = """
import signal, time
print("begun", flush=True)
signal.sigwait([signal.SIGUSR1])
much = b"x" * (100 << 20)
print("filled", len(much), flush=True)
time.sleep(100000)
"""


def test_memory_of_a_running_job_grows_in_place_and_only_for_its_owner(box):
    """The warden sets the new limit of its control group; its process stays the same."""
    script = box.run_dir / "fills.py"
    script.write_text(f"import signal; signal.pthread_sigmask(0, [signal.SIGUSR1])\n{FILLS}")
    box.good(
        box.alice, "submit", "sized", "--memory", "64Mi", "--cpu", "0.5", "--", PYTHON, "-S", str(script)
    )
    job = box.job(box.alice, "sized")
    until(lambda: box.log(box.alice, job) == b"begun\n", "it runs")
    group = f"{box.tag}/user-{box.alice.uid}/{job}.*"
    before = members_of(group)
    assert limit(group) == 64 * MIB and len(before) == 1

    done = box.cli(box.bob, "resize", "sized", "--memory", "1Gi")
    assert done.returncode == 4 and limit(group) == 64 * MIB, done

    box.good(box.alice, "resize", "sized", "--memory", "160Mi")
    until(lambda: limit(group) == 160 * MIB, "its group has the new limit")
    os.kill(min(before), signal.SIGUSR1)
    until(lambda: b"filled 104857600" in box.log(box.alice, job), "it has more than it began with")
    assert members_of(group) == before and box.row(box.alice, "sized")["phase"] == "Running"

    box.good(box.alice, "resize", "sized", "--memory", "128Mi")
    until(lambda: limit(group) == 128 * MIB, "a limit falls too, if that is enough")
    assert members_of(group) == before
    box.good(box.alice, "delete", "sized")


def limit(group) -> int:
    """The memory limit in bytes of a group of either version."""
    names = ("memory.max", "memory.limit_in_bytes")
    found = [file for name in names for tree in trees() for file in tree.glob(f"{group}/{name}")]
    return int(found[0].read_text())


def members_of(group) -> set[int]:
    files = (file for tree in trees() for file in tree.glob(f"{group}/cgroup.procs"))
    return {int(pid) for file in files for pid in file.read_text().split()}


def test_the_log_and_the_inside_of_a_job_are_its_owners(box):
    done = box.cli(box.bob, "logs", "hers")
    assert (done.returncode, done.stdout) == (4, "")
    status, said = box.ask(box.bob.uid, "GET", f"{JOBS}/{box.hers}/logs")
    assert (status, said["reason"]) == (403, "forbidden")
    assert "workloads:logs" in said["message"]
    told = box.good(box.alice, "exec", "hers", "--", "id")
    assert f"uid={box.alice.uid}({box.alice.name})" in told
    assert f"({box.tag}g)" in told, "with the groups that the account has"
    for other in (box.bob, box.root):  # administrators may not either
        done = box.cli(other, "exec", "hers", "--", "id")
        assert (done.returncode, done.stdout) == (4, "")


def test_what_a_job_runs_is_its_owners_to_know(box):
    """A command line may hold secrets: others see it neither in lists nor in one job nor in changes."""

    def follow(pipe):
        link = http.client.HTTPConnection("localhost")
        link.sock = socket.socket(socket.AF_UNIX)
        link.sock.connect(str(box.socket))
        link.request("GET", "/api/v1/watch", headers={"Last-Event-ID": "1-1"})
        answer = link.getresponse()
        while line := answer.readline():
            os.write(pipe, line + (b"\0" if box.hers.encode() in line else b""))

    def seen(uid):
        whole = json.dumps(box.ask(uid, "GET", JOBS)) + json.dumps(box.ask(uid, "GET", f"{JOBS}/{box.hers}"))
        with acting_as(box.entry(uid), follow) as child:
            child.until(b"\0")
            lines = [line for line in child.said.splitlines() if box.hers.encode() in line]
        return whole, lines[0].decode()

    for uid in (box.bob.uid, 0):
        whole, change = seen(uid)
        assert box.hers in whole and '"hers"' in change
        assert "begun; exec" not in change
        rows = {row["id"]: row for row in box.ask(uid, "GET", JOBS)[1]["workloads"]}
        one = box.ask(uid, "GET", f"{JOBS}/{box.hers}")[1]
        for row in (rows[box.hers], one):
            assert (row["command"], row["arguments"], row["environmentVariables"]) == ("", "", {})
    whole, change = seen(box.alice.uid)
    assert "begun; exec" in whole and "begun; exec" in change


def test_an_owner_shares_the_log_and_the_files_and_nothing_else(box):
    assert box.cli(box.bob, "share", "hers", "--with", "project").returncode == 4
    assert box.good(box.alice, "share", "hers") == "hers is shared with no one.\n"
    for other in ("everybody", "user:", "user:a b"):
        done = box.cli(box.alice, "share", "hers", "--with", other)
        assert done.returncode == 2 and "Use project or user:NAME" in done.stderr
    box.good(box.alice, "share", "hers", "--with", f"user:{box.bob.name}")
    assert "begun" in box.good(box.bob, "logs", "hers")
    assert "JOB FOLDER: " in box.good(box.bob, "describe", "job", "hers")
    for words in (("exec", "hers", "--", "id"), ("suspend", "hers"), ("share", "hers", "--none")):
        assert box.cli(box.bob, *words).returncode == 4
    eve = box.account("v")
    box.allow(eve, role=8)
    assert box.cli(eve, "logs", "hers").returncode == 4, "it is shared with bob"
    said = box.good(box.alice, "share", "hers", "--none")
    assert said == "hers is shared with no one.\n"
    assert box.cli(box.bob, "logs", "hers").returncode == 4


def test_no_account_signals_or_reads_the_process_of_another(box):
    (hers,) = tasks(box, box.alice)
    assert "not permitted" in acting(box.bob, "kill", "-TERM", str(hers)).stderr
    assert "denied" in acting(box.bob, "cat", f"/proc/{hers}/environ").stderr
    assert tasks(box, box.alice) == {hers: box.alice.uid}


def test_the_server_and_its_state_are_closed(box):
    assert "denied" in acting(box.alice, "ls", str(box.state)).stderr
    assert not (box.state / "token").exists(), "there is no token on the machine"
    status = Path(f"/proc/{box.serving.pid}/status").read_text()
    assert re.findall(r"^(?:Uid|CapPrm|CapBnd):\s*(\S+)", status, re.MULTILINE) == [
        str(box.server.uid), "0" * 16, "0" * 16,
    ]  # fmt: skip


def test_names_that_somebody_gives_himself_count_for_nothing(box):
    env = {"USER": box.alice.name, "LOGNAME": box.alice.name}
    assert json.loads(box.good(box.bob, "whoami", "-o", "json", env=env))["id"] == box.bob.name
    box.good(box.bob, "submit", "named", *SLEEP, env=env)
    assert box.row(box.bob, "named")["submittedBy"] == box.bob.name
    box.good(box.bob, "delete", "named")
    body = {"name": "forged", "projectId": "default", "submittedBy": box.alice.name, "spec": {"image": ""}}
    status, said = box.ask(box.bob.uid, "POST", f"{JOBS}/trainings", body)
    assert (status, said["message"].startswith(f"You are {box.bob.name}")) == (403, True)


@pytest.mark.parametrize("uid", [65534, 3999999], ids=["nobody", "a number without a name"])
def test_who_is_nobody_here_may_do_nothing(box, uid):
    status, said = box.ask(uid, "GET", JOBS)
    assert (status, said["reason"]) == (401, "unauthorized")


def test_an_account_of_the_system_may_do_nothing(box):
    least = box.account("w", system=True)
    assert box.ask(least.uid, "GET", JOBS)[0] == 401


def test_without_a_role_there_are_only_jobs_of_ones_own(box):
    eve = box.account("e")
    assert box.ask(eve.uid, "GET", JOBS) == (200, {"workloads": []})
    assert box.ask(eve.uid, "GET", f"{JOBS}/count") == (200, {"count": 0})
    for path in (f"{JOBS}/{box.hers}", f"{JOBS}/{box.hers}/logs"):
        assert box.ask(eve.uid, "GET", path)[0] == 404
    for path in ("org-unit/projects", "queue", "nodes", "metrics"):
        assert box.ask(eve.uid, "GET", f"/api/v1/{path}")[0] in (403, 404)
    assert box.cli(eve, "list").returncode == 0
    done = box.cli(eve, "submit", "none", *SLEEP)
    assert done.returncode == 4
    box.allow(eve)
    box.good(eve, "submit", "hers-too", *SLEEP)
    rule = next(
        row for row in box.ask(0, "GET", "/api/v1/authorization/access-rules")[1]["accessRules"]
        if row["subjectId"] == eve.name
    )  # fmt: skip
    assert box.ask(0, "DELETE", f"/api/v1/authorization/access-rules/{rule['id']}")[0] in (200, 202, 204)
    assert [row["name"] for row in box.ask(eve.uid, "GET", JOBS)[1]["workloads"]] == ["hers-too"]
    box.good(eve, "delete", "hers-too")


def test_parts_of_a_gpu_are_shared_by_one_account_alone(box):
    """The module's two jobs leave no GPU free: bob's is deleted, and its GPU is used for parts."""
    for owner, name in ((box.alice, "hers-1"), (box.bob, "his-1"), (box.alice, "hers-2")):
        box.good(owner, "submit", name, "-g", "0.3", *SLEEP)
    box.good(box.bob, "suspend", "his")
    until(lambda: box.row(box.alice, "hers-2")["phase"] == "Running", "both of alice's parts run")
    assert box.row(box.alice, "hers-1")["phase"] == "Running"
    told = box.good(box.bob, "why", "his-1")
    assert "beside-others" in told and "only jobs of one user share a GPU" in told
    for name in ("hers-1", "hers-2"):
        box.good(box.alice, "delete", name)
    until(lambda: box.row(box.bob, "his-1")["phase"] == "Running", "bob's part runs")
    allow = partial(box.ask, 0, "PATCH", "/api/v1/scheduling-settings")
    assert allow({"share-across-users": "project"})[0] == 200
    for owner, name in ((box.alice, "hers-3"), (box.bob, "his-3")):
        box.good(owner, "submit", name, "-g", "0.3", *SLEEP)
    box.good(box.bob, "delete", "his-1")  # his alone: no job of the project shares that GPU
    until(lambda: box.row(box.bob, "his-3")["phase"] == "Running", "parts of one project share a GPU")
    assert box.row(box.alice, "hers-3")["phase"] == "Running"
    box.good(box.alice, "delete", "hers-3")
    box.good(box.bob, "delete", "his-3")
    assert allow({"share-across-users": None})[0] == 200
    box.good(box.bob, "resume", "his")
    until(lambda: box.row(box.bob, "his")["phase"] == "Running", "his goes on")


def test_a_task_has_the_session_of_its_account_not_the_terminals(box):
    env = {"HOME": "/elsewhere", "USER": "root", "SHELL": "/bin/false", "TMPDIR": "/elsewhere"}
    env |= {"PATH": f"/elsewhere:{os.environ['PATH']}", "VIRTUAL_ENV": "/srv/venv", "COLOUR": "green"}
    box.good(box.alice, "submit", "env", "--", "env", env=env)
    job = box.job(box.alice, "env")
    until(lambda: box.row(box.alice, "env")["phase"] == "Completed", "it has told its environment")
    said = dict(line.partition("=")[::2] for line in box.log(box.alice, job).decode().splitlines())
    entry = pwd.getpwuid(box.alice.uid)
    assert (said["HOME"], said["USER"], said["SHELL"]) == (entry.pw_dir, entry.pw_name, entry.pw_shell)
    assert "TMPDIR" not in said and said["COLOUR"] == "green"
    path = said["PATH"].split(":")
    assert path[0] == "/srv/venv/bin" and "/elsewhere" not in path
    box.good(box.alice, "delete", "env")


def test_describe_and_doctor_say_that_the_kernel_holds_a_job_to_its_memory(box):
    box.good(box.alice, "submit", "sized", "--memory", "64M", "--cpu", "0.5", *SLEEP)
    told = box.good(box.alice, "describe", "job", "sized")
    assert "MEMORY: 64M (enforced: a job that exceeds it is killed)" in told
    assert "CORES: 0.5 (its part of the cores when all are busy)" in told
    found = box.ask(box.alice.uid, "GET", "/api/v1/server/doctor")[1]["findings"]
    assert next(one["holds"] for one in found if one["what"] == "main memory and cores") is True
    box.good(box.alice, "delete", "sized")


def test_describe_names_no_folder_that_its_reader_cannot_open(box):
    told = box.good(box.alice, "describe", "job", "hers")
    assert "JOB FOLDER: " in told and "LOG: " not in told and str(box.state) not in told
    told = box.good(box.bob, "describe", "job", "hers")
    assert "NAME: hers" in told and "FOLDER" not in told


def test_root_administers_but_has_no_account_for_jobs(box):
    body = {"name": "roots", "projectId": "default", "spec": {"command": "id"}}
    status, said = box.ask(0, "POST", f"{JOBS}/trainings", body)
    assert (status, said["reason"]) == (403, "no-account")


def test_the_token_of_an_attempt_is_good_in_its_owners_hands_alone(box):
    token = box.good(box.alice, "exec", "hers", "--", "sh", "-c", 'cat "$PLIANT_TOKEN_FILE"')
    path = f"/api/v1/attempts/{box.hers}/task-0/1/allocation"
    assert box.ask(box.alice.uid, "GET", path, token=token)[0] == 200
    assert box.ask(box.bob.uid, "GET", path, token=token)[0] == 401


def test_a_socket_of_another_account_is_told_nothing(box):
    """Bob's program listens at the socket that alice is given: her client asks the kernel whose it is."""
    folder = box.base / "bobs"
    folder.mkdir(mode=0o755)
    os.chown(folder, box.bob.uid, -1)
    place = folder / "pliant.sock"

    def listen(pipe):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
            place.chmod(0o666)
            made.listen()
            os.write(pipe, b"listens\n")
            got = made.accept()[0].recv(65536)  # returns when the other end closes or sends something
            os.write(pipe, b"got %d bytes\n" % len(got))

    with acting_as(box.entry(box.bob), listen) as child:
        child.until(b"listens\n")
        done = box.cli(box.alice, "list", env={"PLIANT_SOCKET": str(place)})
        child.until(b"bytes\n")
        assert b"got 0 bytes" in child.said
    assert done.returncode == 8
    assert f"{place} is served by user {box.bob.name}" in done.stderr


def test_only_a_file_of_roots_says_who_the_server_is(box):
    folder = box.base / "forged"
    folder.mkdir(mode=0o755)
    forged = folder / "warden.conf"
    forged.write_text(box.config.read_text())
    os.chown(forged, box.bob.uid, -1)
    done = box.cli(box.alice, "list", env={"PLIANT_ETC": str(folder)})
    assert done.returncode == 8 and "is served by user" in done.stderr
    os.chown(forged, 0, 0)
    assert box.cli(box.alice, "list", env={"PLIANT_ETC": str(folder)}).returncode == 0


def test_a_limit_holds_one_account_and_its_use_is_told_to_it_alone(box):
    for words in (("set", "--user", box.bob.name, "--gpus", "9"), ("remove", "--user", box.bob.name)):
        assert box.cli(box.bob, "limit", *words).returncode == 4
    box.good(box.root, "limit", "set", "--user", box.bob.name, "--gpus", "1", "--pending", "1")
    box.good(box.bob, "submit", "second", "-g", "1", *SLEEP)
    assert "user-limit" in box.good(box.bob, "why", "second")
    done = box.cli(box.bob, "submit", "third", *SLEEP)
    assert done.returncode != 0 and "has 1 pending job; the limit is 1" in done.stderr
    assert box.bob.name in box.good(box.bob, "limit", "list")
    assert box.bob.name not in box.good(box.alice, "limit", "list")
    box.good(box.bob, "delete", "second")
    box.good(box.root, "limit", "remove", "--user", box.bob.name)
    said = box.good(box.root, "report")
    assert box.alice.name in said and box.bob.name in said
    own = box.good(box.bob, "report")
    assert box.bob.name in own and box.alice.name not in own


def test_one_account_has_so_many_connections_and_others_are_served(box):
    def hold(pipe):
        held = []
        for _ in range(8):
            made = socket.socket(socket.AF_UNIX)
            made.connect(str(box.socket))
            held.append(made)
        made.settimeout(SECONDS)
        os.write(pipe, made.recv(65536) + b"\n\0")
        signal.pause()

    with acting_as(box.entry(box.bob), hold) as child:
        child.until(b"\0")
        assert b"429 Too Many Requests" in child.said and b"You have 6 connections" in child.said
        done = box.cli(box.bob, "list")
        assert done.returncode != 0 and "You have 6 connections to the server" in done.stderr
        assert box.cli(box.alice, "list").returncode == 0
    until(lambda: box.cli(box.bob, "list").returncode == 0, "closed connections count no more")


def test_one_account_has_so_many_commands_inside_jobs_at_a_time(box):
    def run(owner):
        body = {"command": ["sleep", "100000"]}
        mine = box.hers if owner == box.alice else box.his
        return box.ask(owner.uid, "POST", f"{JOBS}/{mine}/exec", body)

    (_, first), (_, second) = run(box.bob), run(box.bob)
    status, said = run(box.bob)
    assert (status, said["reason"]) == (429, "user-limit") and "has 2 commands inside jobs" in said["message"]
    status, hers = run(box.alice)
    assert status == 201, "others have their own"
    assert box.ask(box.bob.uid, "DELETE", f"/api/v1/exec/{first['id']}")[0] == 204
    status, third = run(box.bob)
    assert status == 201
    for owner, one in ((box.bob, second), (box.bob, third), (box.alice, hers)):
        assert box.ask(owner.uid, "DELETE", f"/api/v1/exec/{one['id']}")[0] == 204


def test_one_account_reads_so_many_streams_at_a_time(box):
    def follow(pipe):
        links = []
        for _ in range(4):
            link = http.client.HTTPConnection("localhost")
            link.sock = socket.socket(socket.AF_UNIX)
            link.sock.connect(str(box.socket))
            link.request("GET", f"{JOBS}/{box.his}/logs?follow=true")
            answer = link.getresponse()
            answer.read(1) if answer.status == 200 else None
            links.append((answer, link))
        os.write(pipe, json.dumps([answer.status for answer, _ in links]).encode() + b"\0")
        os.write(pipe, links[-1][0].read())
        os.write(pipe, b"\0")
        signal.pause()

    with acting_as(box.entry(box.bob), follow) as child:
        child.until(b"\0")
        assert json.loads(child.said.split(b"\0")[0]) == [200, 200, 200, 429]
        child.until(b"user-limit")
        assert box.cli(box.alice, "logs", "hers").returncode == 0
    until(
        lambda: box.cli(box.bob, "logs", "his").returncode == 0, "streams whose reader is gone count no more"
    )


def test_a_new_box_has_limits_for_everybody_and_for_one_workload(box):
    assert "50" in box.good(box.root, "limit", "list")
    done = box.cli(box.bob, "submit-dist", "pytorch", "wide", "--workers", "6", "--dry-run", "--", "id")
    assert done.returncode == 2 and "A workload has 5 tasks at most here" in done.stderr, done


def test_one_account_submits_so_fast_and_others_are_served(box):
    def hurry(pipe):
        link = http.client.HTTPConnection("localhost")
        link.sock = socket.socket(socket.AF_UNIX)
        link.sock.connect(str(box.socket))
        body = json.dumps({"name": "fast", "projectId": "default", "spec": {"command": "id"}})
        found = []
        for _ in range(40):
            link.request("POST", f"{JOBS}/trainings?dryRun=true", body, {"Content-Type": "application/json"})
            answer = link.getresponse()
            found.append((answer.status, answer.headers.get("Retry-After"), answer.read().decode()))
        with open(pipe, "w", closefd=False) as file:
            file.write(json.dumps([it for it in found if it[0] != 200][:1]) + "\0")

    with acting_as(box.entry(box.bob), hurry) as child:
        child.until(b"\0")
        ((status, again, said),) = json.loads(child.said.rstrip(b"\0"))
    assert (status, again) == (429, "1") and "more than 2 jobs per second" in said
    body = {"name": "slow", "projectId": "default", "spec": {"command": "id"}}
    assert box.ask(box.alice.uid, "POST", f"{JOBS}/trainings?dryRun=true", body)[0] == 200


def test_a_killed_server_finds_the_jobs_again(box):
    before = {owner.uid: tasks(box, owner) for owner in (box.alice, box.bob)}
    box.cut()
    box.serve()
    until(lambda: box.row(box.alice, "hers")["phase"] == "Running", "the job is seen again")
    assert {owner.uid: tasks(box, owner) for owner in (box.alice, box.bob)} == before
    assert b"begun" in box.log(box.alice, box.hers)
    assert box.ask(box.bob.uid, "GET", f"{JOBS}/{box.hers}/logs")[0] == 403
    box.good(box.alice, "submit", "again", "--", "id", "-u")
    again = box.job(box.alice, "again")
    until(lambda: str(box.alice.uid).encode() in box.log(box.alice, again), "a new job runs")
    box.good(box.alice, "delete", "hers")
    until(lambda: not tasks(box, box.alice), "her job ends")
    assert tasks(box, box.bob) == before[box.bob.uid]


def test_notebooks_of_root_and_of_a_user_at_once_over_restarts(box, tmp_path):
    """Real Jupyters: root's under root's own server, alice's under the shared one."""
    programs, hers = box.base / "jupyter", box.base / "hers"
    for folder in (programs, hers):
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    os.chown(hers, box.alice.uid, -1)
    program = programs / "jupyter-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m jupyter_server "$@"\n')
    program.chmod(0o755)
    places = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")
    env = {"PATH": f"{programs}:{os.environ['PATH']}"} | dict.fromkeys(places, str(hers))
    words = ("workspace", "submit", "nb", "--jupyter")
    stage = Stage(tmp_path)
    try:
        assert stage.run("pliant up --simulate 1x1").code == 0
        roots = stage.run(f"PATH={programs}:$PATH; pliant {' '.join(words)}", 240.0)
        assert roots.code == 0, roots.said
        addresses = [roots.out.splitlines()[-1], box.good(box.alice, *words, env=env).splitlines()[-1]]
        assert [jupyter_status(address) for address in addresses] == [200, 200]
        pages, tokens = zip(*(address.split("?") for address in addresses), strict=True)
        swapped = [f"{pages[0]}?{tokens[1]}", f"{pages[1]}?{tokens[0]}"]
        assert [jupyter_status(address) for address in swapped] == [403, 403]
        assert set(tasks(box, box.alice).values()) == {box.alice.uid}
        box.cut()
        box.serve()
        assert stage.run("pliant restart").code == 0
        assert [jupyter_status(address) for address in addresses] == [200, 200]
        until(lambda: box.row(box.alice, "nb")["phase"] == "Running", "her notebook is seen again")
        assert box.good(box.alice, "url", "nb").strip() == addresses[1]
        assert box.cli(box.bob, "url", "nb").returncode in (3, 4), "its token is hers alone"
        box.good(box.alice, "delete", "nb")
        until(lambda: jupyter_status(addresses[1]) == 0, "it ends with the job")
    finally:
        stage.close()


# -- what is refused before anything is served ------------------------------------------------------


@contextmanager
def effective(owner):
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_shared_server_is_nobody_with_rights(box):
    with pytest.raises(StoreError, match=r"does not run as root.*runuser -u pliant"):
        SharedBox.read(box.socket, box.config)
    with effective(box.bob), pytest.raises(StoreError, match=f"orders of user {box.server.name} only"):
        SharedBox.read(box.socket, box.config)
    with effective(box.server), pytest.raises(StoreError, match=r"cannot be read: No such file.*--warden"):
        SharedBox.read(box.socket, box.base / "nothing.conf")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775], ids=oct)
def test_a_folder_in_which_others_could_put_a_socket_is_refused(box, mode):
    folder = box.base / f"open-{mode:o}"
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, box.server.uid, -1)
    with effective(box.server), pytest.raises(StoreError, match="chmod go-w"):
        SharedBox.read(folder / "pliant.sock", box.config).listeners(0)
    assert not (folder / "pliant.sock").exists()


HANDED = """
import os, socket, sys
from pathlib import Path
from pliant.shared import SharedBox
from pliant.store.errors import StoreError
made = [socket.socket(socket.AF_UNIX)]
made[0].bind(sys.argv[1])
for address in sys.argv[2:]:
    made.append(socket.socket(socket.AF_INET))
    made[-1].bind((address, 0))
for number, it in enumerate(made):
    os.dup2(it.fileno(), 100 + number)
for number in range(len(made)):
    os.dup2(100 + number, 3 + number)
os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': str(len(made))}
nowhere = Path('/nowhere/sock')
try:
    for it in SharedBox(nowhere, nowhere, 1000, nowhere, nowhere).listeners(0):
        name = it.getsockname()
        print(name if isinstance(name, str) else name[0], it.get_inheritable())
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "{place} False"),
        (("127.0.0.1",), "{place} False\n127.0.0.1 False"),
        (("0.0.0.0",), "The web console would be reached at 0.0.0.0, not only here."),
    ],
)
def test_sockets_that_a_service_manager_handed_over_are_served(box, others, said):
    place = box.base / f"handed-{len(others)}.sock"
    place.unlink(missing_ok=True)
    words = [sys.executable, "-c", HANDED, str(place), *others]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.stdout.strip(), done.returncode) == (said.format(place=place), 0), done


def fetched(box, method, path, cookie=""):
    """Status, headers and text of one request at the port of the pages."""
    link = http.client.HTTPConnection("127.0.0.1", box.console, timeout=SECONDS)
    headers = {"Cookie": cookie} if cookie else {}
    link.request(method, path, headers=headers)
    answer = link.getresponse()
    told = answer.status, dict(answer.getheaders()), answer.read().decode()
    link.close()
    return told


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/workloads"),
        ("POST", "/api/v1/token"),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
        ("GET", "/consolex"),
        ("POST", "/console/link"),
    ],
)
def test_the_port_of_the_console_leads_to_pages_alone(box, method, path):
    status, _, text = fetched(box, method, path)
    assert status == 404 and "Only" in text and "the web console" in text


def test_the_console_of_a_shared_machine_knows_its_reader_by_the_socket(box):
    status, _, text = fetched(box, "GET", "/console/login")
    assert status == 200 and "Password or token" in text
    assert fetched(box, "GET", "/console/workloads")[0] == 303
    url = box.good(box.alice, "console", "--print-url").strip()
    home, _, path = url.partition("/console/")
    assert home == f"http://127.0.0.1:{box.console}"
    status, headers, text = fetched(box, "GET", f"/console/{path}")
    assert status == 200 and "You are logged in as" in text
    assert fetched(box, "GET", f"/console/{path}")[0] == 403, "the link is good once"
    cookie = headers["set-cookie"].partition(";")[0]
    box.good(box.alice, "submit", "on-her-page", *SLEEP)
    status, _, text = fetched(box, "GET", "/console/workloads", cookie)
    assert status == 200 and "on-her-page" in text
    box.good(box.alice, "delete", "on-her-page")
    assert fetched(box, "GET", "/api/v1/workloads", cookie)[0] == 404
    status, _, text = fetched(box, "GET", f"/console/workloads/{box.his}", cookie)
    assert "sleep 100000" not in text, "what his job runs is not hers to know"
