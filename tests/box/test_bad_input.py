"""Shared machines: people leave, groups are empty, roles name deleted projects."""

import grp
import os
import pwd
import subprocess
import sys
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from pliant.engines.local.launch.warden import Owner, Verb
from tests.box.box_rig import SECONDS, Box, accounts, members, sweep, trees, until
from tests.box.conftest import requirements
from tests.box.server_rig import OPENED, ServedBox
from tests.box.test_warden import fds_of_a_start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS, ACCESS = "/api/v1/workloads", "/api/v1/authorization/access-rules"
SLEEP = ("--", "sh", "-c", "echo begun; exec sleep 100000")
ADMINISTRATOR, RESEARCHER = 1, 5


@pytest.fixture(scope="module")
def box():
    requirements()
    made = ServedBox("bad")
    try:
        made.make()
        made.start()
        made.serve()
        made.allow(made.bob)
        yield made
    finally:
        made.clean()


@pytest.fixture(autouse=True)
def nothing_left():
    """The whole box goes at the end."""


def runs(box, owner, name):
    box.good(owner, "submit", name, *SLEEP)
    job = box.job(owner, name)
    until(lambda: b"begun" in box.log(owner, job), "it runs")
    return job


def grant(box, kind, subject, project, role=RESEARCHER):
    rule = {"subjectType": kind, "subjectId": subject, "roleId": role}
    status, said = box.ask(0, "POST", ACCESS, rule | {"scopeType": "project", "scopeId": project})
    return status, said


def project_of(box, name):
    status, said = box.ask(0, "POST", "/api/v1/org-unit/projects", {"name": name})
    assert status in (200, 201, 202), said
    return said["id"]


def ended_and_does_not_come_back(box, owner, job):
    """A suspended and resumed job stays stopped: the account that it would run as does not exist."""
    for verb in ("suspend", "resume"):
        status, said = box.ask(0, "POST", f"{JOBS}/trainings/{job}/{verb}")
        assert status == 202, said
        until(lambda: not members(f"{box.tag}/user-{owner.uid}"), "nothing of it lives")
    events = f"{JOBS}/{job}/events"
    until(lambda: "owner-gone" in str(box.ask(0, "GET", events)[1]), "its history says why")
    rows = lambda: {row["id"]: row["phase"] for row in box.ask(0, "GET", JOBS)[1]["workloads"]}  # noqa: E731
    until(lambda: rows()[job] == "Stopped", "it is held, not tried again")


def test_who_left_keeps_nothing_and_who_gets_the_number_inherits_nothing(box):
    """The job of a removed account runs until an administrator ends it; its files stay with the uid."""
    anna = box.account("x")
    box.allow(anna)
    job = runs(box, anna, "left-behind")
    alive = members(f"{box.tag}/user-{anna.uid}")
    accounts("userdel", "--force", anna.name)
    assert members(f"{box.tag}/user-{anna.uid}") == alive
    row = next(it for it in box.ask(0, "GET", JOBS)[1]["workloads"] if it["id"] == job)
    assert (row["phase"], row["submittedBy"]) == ("Running", anna.name)
    until(lambda: box.ask(anna.uid, "GET", JOBS)[0] == 401, "the number has no name any more")
    other = f"{box.tag}y"
    accounts(
        "useradd", "--no-log-init", "--no-create-home", "--uid", str(anna.uid), "--shell", "/bin/sh", other
    )
    frank = Owner(pwd.getpwnam(other).pw_uid, other)
    box.accounts.append(other)
    until(
        lambda: box.ask(frank.uid, "GET", JOBS) == (200, {"workloads": []}), "frank is known, and has no job"
    )
    for path in (job, f"{job}/logs", f"{job}/folders"):
        assert box.ask(frank.uid, "GET", f"{JOBS}/{path}")[0] == 404
    assert box.ask(frank.uid, "POST", f"{JOBS}/{job}/exec", {"command": ["id"]})[0] == 404
    assert box.ask(frank.uid, "DELETE", f"{JOBS}/{job}")[0] == 404
    ended_and_does_not_come_back(box, anna, job)
    assert not members(f"{box.tag}/user-{anna.uid}")
    assert box.ask(0, "DELETE", f"{JOBS}/{job}")[0] == 202


def test_a_job_of_who_left_does_not_start_again(box):
    carl = box.account("z")
    box.allow(carl)
    job = runs(box, carl, "carls")
    files = box.base / "users" / str(carl.uid)
    assert (files / job / "files").is_dir()
    accounts("userdel", "--force", carl.name)
    ended_and_does_not_come_back(box, carl, job)
    assert box.ask(0, "DELETE", f"{JOBS}/{job}")[0] == 202
    listed = lambda: [row["id"] for row in box.ask(0, "GET", JOBS)[1]["workloads"]]  # noqa: E731
    until(lambda: job not in listed(), "and can be deleted")
    kept = box.state / "attempts" / job
    until(lambda: not kept.exists(), "what the server keeps of it goes")
    until(lambda: not files.exists(), "and what it left, so that whoever gets the number finds nothing")


def test_a_group_without_members_gives_nothing_until_it_has_some(box):
    """Uses a new account each time: the server looks up an account's groups once a minute."""
    empty, project = box.make_group("e"), project_of(box, "empty-team")
    before, member, after = (box.account(letter) for letter in "vwu")
    status, said = grant(box, "unix-group", empty, project)
    assert status == 201, said
    submit = ("submit", "mine", "-p", "empty-team", *SLEEP)
    try:
        assert grp.getgrnam(empty).gr_mem == []
        assert box.ask(0, "GET", ACCESS)[0] == 200
        assert box.cli(before, *submit).returncode in (3, 4)
        for one in (member, after):
            accounts("usermod", "--append", "--groups", empty, one.name)
        box.good(member, *submit)
        box.good(member, "delete", "mine", "-p", "empty-team")
    finally:
        accounts("groupdel", empty)
    assert box.cli(after, *submit).returncode in (3, 4), "the group is gone"
    assert box.ask(0, "GET", ACCESS)[0] == 200


def test_a_role_on_a_project_that_is_gone_gives_nothing(box):
    status, said = grant(box, "unix", box.alice.name, "there-is-no-such-project")
    assert status in (400, 404) and "there-is-no-such-project" in said["message"], said
    project = project_of(box, "short-lived")
    status, said = grant(box, "unix", box.alice.name, project)
    assert status == 201, said
    assert box.cli(box.alice, "submit", "mine", "-p", "short-lived", "--dry-run", *SLEEP).returncode == 0
    assert box.ask(0, "DELETE", f"/api/v1/org-unit/projects/{project}")[0] in (200, 202, 204)
    assert box.cli(box.alice, "submit", "mine", "-p", "short-lived", "--dry-run", *SLEEP).returncode in (3, 4)
    assert box.ask(box.alice.uid, "GET", JOBS)[0] == 200
    assert box.ask(0, "GET", ACCESS)[0] == 200
    again = project_of(box, "short-lived")
    done = box.cli(box.alice, "submit", "mine", "-p", "short-lived", "--dry-run", *SLEEP)
    assert again != project and done.returncode in (3, 4), "a new project of that name has no old members"


def test_the_last_administrator_is_removed_and_root_is_there(box):
    chief = box.account("c")
    rule = {"subjectType": "unix", "subjectId": chief.name, "roleId": ADMINISTRATOR}
    status, said = box.ask(0, "POST", ACCESS, rule | {"scopeType": "tenant"})
    assert status == 201, said
    assert box.ask(chief.uid, "GET", "/api/v1/audit/log")[0] == 200
    assert box.ask(chief.uid, "DELETE", f"{ACCESS}/{said['id']}")[0] in (200, 202, 204), "by himself"
    assert box.ask(chief.uid, "GET", "/api/v1/audit/log")[0] == 403
    assert box.ask(0, "GET", "/api/v1/audit/log")[0] == 200
    assert box.ask(0, "POST", ACCESS, rule | {"scopeType": "tenant"})[0] == 201


@contextmanager
def in_groups(name, count):
    """Makes an account in so many groups; writes the file directly, as the tool takes a second for twenty."""
    file = Path("/etc/group")
    lines = "".join(f"{name}{number}:x:{2_000_000 + number}:{name}\n" for number in range(count))
    with open("/run/plt-accounts", "w") as lock:
        flock(lock, LOCK_EX)
        before = file.read_text()
        replace_text(file, before + lines)
        try:
            yield
        finally:
            kept = [it for it in file.read_text().splitlines(keepends=True) if it not in lines]
            replace_text(file, "".join(kept))


def replace_text(file, text):
    made = file.with_name(".group.plt")
    made.write_text(text)
    made.chmod(file.stat().st_mode & 0o777)
    os.replace(made, file)


def test_an_account_in_a_group_too_many():
    made = Box("gm")
    try:
        made.make()
        made.start()
        many = made.account("m")
        words = {"attempt": made.attempt(), "owner": many, "cwd": "/", "folder": "/nowhere"}
        with in_groups(many.name, 1025):
            text = made.refused(Verb.START, fds=fds_of_a_start(), **words)
    finally:
        made.clean()
    assert f"user {many.name} is in more than 1024 groups" in text


def test_control_groups_that_are_mounted_read_only(box):
    made = Box("ro")
    try:
        made.make()
        script = [f"mount -o remount,bind,ro {tree}" for tree in trees()]
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join([*script, 'exec "$@"']),
             "sh", str(made.base / "warden"), str(made.config)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        made.clean()
    assert done.returncode == 2 and "cannot be made: Read-only file system" in done.stderr, done


WITHOUT_SYSTEMD = """
mount -t tmpfs none /mnt
for place in /etc /usr/local /var/lib; do
  mkdir -p "/mnt/up$place" "/mnt/work$place"
  mount -t overlay -o "lowerdir=$place,upperdir=/mnt/up$place,workdir=/mnt/work$place" none "$place"
done
mount -t tmpfs -o mode=755 none /run
"$@" box install >/mnt/said || { cat /mnt/said; exit 1; }
sed -i '/^group /d' /etc/pliant/warden.conf
echo "group /$TAG" >>/etc/pliant/warden.conf
sed -n '/^  /p' /mnt/said >/mnt/lines
sh -e /mnt/lines >/mnt/log 2>&1
for try in $(seq "$SECONDS"); do
  "$@" whoami >/dev/null 2>&1 && break
  sleep 1
done
"$@" whoami >/dev/null || { cat /mnt/log; exit 1; }
useradd --no-create-home --shell /bin/sh "${TAG}z"
"$@" access-rule create --account "${TAG}z" --role "AI practitioner" --in-project default
runuser -u "${TAG}z" -- "$@" submit once --wait -- id -un
runuser -u "${TAG}z" -- "$@" logs once
"""


def test_a_machine_without_systemd():
    """The commands that `box install` prints start it. Only this test sees the account, files and folders."""
    requirements()
    tag = f"plt{os.getpid()}wo"
    try:
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
             "--mount-proc", *OPENED, "sh", "-ec", WITHOUT_SYSTEMD,
             "sh", sys.executable, "-m", "pliant.cli"],
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TAG": tag, "SECONDS": f"{SECONDS:.0f}"},
            capture_output=True, text=True, timeout=5 * SECONDS, check=False, cwd="/",
        )  # fmt: skip
    finally:
        sweep(tag)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.splitlines()[-1] == f"{tag}z", done
