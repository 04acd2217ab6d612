"""The local engine also keeps the contract if the warden starts its tasks as a user."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from pliant.engines.local.engine import LocalEngine
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.launch.launcher import BoxLauncher
from pliant.engines.local.launch.warden import END, Owner, Verb
from tests.box.box_rig import Box, members
from tests.box.conftest import requirements
from tests.engines.contract import A, EngineContract
from tests.engines.local_rig import LocalRig, kill, until


@pytest.fixture(scope="module")
def box():
    requirements()
    made = Box("con")
    try:
        made.make(server="root")
        made.start()
        yield made
    finally:
        made.clean()


class BoxRig(LocalRig):
    """A rig whose tasks run as alice; she can write the files in which they note things."""

    def __init__(self, box, folder: Path) -> None:
        self.box = box
        super().__init__(folder)
        os.chown(self.notes, box.alice.uid, -1)

    def make(self):
        layout = Layout(self.state)
        launcher = BoxLauncher(
            layout, self.box.warden, self.box.base / "users", lambda workload: self.box.alice, 2**24, 3
        )
        return LocalEngine(self.state, self.machine, launcher=launcher, **self.options)

    def alive(self, attempt):
        """True if the task or its supervisor lives; the supervisor is in no group of a task."""
        if self.pids(attempt):
            return True
        try:
            pid = self.supervisor_of(attempt)
        except (FileNotFoundError, ValueError):  # it has not written its pid
            return False
        return pid in members(f"{self.box.tag}/supervisors")

    def pids(self, attempt):
        name = f"{attempt.workload}.{attempt.task}.{attempt.number}"
        return members(f"{self.box.tag}/user-{self.box.alice.uid}/{name}")

    def main(self, attempt):
        return min(until(lambda: self.pids(attempt), f"{attempt} has a process"))

    def folder_of_user(self, attempt):
        return (
            self.box.base
            / "users"
            / str(self.box.alice.uid)
            / attempt.workload
            / f"{attempt.task}.{attempt.number}"
        )

    def finish(self, attempt):
        def opened():
            try:
                return os.open(self.folder_of_user(attempt) / "finish", os.O_WRONLY | os.O_NONBLOCK) + 1
            except OSError:
                return 0

        fd = until(opened, f"{attempt} waits for its end") - 1
        os.write(fd, b"\n")
        os.close(fd)
        until(lambda: not self.alive(attempt), f"{attempt} ends")

    def destroy(self, attempt):
        kill(self.supervisor_of(attempt))

        def gone():
            for pid in self.pids(attempt):
                kill(pid)
            return not self.alive(attempt)

        until(gone, f"{attempt} is gone")

    def clean(self):
        self.engine.close()
        for one in self.box.warden.list(2**40):
            self.box.warden.ask(Verb.SIGNAL, 2**40, attempt=one.attempt, owner=Owner(one.uid, ""), flags=END)
        (self.box.base / "state" / "epoch").unlink()  # the next test begins with the first leader
        for workload in ("w-a", "w-b"):
            folder = self.box.base / "users" / str(self.box.alice.uid) / workload
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def rig(box):
    folder = Path(tempfile.mkdtemp(prefix="rig-", dir=box.base))  # inside, /tmp is another folder
    folder.chmod(0o755)
    rig = BoxRig(box, folder)
    rig.open()
    yield rig
    rig.clean()


class TestContract(EngineContract):
    pass


def test_who_takes_the_environment_of_an_attempt_is_none_of_it(rig):
    """Bob's process carries the environment of alice's attempt: it is neither counted nor ended."""
    rig.run(A, rig.forever())
    text = Path(f"/proc/{rig.main(A)}/environ").read_bytes()
    env = dict(word.split(b"=", 1) for word in text.split(b"\0") if word)
    assert env[b"PLIANT_ATTEMPT"] == str(A).encode()
    env[b"PLIANT_ATTEMPT_DIR"] = os.fsencode(rig.folder(A))
    false = subprocess.Popen(["/bin/sleep", "100000"], user=rig.box.bob.uid, group=rig.box.bob.uid, env=env)
    try:
        rig.stop(A)
        rig.end(A)
        assert false.poll() is None
    finally:
        false.kill()
        false.wait()
