"""A researcher's own script: its directory, its environment, its results, and the errors of mistakes."""

import hashlib
import json
import resource
import shlex
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.walkthrough import Done, Stage
from tests.e2e.witness import statuses, until

SECRET = "S3CR3T-of-the-shell"

TRAIN = """\
import argparse, json, os, sys
import helper, onlyhere
options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int)
options.add_argument("--code", type=int, default=0)
given = options.parse_args()
for epoch in range(given.epochs):
    print(f"epoch {epoch}: {helper.loss(epoch)}")
open("best.pt", "w").write(onlyhere.WEIGHTS)
token = len(os.environ.get("HF_TOKEN", ""))
print(json.dumps([sys.executable, os.getcwd(), token, os.environ["PLIANT_JOB_DIR"]]))
sys.exit(given.code)
"""


class Checkout:
    """A user's shell in a git checkout, with a virtual environment that has a package of its own."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.path = stage.home / "my project"
        self.venv = stage.home / "venv"
        self.python = self.venv / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        [packages] = self.venv.glob("lib/python*/site-packages")
        (packages / "onlyhere.py").write_text("WEIGHTS = 'trained'\n")
        self.path.mkdir()
        (self.path / "train.py").write_text(TRAIN)
        (self.path / "helper.py").write_text("def loss(epoch): return 1 / (epoch + 1)\n")
        subprocess.run(["git", "init", "-q", self.path], check=True)

    def type(self, command: str, *, where: Path | None = None, timeout: float = 240.0) -> Done:
        """Types a command in a shell where the environment is active and HF_TOKEN is set."""
        activate = f". {shlex.quote(str(self.venv / 'bin' / 'activate'))}"
        # Pliant's programs come after the user's environment in PATH.
        shell = f"{activate}; export HF_TOKEN={SECRET}; cd {shlex.quote(str(where or self.path))}; {command}"
        return self.stage.run(shell, timeout)

    def good(self, command: str, **more: Path) -> Done:
        done = self.type(command, **more)
        assert done.code == 0, f"{command}: {done.said}"
        return done

    def item(self, name: str) -> dict:
        found = json.loads(self.good("pliant list -o json").out)
        return next(entry for entry in found if entry["name"] == name)

    def ends(self, name: str) -> str:
        """Waits for its end; returns its status."""
        until(lambda: self.item(name)["status"] in ("Succeeded", "Failed"), f"{name} ends")
        return str(self.item(name)["status"])


@pytest.fixture(scope="module")
def checkout(shared: Stage) -> Iterator[Checkout]:
    return Checkout(shared)


def test_a_script_runs_where_and_with_what_it_was_typed(checkout: Checkout) -> None:
    done = checkout.type("pliant run t -g 1 -- python train.py --epochs 2 --code 7")
    assert done.code == 7, done.said
    *epochs, told = done.out.splitlines()
    assert epochs == ["epoch 0: 1.0", "epoch 1: 0.5"]
    program, cwd, token, job_dir = json.loads(told)
    assert (program, cwd, token) == (str(checkout.python), str(checkout.path), len(SECRET))
    link = checkout.stage.state / "jobs" / "team-a" / "t"
    assert link.resolve() == Path(job_dir)
    checkout.good("pliant delete t")
    left = sorted(path.name for path in checkout.path.iterdir() if path.name != "__pycache__")
    assert left == [".git", "best.pt", "helper.py", "train.py"]
    assert (checkout.path / "best.pt").read_text() == "trained"


def test_the_directory_may_be_named_and_be_a_link(checkout: Checkout) -> None:
    inner = checkout.path / "sub dir"
    inner.mkdir()
    (checkout.stage.home / "link").symlink_to(checkout.path)
    where = "python -c 'import os; print(os.getcwd())'"
    assert checkout.good(f"pliant run --working-dir 'sub dir' -- {where}").out == f"{inner}\n"
    assert (
        checkout.good(f"pliant run -- {where}", where=checkout.stage.home / "link").out
        == f"{checkout.path}\n"
    )
    said = checkout.good(f"pliant run jobdir --working-dir @job -- {where}").out.strip()
    assert Path(said).parent == checkout.stage.state / "checkpoints"


def test_values_of_variables_are_nowhere_but_sealed(checkout: Checkout, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}-file\n")
    env = tmp_path / "env"
    env.write_text(f"# a comment\nFROM_FILE={SECRET}-line\n")
    expected = hashlib.sha256(f"{SECRET}given{SECRET}-file{SECRET}-line1".encode()).hexdigest()
    check = (
        'said=$(printf %s "$HF_TOKEN$K$KEY$FROM_FILE$PYTHONUNBUFFERED" | sha256sum); '
        f'test "${{said%% *}}" = {expected} || exit 9'
    )
    options = f"-e K=given -e HF_TOKEN --secret KEY=@{file} --env-file {env}"
    checkout.good(f"pliant submit hidden {options} -- sh -c '{check}; sleep 1000'")
    until(lambda: checkout.item("hidden")["status"] == "Running", "it runs")
    assert checkout.good("pliant exec hidden -- printenv KEY").out == f"{SECRET}-file\n"
    described = checkout.good("pliant describe job hidden -o json").out
    assert json.loads(described)["environmentVariables"] == dict.fromkeys(
        ("FROM_FILE", "K", "HF_TOKEN", "KEY"), "***"
    )
    archive = tmp_path / "debug.zip"
    checkout.good(f"pliant debug bundle --file {archive}")
    with zipfile.ZipFile(archive) as parts:
        unpacked = "".join(parts.read(name).decode(errors="replace") for name in parts.namelist())
    everything = [described, checkout.good("pliant list -o json").out, unpacked]
    assert not [text for text in everything if SECRET in text]
    state = checkout.stage.state
    found = [
        path.relative_to(state).parts[0]
        for path in state.rglob("*")
        if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes()
    ]
    assert set(found) == {"sealed"}
    sealed = state / "sealed" / checkout.item("hidden")["id"]
    assert (sealed.stat().st_mode & 0o777, (sealed / "env").stat().st_mode & 0o777) == (0o700, 0o600)
    for pid, line in checkout.stage.processes().items():
        assert SECRET not in line, (pid, line)
    checkout.good("pliant delete hidden")
    until(lambda: not sealed.exists(), "its sealed folder goes")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "pliant submit x -- pythn train.py",
            "command 'pythn' not found in the job's PATH. Did you mean 'python'?",
        ),
        ("pliant submit x -- ./train.py", "./train.py is not executable: chmod +x ./train.py."),
        (
            "pliant submit x -- train.py",
            "command 'train.py' not found in the job's PATH. Did you mean './train.py'?",
        ),
        (
            "pliant submit x --working-dir /nonexistent -- ls",
            "working directory /nonexistent does not exist.",
        ),
        ("pliant submit x --working-dir train.py -- ls", "train.py is not a directory."),
        ("pliant submit x -e MISSING -- ls", "-e MISSING: MISSING is not set in this shell."),
        ("pliant submit x --export 'A B' -- ls", "--export A B: A B is not set in this shell."),
        ("pliant submit x --secret K=abc -- ls", "Use --secret K=@FILE"),
        ("pliant submit x --env-file /none -- ls", "--env-file /none: No such file or directory."),
        (
            "A=$(head -c 100000 /dev/zero | tr '\\0' x) B=$A pliant submit x -- ls",
            "at most 128 KiB can be captured. Use --export NAME,...",
        ),
        (
            "mkdir gone; cd gone; rmdir ../gone; pliant submit x -- ls",
            "the current directory no longer exists",
        ),
        ("pliant submit x", "-i, --image must be set"),
    ],
)
def test_what_cannot_run_is_refused_when_it_is_typed(checkout: Checkout, command: str, said: str) -> None:
    done = checkout.type(command)
    assert done.code == 2 and said in done.err, done.said
    assert "x" not in [entry["name"] for entry in json.loads(checkout.good("pliant list -o json").out)]


def test_run_answers_as_a_shell_does(checkout: Checkout) -> None:
    for command, code in (("pythn x", 127), ("./train.py", 126)):
        done = checkout.type(f"pliant run -- {command}")
        assert (done.code, done.out) == (code, "") and done.err.startswith("Error: "), done.said


def test_a_misspelt_command_in_a_shell_is_final_at_once(checkout: Checkout) -> None:
    checkout.good("pliant submit typo -- bash -c 'pythn x'")
    assert checkout.ends("typo") == "Failed"
    assert checkout.item("typo")["phaseMessage"] == (
        "task-0 ended with exit code 127; the command was not found, so it is not retried."
    )
    assert len(json.loads(checkout.good("pliant describe job typo -o json").out)["pods"]) == 1


def test_a_misspelt_script_is_tried_twice(checkout: Checkout) -> None:
    checkout.good("pliant cluster settings retry-base=100ms")
    checkout.good("pliant submit loops -- python trian.py")
    assert checkout.ends("loops") == "Failed"
    assert (
        "failed twice in the same way within a minute (crash loop)" in checkout.item("loops")["phaseMessage"]
    )
    checkout.good("pliant cluster settings retry-base=default")


def test_a_directory_that_goes_while_the_job_waits(checkout: Checkout) -> None:
    checkout.good("pliant submit blocker -g 2 -- sleep 1000")
    until(lambda: checkout.item("blocker")["status"] == "Running", "the GPUs are taken")
    checkout.good("mkdir soon-gone; pliant submit late -g 1 --working-dir soon-gone -- ls; rmdir soon-gone")
    checkout.good("pliant delete blocker")
    assert checkout.ends("late") == "Failed"
    path = checkout.path / "soon-gone"
    assert checkout.item("late")["phaseMessage"] == (
        f"task-0 could not be started: working directory {path} does not exist; it is not retried."
    )


def test_files_of_a_deleted_job_are_kept_and_come_back(checkout: Checkout) -> None:
    command = "sh -c 'echo weights > \"$PLIANT_JOB_DIR/model.pt\"'"
    for name in ("kept", "purged"):
        checkout.good(f"pliant run {name} -- {command}")
    checkout.good("pliant run logs-alone -- true")
    assert checkout.good("pliant delete logs-alone").err == ""
    done = checkout.good("pliant delete kept")
    assert done.out == "Job kept deleted successfully.\n"
    assert done.err.startswith("Its folder (") and "is kept until" in done.err
    assert str(checkout.stage.state / "trash" / "kept-") in done.err
    assert checkout.good("pliant delete purged --purge").err == ""
    until(lambda: "kept" in checkout.good("pliant restore-files").out, "it is in the trash")
    assert "purged" not in checkout.good("pliant restore-files").out
    until(lambda: "logs-alone" in checkout.good("pliant restore-files").out, "its logs are there too")
    path = checkout.good("pliant restore-files kept").out.split(" to ")[1].strip()
    assert Path(path, "model.pt").read_text() == "weights\n" and Path(path, "logs").is_dir()
    assert checkout.type("pliant restore-files kept").code == 3
    said = checkout.good("pliant cluster set --keep-deleted 30d").out
    assert said == "Files of deleted jobs are kept for 30d.\n"
    assert "720h0m0s" in checkout.good("pliant cluster settings").out


def test_a_job_that_lost_its_environment_is_held(stage: Stage) -> None:
    for command in ("pliant up --simulate 1x1", "pliant submit a -g 1 -- sleep 1000"):
        assert stage.run(command).code == 0
    until(lambda: statuses(stage) == {"a": "Running"}, "the GPU is taken")
    assert stage.run("pliant submit b -g 1 -- sleep 1000").code == 0
    found = json.loads(stage.run("pliant list -o json").out)
    identity = next(entry["id"] for entry in found if entry["name"] == "b")
    (stage.state / "sealed" / identity / "env").unlink()
    assert stage.run("pliant restart").code == 0
    assert stage.run("pliant delete a").code == 0
    said = stage.run("pliant why b").out
    assert "the values of its environment variables are not on this machine" in said, said
    item = next(entry for entry in json.loads(stage.run("pliant list -o json").out) if entry["name"] == "b")
    assert item["reason"]["code"] == "environment-lost" and item["status"] == "Pending"


def test_what_else_somebody_may_get_wrong(checkout: Checkout) -> None:
    checkout.good("env 'A B=with space' pliant run spaced -- sh -c 'echo ran'")
    large = checkout.stage.home / "large.env"
    large.write_text("".join(f"V{at}={'x' * 1000}\n" for at in range(2000)))
    refused = {
        f"--env-file {large}": "at most 128 KiB can be captured.",
        "--array ''": "Invalid array",
        "--array 0-99999": "too many elements (100000)",
        "--after x": "A job cannot depend on itself.",
        "--begin 2020-01-01T08:00": "in the past",
    }
    for option, said in refused.items():
        done = checkout.type(f"pliant submit x {option} -- true")
        assert done.code == 2 and said in done.err, done.said
    later = checkout.type("pliant submit first --after second -- true")
    assert later.code == 3, "a circle would need a job that is not there yet"
    assert "Dependency second does not exist in this project." in later.err
    assert checkout.type("pliant wait nowhere").code == 125
    for name in ("x", "first"):
        assert checkout.type(f"pliant describe job {name}").code == 3


def test_the_first_hour_in_four_commands(stage: Stage) -> None:
    """In a fresh home: from `up` to the script's last line, its exit code, and best.pt after `delete`."""
    checkout = Checkout(stage)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    typed = [
        checkout.type("pliant up --simulate 1x4:16G"),
        checkout.type("pliant run train -g 1 -- python train.py --epochs 2 --code 7"),
        checkout.type("pliant history -n 1"),
        checkout.type("pliant delete train"),
    ]
    print(f"four commands: {time.monotonic() - began:.1f} s")
    assert [done.code for done in typed] == [0, 7, 0, 0], [done.said for done in typed]
    assert typed[1].out.splitlines()[:2] == ["epoch 0: 1.0", "epoch 1: 0.5"]
    assert json.loads(typed[1].out.splitlines()[-1])[0] == str(checkout.python)
    assert "train" in typed[2].out
    assert (checkout.path / "best.pt").read_text() == "trained"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 30, "processor seconds of the commands: half a minute on an idle core"
