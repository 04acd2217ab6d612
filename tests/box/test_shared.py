"""A server that accounts of one machine share: two real accounts, one socket, no secret anywhere."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from pliant.shared import SharedBox
from pliant.store.errors import StoreError
from tests.box.accounts import acting as acting_as
from tests.box.box_rig import SECONDS, members, until
from tests.box.conftest import requirements
from tests.box.server_rig import ServedBox, acting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SLEEP = ("--", "sh", "-c", "echo begun; exec sleep 100000")
JOBS = "/api/v1/workloads"


@pytest.fixture(scope="module")
def box():
    requirements()
    made = ServedBox("shr")
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
    """The two jobs stay for the whole module."""


def tasks(box, owner) -> dict[int, int]:
    """uid by pid of all that is in the control groups of that account's jobs."""
    return {pid: os.stat(f"/proc/{pid}").st_uid for pid in members(f"{box.tag}/user-{owner.uid}")}


def test_each_job_runs_as_who_submitted_it(box):
    for owner in (box.alice, box.bob):
        assert set(tasks(box, owner).values()) == {owner.uid}
    assert box.row(box.alice, "hers")["submittedBy"] == box.alice.name
    assert box.row(box.alice, "his")["submittedBy"] == box.bob.name  # of the same project: she sees that much


def test_the_log_and_the_inside_of_a_job_are_its_owners(box):
    done = box.cli(box.bob, "logs", "hers")
    assert (done.returncode, done.stdout) == (4, "")
    status, said = box.ask(box.bob.uid, "GET", f"{JOBS}/{box.hers}/logs")
    assert (status, said["reason"]) == (403, "forbidden")
    assert "workloads:logs" in said["message"]
    told = box.good(box.alice, "exec", "hers", "--", "id")
    assert f"uid={box.alice.uid}({box.alice.name})" in told
    assert f"({box.tag}g)" in told, "with the groups that the account has"
    for other in (box.bob, box.root):  # an administrator has no part in it either
        done = box.cli(other, "exec", "hers", "--", "id")
        assert (done.returncode, done.stdout) == (4, "")


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


def test_without_a_role_there_is_nothing_to_see(box):
    eve = box.account("e")
    assert box.ask(eve.uid, "GET", JOBS)[0] == 403
    status, _ = box.ask(eve.uid, "GET", f"{JOBS}/{box.hers}/logs")
    assert status in (403, 404)
    done = box.cli(eve, "submit", "none", *SLEEP)
    assert done.returncode == 4


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
    """Bob's program listens where alice is led to: her client asks the kernel whose it is."""
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
            got = made.accept()[0].recv(65536)  # returns when the other end closes, or says something
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
    with effective(box.server), pytest.raises(StoreError, match=r"cannot be read.*--warden"):
        SharedBox.read(box.socket, box.base / "nothing.conf")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775], ids=oct)
def test_a_folder_in_which_others_could_put_a_socket_is_refused(box, mode):
    folder = box.base / f"open-{mode:o}"
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, box.server.uid, -1)
    with effective(box.server), pytest.raises(StoreError, match="chmod go-w"):
        SharedBox.read(folder / "pliant.sock", box.config).listener()
    assert not (folder / "pliant.sock").exists()


def test_a_socket_that_a_service_manager_handed_over_is_served(box):
    place = box.base / "handed.sock"
    code = (
        "import os, socket, sys\n"
        "from pathlib import Path\n"
        "from pliant.shared import SharedBox\n"
        "made = socket.socket(socket.AF_UNIX)\n"
        "made.bind(sys.argv[1])\n"
        "os.dup2(made.fileno(), 3)\n"
        "os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}\n"
        "nowhere = Path('/nowhere/sock')\n"
        "box = SharedBox(nowhere, nowhere, 1000, nowhere, nowhere)\n"
        "handed = box.listener()\n"
        "print(handed.getsockname(), handed.get_inheritable())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, place], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert (done.stdout.strip(), done.returncode) == (f"{place} False", 0), done
