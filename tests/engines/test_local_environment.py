"""A task's environment: the variables, the folder, the documents."""

import json
import os
import sys

import pytest

from pliant.control.submit.variables import Variables
from pliant.model.machine import Placement, Share
from pliant.model.order import Start
from pliant.model.workload import AttemptId, Launch
from tests.engines.contract import GIB, GPUS, NODE, A, place, workload
from tests.engines.local_rig import LocalRig

ALLOWED_MODE = 0o600


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(
        tmp_path,
        project_name={"project-1": "team-a"}.get,
        url=lambda: "http://127.0.0.1:1234",
        token=lambda attempt: f"token of {attempt}",
        environ={"PATH": os.environ["PATH"], "HOME": "/root", "LC_ALL": "C", "SECRET": "x", "PLIANT_X": "1"},
    )
    rig.open()
    yield rig
    rig.clean()


def given(**values):
    return Variables(given=tuple(values.items()))


def shown(rig, attempt=A, placement=None, variables=None, **launch):
    """The environment and the working folder as a task sees them."""
    script = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    rig.start(attempt, Launch("ubuntu", (sys.executable, "-c", script), **launch), placement, variables)
    end = rig.end(attempt)
    assert end.succeeded, (end, rig.log(attempt))
    return json.loads(rig.log(attempt))


def test_the_variables_of_a_task(rig):
    env, cwd = shown(rig, placement=place(1, 3))
    uuids = f"{GPUS[1].uuid},{GPUS[3].uuid}"
    folder = rig.folder(A)
    expected = {
        "RUNAI_PROJECT": "team-a",
        "RUNAI_JOB_NAME": "name-w-a",
        "RUNAI_JOB_UUID": "w-a",
        "RUNAI_NUM_OF_GPUS": "2",
        "NODE_NAME": NODE.name,
        "JOB_NAME": "name-w-a",
        "JOB_UUID": "w-a",
        "CUDA_VISIBLE_DEVICES": uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PLIANT_ATTEMPT": str(A),
        "PLIANT_ATTEMPT_DIR": str(folder),
        "PLIANT_URL": "http://127.0.0.1:1234",
        "PLIANT_TOKEN_FILE": str(folder / "token"),
        "PLIANT_CHECKPOINT_DIR": str(rig.state / "checkpoints" / "w-a"),
        "HOME": "/root",
        "LC_ALL": "C",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert not {"SECRET", "PLIANT_X", "reporterGatewayURL"} & set(env), "what is the server's alone"
    assert cwd == expected["PLIANT_CHECKPOINT_DIR"]
    assert env["PATH"].startswith(os.environ["PATH"])
    assert (folder / "token").read_text() == f"token of {A}"
    for name in ("token", "order.json", "log", "claim"):
        assert (folder / name).stat().st_mode & 0o777 == ALLOWED_MODE, name
    again, _ = shown(rig, AttemptId(A.workload, A.task, 2))
    assert again["podUUID"] != env["podUUID"]


@pytest.mark.parametrize(
    ("placement", "number", "visible"),
    [
        (Placement(NODE.name), "0", ""),
        (place(0), "1", GPUS[0].uuid),
        (place(0, portion=500), "0.50", GPUS[0].uuid),
        (place(0, 1, portion=250), "0.50", f"{GPUS[0].uuid},{GPUS[1].uuid}"),
        (Placement(NODE.name, (Share(GPUS[2].uuid, 313, 5 * 10**9),)), "0.31", GPUS[2].uuid),
    ],
)
def test_numbers_and_devices(rig, placement, number, visible):
    env, _ = shown(rig, placement=placement)
    assert env["RUNAI_NUM_OF_GPUS"] == number
    assert env["CUDA_VISIBLE_DEVICES"] == visible
    assert env["NVIDIA_VISIBLE_DEVICES"] == (visible or "void")


def test_users_set_what_they_like_but_not_what_we_find_them_by(rig, tmp_path):
    (rig.state / "images.yaml").write_text("mine: {env: {A: image, B: image}, command: [x]}\n")
    env, cwd = shown(
        rig,
        variables=given(A="mine", RUNAI_JOB_NAME="mine", PLIANT_ATTEMPT="mine", PLIANT_OTHER="mine"),
        working_dir=str(tmp_path),
    )
    assert (env["A"], env["RUNAI_JOB_NAME"], env["PLIANT_ATTEMPT"]) == ("mine", "mine", str(A))
    assert "PLIANT_OTHER" not in env
    assert cwd == str(tmp_path)


def test_entries_of_the_catalogue_bring_their_environment(rig, tmp_path):
    script = "import os; print(os.environ['A'], os.environ['B'], os.getcwd())"
    entry = {"command": [sys.executable, "-c", script], "env": {"A": 1, "B": 2}, "workdir": str(tmp_path)}
    (rig.state / "images.yaml").write_text(json.dumps({"mine": entry}))
    rig.start(A, Launch("mine:7"), variables=given(B="user"))
    assert rig.end(A).succeeded
    assert rig.log(A) == f"1 user {tmp_path}\n"


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (Launch("ubuntu", ("no-such-command",)), "exec no-such-command: No such file or directory"),
        (Launch("ubuntu", ("/",)), "exec /: Permission denied"),
        (
            Launch("ubuntu", ("ls",), working_dir="/no/such/folder"),
            "/no/such/folder does not exist",
        ),
        (Launch("ubuntu", ("ls", "a\0b")), "null byte"),
        (Launch("team/unknown"), "image team/unknown is unknown here"),
    ],
)
def test_what_cannot_run_says_why(rig, launch, reason):
    rig.start(A, launch)
    end = rig.end(A)
    assert reason in end.error and not end.succeeded and not end.lost
    assert not rig.started(A)
    rig.drop()
    rig.open()
    assert rig.end(A) == end


@pytest.mark.parametrize("image", ["ubuntu", "python"])
def test_without_a_command_a_system_exits_at_once(rig, image):
    rig.start(A, Launch(image))
    assert rig.end(A).succeeded


def test_refuse_and_notice(rig):
    assert "unknown" in str(rig.engine.refuse(Launch("team/unknown"), Variables()))
    assert rig.engine.refuse(Launch("team/unknown", ("ls",)), Variables()) is None
    assert "runs on this machine" in rig.engine.notice(Launch("team/unknown", ("ls",)))
    assert rig.engine.notice(Launch("ubuntu")) is None


def test_the_allocation_document(rig):
    rig.run(A, rig.forever(), place(0, 1))
    file = rig.folder(A) / "allocation.json"
    task = {
        "id": A.task,
        "attempt": 1,
        "node": NODE.name,
        "gpus": [GPUS[0].uuid, GPUS[1].uuid],
        "state": "active",
        "deadline": None,
    }
    assert json.loads(file.read_text()) == {"version": 1, "epoch": 1, "tasks": [task]}
    later = {"version": 2, "epoch": 1, "tasks": [{**task, "gpus": [GPUS[0].uuid]}]}
    rig.engine.allocation(A, later)
    assert json.loads(file.read_text()) == later


def test_the_start_leaves_a_document_that_came_before_it(rig):
    document = {"version": 7, "epoch": 1, "tasks": []}
    rig.engine.allocation(A, document)
    rig.run(A, rig.forever())
    assert json.loads((rig.folder(A) / "allocation.json").read_text()) == document


def test_names_that_are_no_folders_are_refused(rig):
    bad = AttemptId("..", "worker-0", 1)
    launch = rig.forever()
    rig.engine.start(Start(bad, Placement(NODE.name), workload("w-x", launch), "d", 1))
    assert "cannot be the name of a folder" in rig.end(bad).error


def test_memory_is_in_the_order(rig):
    rig.run(A, rig.forever(), place(2, portion=500))
    order = json.loads((rig.folder(A) / "order.json").read_text())
    assert order["shares"] == [{"gpu": GPUS[2].uuid, "portion": 500, "memory": 8 * GIB}]
    assert order["version"] == 2 and order["epoch"] == 1 and order["attempt"] == str(A)
