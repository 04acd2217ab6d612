"""doctor's checks of the shell, and the note about a script that cannot be resized."""

import os
import sys
from pathlib import Path

import pytest

from pliant.cli.server import checks
from tests.cli.fake import Answer
from tests.cli.items import workload
from tests.house.gaps import gap


def found(path: Path) -> dict[str, checks.Check]:
    return {one.what: one for one in checks.of_shell(str(path), local=True)}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with one folder, whose Python has neither torch nor safetensors."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_what_is_there_and_what_is_not(shell: Path, tmp_path: Path) -> None:
    seen = found(tmp_path / "not made yet" / "state")
    assert (seen["directory"].status, seen["directory"].text) == ("ok", str(tmp_path))
    assert seen["python"].status == "ok"
    assert str(shell / "python") in seen["python"].text
    assert (seen["torch"].status, seen["jupyter"].status) == ("warn", "warn")
    assert "pip install jupyterlab" in seen["jupyter"].text
    assert seen["state folder"].status in ("ok", "warn")
    (shell / "jupyter-lab").write_text("#!/bin/sh\n")
    (shell / "jupyter-lab").chmod(0o755)
    assert found(tmp_path)["jupyter"].status == "ok"


def test_a_python_that_does_not_run_fails(shell: Path, tmp_path: Path) -> None:
    (shell / "python").write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    assert found(tmp_path)["python"] == ("python", "fail", f"{shell}/python: broken")


@pytest.mark.parametrize(
    ("cuda", "newest", "status", "text"),
    [
        ("13.0", 13020, "ok", "2.9.1, built for CUDA 13.0; the driver supports CUDA 13.2"),
        (
            "13.0",
            12080,
            "fail",
            "the driver supports CUDA 12.8 at most: update the driver, or install a torch ",
        ),
        ("12.8", 12040, "ok", "the driver supports CUDA 12.4"),
        ("12.8", 0, "ok", "2.9.1, built for CUDA 12.8; there is no driver"),
        ("-", 0, "ok", "2.9.1, built for the CPU only"),
        ("-", 12080, "warn", "built for the CPU only: it uses no GPU"),
    ],
)
def test_torch_against_the_driver(
    shell: Path, tmp_path: Path, cuda: str, newest: int, status: str, text: str
) -> None:
    (shell / "python").write_text(f"#!/bin/sh\necho 3.12.1 2.9.1 {cuda} yes {newest}\n")
    seen = found(tmp_path)["torch"]
    assert seen.status == status and text in seen.text, seen


def test_a_directory_that_is_gone_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        assert found(tmp_path)["directory"].status == "fail"
    finally:
        os.chdir(tmp_path)


def test_doctor_returns_1_if_a_check_fails(shell, fake, run):
    finding = {"what": "locks", "holds": False, "text": "none"}
    fake.answers["GET", "/api/v1/server/doctor"] = Answer(body={"findings": [finding]})
    done = run("pliant doctor")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["CHECK", "STATUS", "DETAILS"]
    assert "locks  no     none" in done.out
    (shell / "python").write_text("#!/bin/sh\nexit 3\n")
    assert run("pliant doctor").code == 1
    assert '"status": "fail"' in run("pliant doctor -o json").out


@pytest.mark.parametrize(
    ("options", "text", "noted"),
    [
        ("--elastic", "print(1)", True),
        ("--elastic", "import pliant.train", False),
        ("", "print(1)", False),
        ("--elastic -i ubuntu", "print(1)", False),
    ],
)
def test_a_script_that_restarts_at_a_resize_says_so(fake, run, tmp_path, monkeypatch, options, text, noted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    done = run(f"pliant submit t -g 2 {options} -- python train.py")
    assert done.code == 0
    said = "t restarts at every resize. Save checkpoints to $PLIANT_CHECKPOINT_DIR"
    assert (said in done.err) is noted


def test_of_a_job(fake, run, tmp_path: Path, shell: Path) -> None:
    fake.workloads = [
        workload(
            "t",
            images=[],
            command="python train.py 7",
            arguments="",
            environmentVariables={"HF_TOKEN": "***"},
            phase="Failed",
            status="Failed",
            phaseMessage="task-0 ended with exit code 7.",
        )
    ]
    folders = {"workingDir": str(tmp_path / "gone"), "jobFolder": None, "logFolder": None}
    fake.answers["GET", "/api/v1/workloads/id-t/folders"] = Answer(body=folders)
    done = run("pliant doctor --job t -p team-a")
    assert done.code == 1
    rows = [line.split(maxsplit=2) for line in done.out.replace("working directory", "cwd").splitlines()]
    assert rows[0] == ["CHECK", "STATUS", "DETAILS"]
    assert rows[1] == ["cwd", "fail", f"{tmp_path}/gone does not exist: create it, or submit again"]
    assert rows[2] == ["command", "fail", f"train.py does not exist in {tmp_path}/gone"]
    assert rows[3] == ["variables", "ok", "1 variable: HF_TOKEN"]
    assert done.out.splitlines()[4].endswith("fail    task-0 ended with exit code 7.")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "train.py").touch()
    fake.workloads[0] |= {"phase": "Running", "status": "Running"}
    assert run("pliant doctor --job t -p team-a").code == 0
    fake.workloads[0]["command"] = "pythn train.py"
    assert "pythn is not found or not executable" in run("pliant doctor --job t -p team-a").out
    assert run("pliant doctor --job nowhere -p team-a").code == 3


def test_whom_jobs_run_as(shell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check names the account that owns the state folder and whether it may enter the directory."""
    assert found(tmp_path)["server account"].text == "yours: jobs run as you"
    if os.geteuid() != 0:
        gap("no root", "run the tests as root: they give a folder to another account")
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12345, 12345)
    place = tmp_path / "closed"
    place.mkdir(mode=0o700)
    monkeypatch.chdir(place)
    closed = next(it for it in (*reversed(place.parents), place) if not it.stat().st_mode & 0o001)
    said = found(state)["server account"]
    assert (said.status, said.text.partition(":")[0]) == (
        "fail",
        f"jobs run as 12345, which may not enter {closed}",
    )
    monkeypatch.chdir("/")
    assert found(state)["server account"].status == "ok"
