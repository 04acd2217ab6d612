"""Fifty people at once do random things to their own jobs and to those of others."""

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from tests.box.accounts import acting as acting_as
from tests.box.box_rig import SECONDS, members, until
from tests.box.conftest import requirements
from tests.box.server_rig import ServedBox
from tests.house.seeds import seed_or

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]

JOBS = "/api/v1/workloads"
PEOPLE, LIVING = 50, 24
RESEARCHER, EDITOR, VIEWER = 5, 4, 8

BRIEF = 30
LONG = int(os.environ.get("PLIANT_STORM_SECONDS") or 3600)
"""Seconds of the long storm."""


@dataclass
class Person:
    owner: object
    role: int  # 0: none
    project: str  # its id


@dataclass
class Job:
    id: str
    name: str
    owner: Person
    secret: str
    shared: set = field(default_factory=set)  # names of accounts, or "project"

    def readable(self, who: Person) -> bool:
        """True if `who` may read its log and files (section 10 of the box's rules); a viewer never may."""
        if who is self.owner:
            return True
        may = who.role in (RESEARCHER, EDITOR) and who.project == self.owner.project
        return bool(may and ({"project", who.owner.name} & self.shared))


@pytest.fixture(scope="module")
def box():
    requirements()
    made = ServedBox("storm")
    try:
        made.make()
        made.start()
        made.serve()
        yield made
    finally:
        made.clean()


@pytest.fixture(autouse=True)
def nothing_left():
    """The whole box goes at the end."""


class Storm:
    def __init__(self, box, seed: int, letter: str) -> None:
        self.box, self.chance = box, random.Random(seed)
        self.jobs: list[Job] = []
        self.done: Counter = Counter()
        self.refused: Counter = Counter()  # attempts that the matrix forbids
        self.number = self.unavailable = 0
        projects = box.ask(0, "GET", "/api/v1/org-unit/projects")[1]["projects"]
        first = projects[0]["id"]
        made = box.ask(0, "POST", "/api/v1/org-unit/projects", {"name": f"second-{letter}"})
        second = made[1]["id"]
        self.people = []
        for index in range(PEOPLE):
            role = RESEARCHER if index < 42 else (EDITOR, VIEWER, 0)[index % 3]
            project = (first, second)[index % 2]
            owner = box.account(f"{letter}{index}")
            if role:
                rule = {"subjectType": "unix", "subjectId": owner.name, "roleId": role}
                rule |= {"scopeType": "project", "scopeId": project}
                status, said = box.ask(0, "POST", "/api/v1/authorization/access-rules", rule)
                assert status == 201, said
            self.people.append(Person(owner, role, project))

    def ask(self, who, method, path, body=None, token=""):
        """Repeats a request that is answered 503 (a look-up timed out): test machines are slow."""
        deadline = time.monotonic() + SECONDS
        while True:
            status, said = self.box.ask(who.owner.uid, method, path, body, token=token)
            if status != 503 or time.monotonic() > deadline:
                break
            self.unavailable += 1
        text = said if isinstance(said, str) else json.dumps(said)
        for job in self.jobs:
            assert job.readable(who) or job.secret not in text, (
                f"{who.owner.name} read the secret of {job.name} by {method} {path}"
            )
        return status, said

    def expect(self, allowed, status, what):
        """Fails if a forbidden request is not refused, or if an allowed one is refused for lack of rights."""
        assert status < 500, (what, status, self.box.told()[-2000:])
        if not allowed:
            assert status in (403, 404), (what, status)
            self.refused[what[0]] += 1
        elif status in (403, 404):
            raise AssertionError((what, status, "is a right of theirs"))

    # ---- what they do ----

    def submit(self, who, job):
        if len(self.jobs) >= LIVING:
            return self.delete(self.jobs[0].owner, self.jobs[0])
        self.number += 1
        secret = f"secret-{self.chance.getrandbits(64):x}"
        name = f"job-{self.number}"
        script = f"umask 077; echo {secret} > private; echo {secret}; exec sleep 100000"
        spec = {"command": "/bin/sh", "args": f"-c '{script}'"}
        spec |= {"environmentVariables": [{"name": "KEY", "value": secret}]}
        body = {"name": name, "projectId": who.project, "spec": spec}
        status, said = self.ask(who, "POST", f"{JOBS}/trainings", body)
        if status == 429:
            return None
        self.expect(who.role in (RESEARCHER, EDITOR), status, ("submit", who.role, said))
        if who.role in (RESEARCHER, EDITOR):
            assert status == 202, said
            self.jobs.append(Job(said["workloadId"], name, who, secret))
        return None

    def delete(self, who, job):
        status, said = self.ask(who, "DELETE", f"{JOBS}/{job.id}")
        editor = who.role == EDITOR and who.project == job.owner.project
        self.expect(who is job.owner or editor, status, ("delete", who.role, said))
        if status == 202:
            self.jobs.remove(job)
            until(lambda: job.id not in self.names(0), "its files and groups go")

    def names(self, uid):
        return {row["id"] for row in self.box.ask(uid, "GET", JOBS)[1]["workloads"]}

    def look(self, who, job):
        status, _ = self.ask(who, "GET", f"{JOBS}/{job.id}")
        sees = who is job.owner or (who.role and who.project == job.owner.project)
        self.expect(sees, status, ("look", who.role))
        listed = {row["id"] for row in self.ask(who, "GET", JOBS)[1]["workloads"]}
        for other in self.jobs:
            sees = who is other.owner or (who.role and who.project == other.owner.project)
            assert (other.id in listed) <= bool(sees), f"{who.owner.name} lists {other.name}"

    def log(self, who, job):
        status, _ = self.ask(who, "GET", f"{JOBS}/{job.id}/logs")
        self.expect(job.readable(who), status, ("log", who.role, job.shared))

    def execute(self, who, job):
        status, said = self.ask(who, "POST", f"{JOBS}/{job.id}/exec", {"command": ["cat", "private"]})
        if status != 409:  # it does not run yet, or no longer
            self.expect(who is job.owner, status, ("exec", who.role, said))
        if status == 201:
            others = [it for it in self.people if it is not who]
            for other in (self.chance.choice(others), who):
                status, _ = self.ask(other, "GET", f"/api/v1/exec/{said['id']}/output")
                self.expect(other is who, status, ("output of another's command", other.role))
                self.box.ask(who.owner.uid, "DELETE", f"/api/v1/exec/{said['id']}") if other is who else None

    def enter(self, who, job):
        """Types into it, attaches, and asks for its folders."""
        for method, path in (("POST", "input"), ("GET", "folders")):
            status, said = self.ask(who, method, f"{JOBS}/{job.id}/{path}")
            if status not in (400, 409, 415):  # it has no standard input, or does not run
                may = who is job.owner or (path == "folders" and job.readable(who))
                self.expect(may, status, (path, who.role, said))

    def signal(self, who, job):
        """Sends SIGCONT, which has no effect on it."""
        status, said = self.ask(who, "POST", f"{JOBS}/{job.id}/signal", {"signal": signal.SIGCONT.value})
        editor = who.role == EDITOR and who.project == job.owner.project
        if status not in (400, 409):
            self.expect(who is job.owner or editor, status, ("signal", who.role, said))

    def share(self, who, job):
        other = self.chance.choice(self.people)
        shared = self.chance.choice(([], ["project"], [f"user:{other.owner.name}"]))
        status, said = self.ask(who, "PUT", f"{JOBS}/{job.id}/sharing", {"sharedWith": shared})
        self.expect(who is job.owner, status, ("share", who.role, said))
        if status < 300:
            job.shared = {one.removeprefix("user:") for one in shared}

    def suspend(self, who, job):
        for verb in ("suspend", "resume"):
            status, said = self.ask(who, "POST", f"{JOBS}/trainings/{job.id}/{verb}")
            editor = who.role == EDITOR and who.project == job.owner.project
            if status != 409:
                self.expect(who is job.owner or editor, status, (verb, who.role, said))

    def pretend(self, who, job):
        body = {"name": "forged", "projectId": who.project, "submittedBy": job.owner.owner.name}
        status, _ = self.ask(who, "POST", f"{JOBS}/trainings", body | {"spec": {"command": "id"}})
        assert status in (400, 403, 404, 429) or who is job.owner, (who.role, status)
        if status == 202:
            self.box.ask(who.owner.uid, "DELETE", f"{JOBS}/{self.box.job(who.owner, 'forged')}")

    def attack(self, who, job):
        """Tries to signal the job's processes, and to read their memory and files and the server's log."""
        pids = members(f"{self.box.tag}/user-{job.owner.owner.uid}/{job.id}.task-0.1")
        files = self.box.base / "users" / str(job.owner.owner.uid) / job.id / "files" / "private"
        logs = self.box.state / "server.log"

        def work(pipe):
            got = []
            for pid in pids:
                for what in ("environ", "mem", "cwd/private", "root/tmp", "fd/1"):
                    with suppress(OSError), open(f"/proc/{pid}/{what}", "rb", buffering=0) as file:
                        got.append(f"{what} of {pid} is open: {file.read(1)!r}")
                with suppress(PermissionError, ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
                    got.append(f"{pid} was signalled")
            for path in (files, logs):
                with suppress(OSError), open(path, "rb") as file:
                    got.append(f"{path}: {file.read(100)!r}")
            os.write(pipe, json.dumps(got).encode() + b"\0")

        if who is job.owner:
            return
        with acting_as(self.box.entry(who.owner.uid), work) as child:
            child.until(b"\0")
            got = json.loads(child.said.split(b"\0")[0])
        assert got == [], f"{who.owner.name} against {job.name} of {job.owner.owner.name}: {got}"
        self.done["attacked processes"] += len(pids)

    def blow(self, seconds: float) -> None:
        """Plays until the time is over and each deed was drawn in at least three rounds."""
        often = [self.submit] * 4 + [self.look, self.log, self.log, self.execute, self.share, self.suspend]
        often += [self.delete, self.pretend, self.enter, self.signal, *[self.attack] * 3]
        until_then, left, rounds = time.monotonic() + seconds, [], 0
        while time.monotonic() < until_then or rounds < 3 or left:
            if not left:
                left, rounds = self.chance.sample(often, len(often)), rounds + 1
            who = self.chance.choice(self.people)
            if not self.jobs:
                self.submit(next(it for it in self.people if it.role == RESEARCHER), None)
                continue
            job = self.chance.choice(self.jobs)
            who = job.owner if self.chance.random() < 0.3 else who
            deed = left.pop()
            deed(who, job)
            self.done[deed.__name__] += 1


@pytest.mark.parametrize(
    ("letter", "seconds"), [("p", BRIEF), pytest.param("q", LONG, marks=pytest.mark.long)]
)
def test_nobody_reads_signals_or_enters_what_is_anothers(box, letter, seconds):
    storm = Storm(box, seed_or(13), letter)
    try:
        storm.blow(seconds)
    finally:
        print(dict(storm.done), f"{storm.number} jobs", "refused:", dict(storm.refused))
        print(f"asked again: {storm.unavailable}")
    actions = sum(storm.done.values())
    assert storm.number >= min(500, seconds // 6)
    assert storm.done["attacked processes"] > actions // 40, "too few of the jobs had a process"
    for deed in ("log", "execute", "share", "suspend", "look", "pretend", "enter", "signal"):
        assert storm.done[deed] > 0, deed
