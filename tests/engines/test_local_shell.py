"""A task in the directory and with the environment of its submitter's shell; what is refused at submit."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.submit.variables import Variables
from pliant.engines.local.folder.layout import boot_id
from pliant.engines.local.launch.environment import NoFolder, check_folder
from pliant.model.workload import JOB_FOLDER, Launch, SeenFolder
from tests.engines.contract import A, workload
from tests.engines.local_rig import LocalRig

SHOW = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
PYTHON = Launch("", (sys.executable, "-c", SHOW))


@pytest.fixture
def rig(tmp_path):
    environ = {"PATH": "/server/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/server", "HOME": "/root"}
    rig = LocalRig(tmp_path, environ=environ)
    rig.open()
    yield rig
    rig.clean()


def seen(folder: Path, **changes) -> SeenFolder:
    found = folder.stat()
    return replace(SeenFolder(str(folder), found.st_dev, found.st_ino, boot_id()), **changes)


def shown(rig, launch=PYTHON, variables=None):
    rig.start(A, launch, variables=variables)
    end = rig.end(A)
    assert end.succeeded, (end, rig.log(A))
    return json.loads(rig.log(A))


def test_a_captured_environment_is_all_that_there_is(rig):
    env, _ = shown(rig, variables=Variables((), (("PATH", "/mine:/usr/bin"), ("A", "1")), whole=True))
    assert env["PATH"] == f"/mine:/usr/bin:{Path(sys.executable).parent}" and env["A"] == "1"
    assert not {"VIRTUAL_ENV", "HOME"} & set(env), "nothing of the server's"
    assert env["PYTHONUNBUFFERED"] == "1"


def test_some_captured_variables_lie_above_the_servers(rig):
    given, captured = (("A", "given"),), (("A", "captured"), ("B", "captured"), ("RUNAI_JOB_NAME", "x"))
    env, _ = shown(rig, variables=Variables((*given, ("PYTHONUNBUFFERED", "")), captured))
    assert (env["A"], env["B"], env["VIRTUAL_ENV"]) == ("given", "captured", "/server")
    assert env["RUNAI_JOB_NAME"] == "name-w-a", "captured variables say nothing about the job"
    assert env["PYTHONUNBUFFERED"] == ""


def test_programs_of_pliants_own_have_the_servers_environment_and_the_job_folder(rig, tmp_path):
    launch = Launch("gcr.io/run-ai-demo/quickstart", (sys.executable, "-c", SHOW), seen=seen(tmp_path))
    env, cwd = shown(rig, launch, Variables((("B", "2"),), (("A", "1"),), whole=True))
    assert "A" not in env and (env["B"], env["VIRTUAL_ENV"]) == ("2", "/server")
    assert cwd == str(rig.state / "checkpoints" / "w-a")


@pytest.mark.parametrize("image", ["", "ubuntu", "team/unknown"])
def test_other_commands_start_where_they_were_submitted(rig, tmp_path, image):
    assert shown(rig, replace(PYTHON, image=image, seen=seen(tmp_path)))[1] == str(tmp_path)


def test_what_was_asked_for_wins_over_the_catalogue_and_that_over_the_shell(rig, tmp_path):
    mine, image = tmp_path / "mine", tmp_path / "image"
    for folder in (mine, image):
        folder.mkdir()
    (rig.state / "images.yaml").write_text(json.dumps({"it": {"workdir": str(image)}}))
    launch = replace(PYTHON, image="it", seen=seen(tmp_path))
    assert rig.engine.folders(workload("w-a", launch)).working_dir == str(image)
    asked = replace(launch, working_dir=str(mine))
    assert rig.engine.folders(workload("w-a", asked)).working_dir == str(mine)
    job = replace(launch, working_dir=JOB_FOLDER)
    assert rig.engine.folders(workload("w-a", job)).working_dir.endswith("/checkpoints/w-a")
    assert shown(rig, launch)[1] == str(image)


def test_a_folder_that_is_another_one_by_now_is_not_started_in(rig, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    before = seen(folder)
    folder.rename(tmp_path / "moved")
    folder.mkdir()
    rig.start(A, replace(PYTHON, seen=before))
    end = rig.end(A)
    assert end.code == 126 and "is another folder than when the workload was submitted" in end.error
    assert not rig.engine.unseen(replace(PYTHON, seen=seen(folder)))
    assert rig.engine.unseen(replace(PYTHON, seen=before))
    assert rig.engine.unseen(replace(PYTHON, seen=seen(folder, boot="another machine")))
    assert not rig.engine.unseen(replace(PYTHON, seen=before, working_dir=JOB_FOLDER)), (
        "it does not matter there"
    )


def test_numbers_from_before_a_restart_of_the_machine_mean_nothing(rig, tmp_path):
    launch = replace(PYTHON, seen=seen(tmp_path, device=1, inode=1, boot="before"))
    assert shown(rig, launch)[1] == str(tmp_path)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("gone", "does not exist"),
        ("file", "is not a directory"),
        ("file/below", "is not accessible: Not a directory"),
        ("x" * 300, "is not accessible: File name too long"),
    ],
)
def test_a_directory_that_cannot_be(rig, tmp_path, folder, said):
    (tmp_path / "file").write_text("")
    launch = replace(PYTHON, working_dir=str(tmp_path / folder))
    assert said in str(rig.engine.refuse(launch, Variables()))
    rig.start(A, launch)
    end = rig.end(A)
    assert end.code == 126 and said in end.error


def test_a_directory_that_the_servers_account_may_not_enter(tmp_path):
    """Checked as an account other than root, which may enter every directory."""
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            check_folder(Launch("", ("ls",), working_dir=str(closed)), str(closed))
        except NoFolder as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, encoding="utf-8") as said:
        assert f"working directory {closed} is not accessible" in said.read()
    closed.chmod(0o700)


def test_a_relative_directory_is_refused(rig):
    assert "is not an absolute path" in str(
        rig.engine.refuse(replace(PYTHON, working_dir="sub"), Variables())
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pythn",), "command 'pythn' not found in the job's PATH. Did you mean 'python'?"),
        (("here",), "command 'here' not found in the job's PATH. Did you mean './here'?"),
        (("zzzzzzzz",), "command 'zzzzzzzz' not found in the job's PATH."),
        (("./here",), "./here is not executable: chmod +x ./here."),
        (("./none",), "command ./none does not exist."),
        (("bin/",), "bin/ is a directory, not a program."),
        (("plain",), "bin/plain is not executable"),
        (("python",), None),
        (("bin/python",), None),
    ],
)
def test_the_first_word_is_looked_up_as_the_task_would(rig, tmp_path, words, said):
    work = tmp_path / "work"
    (work / "bin").mkdir(parents=True)
    for name in ("here", "bin/plain", "bin/python"):
        (work / name).write_text("#!/bin/sh\n")
    os.chmod(work / "bin/python", 0o755)
    launch = Launch("", words, seen=seen(work))
    found = rig.engine.refuse(launch, Variables((), (("PATH", "bin"),), whole=True))
    assert found is None if said is None else said in str(found)


def test_without_its_sealed_values_it_does_not_start(rig):
    rig.start(A, replace(PYTHON, variables=("A",)))
    end = rig.end(A)
    assert end.code == 126 and "delete the workload and submit it again" in end.error


def test_a_session_has_the_environment_of_the_task(rig):
    rig.start(A, Launch("", ("sleep", "1000")), variables=Variables((("A", "mine"),)))
    rig.until(lambda: rig.started(A), "it runs")
    assert "mine" not in (rig.folder(A) / "order.json").read_text()
    rig.drop()
    rig.open()
    rig.until(lambda: rig.started(A), "it is found again")
    session = rig.engine.exec(A, ["printenv", "A"], tty=False, stdin=False, rows=0, columns=0)
    output = b""
    while (data := session.read(1.0)) != b"":
        output += data or b""
    assert output == b"mine\n"
    rig.stop(A)
    rig.end(A)
