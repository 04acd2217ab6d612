"""Tests in a guest with what this machine lacks: systemd as the first process, control groups of the second
version with their controllers, an NFS server with root_squash.

The first test boots the guest and runs the others there.
"""

import http.client
import json
import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.box.box_rig import PYTHON, Box, accounts, members, until
from tests.box.conftest import requirements
from tests.house.gaps import gap

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

REPOSITORY = Path(__file__).parents[2]
INSIDE = bool(os.environ.get("PLIANT_GUEST"))
UNABLE = 77
GROUP = "pliant.slice/pliant-jobs.service"
SERVERS = ("pliant.service", "pliant-warden.service")
inside = pytest.mark.usefixtures("guest")


@pytest.fixture(scope="module")
def guest():
    if not INSIDE:
        gap("no guest", "test_in_a_guest of the same file runs these tests where they can pass")


@pytest.fixture(autouse=True)
def nothing_left():
    """Removes nothing: all of it goes with the guest."""


@pytest.mark.parametrize(
    "what",
    [["-m", "long", __file__], ["-m", "not long", "tests/box/test_warden.py", "tests/box/test_walls.py"]],
    ids=["units and NFS", "warden and walls"],
)
def test_in_a_guest(what):
    requirements()
    if INSIDE:
        return
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--basetemp=/run/plt-tmp"]
    done = subprocess.run(
        [str(Path(__file__).with_name("guest")), *words, *what],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == UNABLE:
        gap("no guest", done.stderr.strip())
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stderr[-2000:]


def run(*words, who=""):
    as_who = ["runuser", "-u", who, "--"] if who else []
    done = subprocess.run([*as_who, *words], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def pliant(*words, who=""):
    return run(sys.executable, "-m", "pliant.cli", *words, who=who)


@pytest.fixture(scope="module")
def installed(guest):
    """Everything as an administrator sets it up, and an account with a role."""
    for part in Path(sys.base_prefix).parents:  # only root may enter Python's folder on some machines
        part.chmod(part.stat().st_mode | 0o555)
    drop = Path("/etc/systemd/system/pliant.service.d/python.conf")
    drop.parent.mkdir(parents=True)
    drop.write_text(
        f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths=-{sys.base_prefix}\nTimeoutStartSec=900\n"
    )
    try:
        pliant("box", "install")
    except AssertionError:
        subprocess.run(["journalctl", "--no-pager", "-u", "pliant*", "-n", "100"], check=False)
        raise
    name = "pltanna"
    accounts("useradd", "--create-home", "--shell", "/bin/sh", name)
    role = ("--account", name, "--role", "AI practitioner", "--in-project", "default")
    pliant("access-rule", "create", *role)
    return pwd.getpwnam(name)


def ask(path):
    """What the server answers root."""
    with socket.socket(socket.AF_UNIX) as made:
        made.connect("/run/pliant/pliant.sock")
        link = http.client.HTTPConnection("localhost")
        link.sock = made
        link.request("GET", path)
        answer = link.getresponse()
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())


def row(name):
    return next(it for it in ask("/api/v1/workloads")["workloads"] if it["name"] == name)


def runs(name):
    until(lambda: row(name)["phase"] == "Running", "it runs")


@inside
def test_units_are_killed_restarted_and_upgraded_under_jobs_that_live(installed):
    who, mine = installed.pw_name, f"{GROUP}/user-{installed.pw_uid}"
    for unit in ("pliant.socket", "pliant-jobs.service", *SERVERS):
        run("systemctl", "is-active", unit)
    pliant("submit", "lives", "--memory", "64M", "--", "sleep", "100000", who=who)
    runs("lives")
    before = members(mine)
    assert before
    (limit,) = Path("/sys/fs/cgroup", mine).glob("*/memory.max")
    was = limit.read_text()
    assert int(was) <= 64 * 2**20
    for unit in SERVERS:
        run("systemctl", "kill", "--signal=KILL", unit)
        run("systemctl", "restart", unit)
        assert members(mine) == before
    run("systemctl", "daemon-reload")
    run("systemctl", "stop", *SERVERS)
    assert (members(mine), limit.read_text()) == (before, was)
    runs("lives")  # the first connection to the socket starts both
    os.replace("/usr/local/lib/pliant/pliant-supervise", "/usr/local/lib/pliant/pliant-warden")
    assert "pliant-warden" in pliant("box", "install")
    run("systemctl", "restart", *SERVERS)
    runs("lives")
    assert (members(mine), limit.read_text()) == (before, was)
    pliant("delete", "lives", who=who)
    until(lambda: not members(mine), "it ends")


@inside
def test_a_hog_ends_with_all_that_is_in_its_group(installed):
    """A control group of the second version limits memory: parent and child both end."""
    who = installed.pw_name
    fill = "b = bytearray(1 << 30); b[::4096] = b'x' * len(b[::4096])"
    hog = f"import os, time\nif os.fork() == 0: {fill}\ntime.sleep(1e6)"
    pliant("submit", "hog", "--memory", "64M", "--backoff-limit", "0", "--", PYTHON, "-S", "-c", hog, who=who)
    until(lambda: row("hog")["phase"] == "Failed", "parent and child end")
    assert "ran out of memory" in str(ask(f"/api/v1/workloads/{row('hog')['id']}/events"))


@inside
def test_the_red_button(installed):
    who, mine = installed.pw_name, f"{GROUP}/user-{installed.pw_uid}"
    pliant("submit", "last", "--", "sleep", "100000", who=who)
    runs("last")
    assert members(mine)
    run("systemctl", "stop", "pliant-jobs.service")
    until(lambda: not members(mine), "every job ends")


@inside
def test_a_home_on_a_server_that_trusts_no_root():
    """Only alice may enter her folder, and the server maps root of this machine to nobody."""
    box = Box("nfs")
    try:
        box.make()
        box.start()
        for place in ("/srv/nfs", "/mnt/nfs"):
            Path(place).mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", "mode=755", "none", "/srv/nfs")
        home = Path("/srv/nfs/alice")
        home.mkdir(mode=0o700)
        (home / "data").write_text("42\n")
        os.chown(home, box.alice.uid, -1)
        run("modprobe", "nfsd")
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        Path("/var/lib/nfs/v4recovery").mkdir(parents=True, exist_ok=True)
        for table in ("etab", "rmtab"):
            Path("/var/lib/nfs", table).touch()
        Path("/etc/exports").touch()
        run("exportfs", "-o", "rw,root_squash,fsid=0,no_subtree_check,insecure", "127.0.0.1:/srv/nfs")
        run("ip", "link", "set", "lo", "up")
        run("rpc.nfsd", "--no-nfs-version", "3", "2")
        run("rpc.mountd", "--no-nfs-version", "3")
        run("mount", "-t", "nfs4", "127.0.0.1:/", "/mnt/nfs")
        assert subprocess.run(["ls", "/mnt/nfs/alice"], capture_output=True, check=False).returncode != 0
        assert box.shell(box.alice, "pwd; cat data", cwd="/mnt/nfs/alice").output() == "/mnt/nfs/alice\n42\n"
        assert box.shell(box.bob, "pwd", cwd="/mnt/nfs/alice").end()["error"].endswith("Permission denied")
    finally:
        box.clean()
