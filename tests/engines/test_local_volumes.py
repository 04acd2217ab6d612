"""Data of tasks on one machine, with real files and real repositories."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pliant.control.submit.variables import Variables
from pliant.engines.local.launch import volumes
from pliant.model.volume import GIT, HOST_PATH, NFS, Volume, login_variables
from pliant.model.workload import AttemptId, Launch
from tests.engines.contract import A
from tests.engines.local_rig import LocalRig

MOUNTS = (
    "files:/srv/data /mnt/my\\040data nfs4 rw,vers=4.2 0 0\n"
    "files:/srv /mnt/srv nfs rw 0 0\n"
    "/dev/sda1 / ext4 rw 0 0\n"
)


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(tmp_path, environ={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    rig.open()
    yield rig
    rig.clean()


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(a repository with two commits and a branch, its first commit)"""
    folder = tmp_path_factory.mktemp("repository") / "code with spaces.git"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "say").write_text("one")
    git(folder, "add", "say")
    git(folder, "commit", "--quiet", "-m", "one")
    first = git(folder, "rev-parse", "HEAD")
    (folder / "say").write_text("two")
    git(folder, "commit", "--quiet", "-am", "two")
    git(folder, "checkout", "--quiet", "-b", "side")
    (folder / "say").write_text("side")
    git(folder, "commit", "--quiet", "-am", "side")
    git(folder, "checkout", "--quiet", "main")
    return folder, first


def shown(rig: LocalRig, script: str, *wanted: Volume, attempt: AttemptId = A, **variables: str):
    """(the outcome of a shell script with that data, its output)"""
    launch = Launch("", ("/bin/sh", "-c", script), working_dir="@job", volumes=wanted)
    rig.start(attempt, launch, None, Variables(given=tuple(variables.items())))
    return rig.end(attempt), rig.log(attempt)


def test_a_repository_is_cloned_and_kept_for_the_next_attempt(rig, repository):
    address, first = repository
    branch = Volume(GIT, str(address), "side", branch="side")
    old = Volume(GIT, str(address), "deep/old", revision=first)
    plain = Volume(GIT, str(address))
    end, said = shown(
        rig,
        "cat 'code with spaces/say' side/say deep/old/say; echo own > side/say; ls -A",
        plain,
        branch,
        old,
    )
    assert end.succeeded, said
    assert said.startswith("twosideone")
    assert ".clone" not in said
    again = AttemptId(A.workload, A.task, A.number + 1)
    end, said = shown(rig, "cat side/say", branch, attempt=again)
    assert (end.succeeded, said) == (True, "own\n"), "what the job changed is still there"


def test_a_repository_that_cannot_be_cloned_is_the_failure_of_the_task(rig, tmp_path):
    end, said = shown(rig, "echo it ran", Volume(GIT, f"{tmp_path}/none.git"))
    assert (end.code, "it ran" in said) == (66, False)
    assert f"pliant: the repository {tmp_path}/none.git cannot be cloned" in said


def test_a_login_reaches_git_and_not_the_task(rig, tmp_path):
    """git's own credential code asks our helper; a stand-in for git shows what it was given."""
    stand_in = tmp_path / "bin" / "git"
    stand_in.parent.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    stand_in.write_text(
        f'#!/bin/sh\nprintf \'protocol=https\\nhost=example.org\\n\\n\' | {real} "$1" "$2" credential fill\n'
        'for it; do last=$it; done; mkdir "$last"\n'
    )
    stand_in.chmod(0o755)
    user, password = login_variables(0)
    end, said = shown(
        rig,
        f'echo "left: ${user}${password}"',
        Volume(GIT, "https://example.org/code.git", login=True),
        **{user: "me", password: 'pa$$"word', "PATH": f"{stand_in.parent}:{os.environ['PATH']}"},
    )
    assert end.succeeded, said
    assert "username=me\n" in said
    assert 'password=pa$$"word\n' in said
    assert "left: \n" in said


def test_a_path_of_the_machine_is_there_as_it_is_and_as_a_link(rig, tmp_path):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "file").write_text("here")
    end, said = shown(
        rig,
        f"cat 'in/put/file' '{data}/file'",
        Volume(HOST_PATH, str(data), "in/put"),
        Volume(HOST_PATH, str(data)),
    )
    assert (end.succeeded, said) == (True, "herehere")
    gone = Volume(HOST_PATH, f"{tmp_path}/gone", "it")
    end, said = shown(rig, "echo it ran", gone, attempt=AttemptId(A.workload, A.task, A.number + 1))
    assert (end.code, said) == (66, f"pliant: {tmp_path}/gone cannot be reached on this machine\n")


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        (Volume(HOST_PATH, "data"), "is not an absolute path"),
        (Volume(HOST_PATH, "/tmp", "/data"), "cannot be made on this machine"),
        (Volume(HOST_PATH, "/tmp", "../data"), "cannot be made on this machine"),
        (Volume(HOST_PATH, "/no/such/folder"), "There is no /no/such/folder on this machine"),
        (Volume(GIT, "https://example.org/a", "/code"), "cannot be made on this machine"),
        (Volume(NFS, "/home", server="files"), "files:/home is not mounted on this machine"),
        (Volume(HOST_PATH, "/tmp", "/tmp"), None),
        (Volume(NFS, "/srv/data/in", "in", server="files"), None),
    ],
)
def test_what_cannot_be_had_is_refused(tmp_path, volume, said):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    refusal = volumes.refusal([volume], True, mounts)
    assert (refusal is None) if said is None else (said in str(refusal))


def test_a_folder_of_an_nfs_server_is_where_it_is_mounted(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    for path, place in (("/srv/data/in", "/mnt/my data/in"), ("/srv/other", "/mnt/srv/other")):
        words = volumes.prepared(["true"], [Volume(NFS, path, "in", server="files")], tmp_path, mounts)
        assert f"'{place}'" in words[2] or f" {place} " in words[2]
        assert words[-1:] == ["true"]
    assert volumes.prepared(["true"], [], tmp_path, mounts) == ["true"]


def test_no_word_of_a_volume_is_run_by_the_shell(rig, tmp_path):
    nasty = "$(touch hacked)`touch hacked`'; touch hacked; '"
    for number, volume in enumerate(
        (
            Volume(GIT, nasty, nasty, branch=nasty, revision=nasty),
            Volume(HOST_PATH, f"/{nasty}", nasty),
        ),
        1,
    ):
        attempt = AttemptId(A.workload, A.task, number)
        end, said = shown(rig, "echo it ran", volume, attempt=attempt)
        assert (end.code, "it ran" in said) == (66, False)
    assert not [*tmp_path.rglob("hacked")]


def test_the_python_of_the_test_is_no_part_of_it(rig):
    """The shell execs the command: exit code and arguments are the command's own."""
    script = "import sys; print(sys.argv[1:]); sys.exit(7)"
    launch = Launch("", (sys.executable, "-c", script, "a b", "$x"), volumes=(Volume(HOST_PATH, "/tmp"),))
    rig.start(A, launch, None)
    assert (rig.end(A).code, rig.log(A)) == (7, "['a b', '$x']\n")
