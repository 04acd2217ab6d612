"""A task's own mount namespace: its limits are read-only for every user."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.house.gaps import gap
from tests.supervise.starter import Attempt

TRIES = (
    "touch {0}/x; umount {0}; mount -o remount,rw {0}; unshare -Urm umount {0}; unshare -m umount {0}; "
    "touch {0}/x; echo bye"
)


def run(words: Sequence[str | Path], user: int | None = None) -> subprocess.CompletedProcess[str]:
    before = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return subprocess.run([*before, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture(params=[None, 65533], ids=["self", "nobody"])
def user(request: pytest.FixtureRequest) -> int | None:
    """The user of the command: None for the one that runs the tests, or one without rights."""
    if request.param is not None and (os.geteuid() != 0 or not shutil.which("setpriv")):
        return None
    return request.param


@pytest.fixture
def folder(tmp_path: Path, user: int | None) -> Path:
    for part in (tmp_path, *tmp_path.parents[:3]):
        if user is not None:
            part.chmod(0o755)
    folder = tmp_path / "limits"
    folder.mkdir()
    if user is not None:
        os.chown(folder, user, user)
    return folder


def confined(native: Path, folder: Path, user: int | None) -> list[str]:
    """The words before a command that give it that namespace; a gap if this machine allows none."""
    program = folder.parent / "supervise"
    shutil.copy(native, program)
    program.chmod(0o755)
    done = run([program, "--confine", folder], user)
    if done.returncode:
        assert done.returncode == 125 and any(word in done.stdout for word in ("namespace", "mount"))
        gap("no user namespaces", "allow unprivileged user namespaces, or run as root")
    return [str(program), "--confine", str(folder), "--"]


def test_what_the_node_wrote_stays(native: Path, folder: Path, user: int | None) -> None:
    before = confined(native, folder, user)
    (folder / "gpu.conf").write_text("one")
    done = run([*before, "sh", "-c", TRIES.format(folder)], user)
    assert done.stdout.endswith("bye\n")
    assert [path.name for path in folder.iterdir()] == ["gpu.conf"]
    beside = folder.parent / "beside"
    beside.touch()
    if user is not None:
        os.chown(beside, user, user)
    done = run([*before, "sh", "-c", f"echo mine > {beside}"], user)
    assert done.returncode == 0 and beside.read_text() == "mine\n", "only that folder is kept from it"


def test_what_the_node_renames_is_seen(native: Path, folder: Path, user: int | None) -> None:
    before = confined(native, folder, user)
    (folder / "gpu.conf").write_text("one")
    command = [*before, "sh", "-c", "read _; cat gpu.conf"]
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    with subprocess.Popen(
        [*words, *command], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        fresh = folder / "fresh"
        fresh.write_text("two")
        fresh.rename(folder / "gpu.conf")
        assert program.communicate("\n")[0] == "two"


def test_commands_that_are_none_end_as_in_a_shell(native: Path, folder: Path) -> None:
    before = confined(native, folder, None)
    assert run([*before, "no-such-command"]).returncode == 127
    done = run([*before, folder])
    assert (done.returncode, done.stdout) == (126, f"{folder}: Permission denied\n")


def test_a_folder_that_is_none(native: Path, tmp_path: Path) -> None:
    for words in ([native, "--confine", tmp_path / "none"], [native, "--confine"]):
        done = run(words)
        assert done.returncode == 125 and done.stdout.strip()


def test_a_task_gets_it_from_its_supervisor(native: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits"
    limits.mkdir()
    confined(native, limits, None)
    attempt = Attempt(tmp_path / "attempt", [str(native)], {})
    try:
        attempt.launch("sh", "-c", f"touch {limits}/x; id -u", options=[f"--read-only={limits}"])
        assert attempt.wait()["code"] == 0
        assert attempt.output().splitlines()[-1] == str(os.geteuid()) and not list(limits.iterdir())
    finally:
        attempt.clear()
    attempt = Attempt(tmp_path / "second", [str(native)], {})
    try:
        attempt.launch("true", options=["--read-only=/no/such/folder"])
        said = attempt.wait()
        assert said["code"] == 126 and said["error"].endswith("/no/such/folder: No such file or directory")
    finally:
        attempt.clear()
