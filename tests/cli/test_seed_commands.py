"""Every command line of the walk-throughs, as printed there, and the request it becomes."""

import pytest

from tests.cli.fake import Chunks
from tests.cli.items import workload

DEMO = "gcr.io/run-ai-demo/quickstart"
QUICKSTART = "runai.jfrog.io/demo/quickstart"
SLEEP = {"command": "sleep infinity", "commandArgv": ["sleep", "infinity"]}


def training(name, image, **spec):
    return "trainings", {"name": name, "spec": {"image": image, **spec}}


def filler(name):
    spec = {"image": "ubuntu", "compute": {"gpuDevicesRequest": 1}, **SLEEP, "backoffLimit": 0}
    return "workspaces", {"name": name, "spec": spec}


def portion(name):
    compute = {"gpuRequestType": "portion", "gpuPortionRequest": 0.5, "gpuDevicesRequest": 1}
    return training(name, QUICKSTART, compute=compute)


MEMORY = {"gpuRequestType": "memory", "gpuMemoryRequest": "5G", "gpuDevicesRequest": 1}
UNNAMED = ("trainings", {"spec": {"image": QUICKSTART, "compute": MEMORY}})

SUBMITS = [
    # elasticity, both editions
    (
        f"runai submit elastic1 -i {DEMO} -g 1 --elastic",
        training("elastic1", DEMO, elastic=True, compute={"gpuDevicesRequest": 1}),
    ),
    ("runai submit filler1 -i ubuntu --command sleep --args infinity -g 1 --interactive", filler("filler1")),
    ("runai submit filler1 -i ubuntu -g 1 --interactive --command -- sleep infinity", filler("filler1")),
    ("runai submit filler2 -i ubuntu --command sleep --args infinity -g 1 --interactive", filler("filler2")),
    ("runai submit filler2 -i ubuntu  -g 1 --interactive --command -- sleep infinity", filler("filler2")),
    (
        f"runai submit elastic2 -i {DEMO} -g 2 --elastic ",
        training("elastic2", DEMO, elastic=True, compute={"gpuDevicesRequest": 2}),
    ),
    # over-quota, both editions
    (
        f"runai submit a2 -i {QUICKSTART} -g 2 -p team-a",
        training("a2", QUICKSTART, compute={"gpuDevicesRequest": 2}),
    ),
    (
        f"runai submit b1 -i {QUICKSTART} -g 1 -p team-b",
        training("b1", QUICKSTART, compute={"gpuDevicesRequest": 1}),
    ),
    (
        f"runai training submit a1 -i {QUICKSTART} -g 1 -p team-a",
        training("a1", QUICKSTART, compute={"gpuDevicesRequest": 1}),
    ),
    (
        f"runai training submit b2 -i {QUICKSTART} -g 1 -p team-b",
        training("b2", QUICKSTART, compute={"gpuDevicesRequest": 1}),
    ),
    # fractions, both editions
    (f"runai submit frac05 -i {QUICKSTART} -g 0.5", portion("frac05")),
    (f"runai submit frac05-2 -i {QUICKSTART} -g 0.5 ", portion("frac05-2")),
    (f"runai training submit frac05 -i {QUICKSTART} --gpu-portion-request 0.5", portion("frac05")),
    (
        f"runai submit  -i {QUICKSTART} --gpu-memory 5G",
        ("trainings", {"nameBase": "job", "nameStyle": "index", **UNNAMED[1]}),
    ),
    (f"runai training submit -i {QUICKSTART} --gpu-memory-request 5G", UNNAMED),
]


@pytest.mark.parametrize(("line", "expected"), SUBMITS, ids=[line for line, _ in SUBMITS])
def test_submits(line, expected, run, fake):
    run("runai project set team-a")
    result = run(line)
    assert result.code == 0, result.err
    kind, body = expected
    project = "team-b" if "team-b" in line else "team-a"
    rest = {"projectName": project, "source": "CLI", "submittedBy": "yaron"}
    assert fake.last.path == f"/api/v1/workloads/{kind}"
    assert fake.last.body == {**body, **rest}
    assert len(fake.last.headers["idempotency-key"]) == 32


@pytest.mark.parametrize("line", ["runai project set team-a", "runai config project team-a"])
def test_choosing_a_project(line, run, fake):
    assert run(line) == (0, "Project team-a has been set as default project\n", "")
    run("runai list")
    assert any(("filterBy", "projectName==team-a") in request.query for request in fake.requests)


@pytest.mark.parametrize("line", ["runai list", "runai list jobs", "runai list job", "runai training list"])
def test_lists_are_of_the_current_project(line, run, fake):
    fake.workloads = [workload("a1"), workload("b1", projectName="team-b")]
    run("runai config project team-a")
    out = run(line).out
    assert "a1 " in out
    assert "b1 " not in out


@pytest.mark.parametrize("line", ["runai list -A", "runai workload list -A", "runai list jobs -A"])
def test_lists_of_all_projects(line, run, fake):
    fake.workloads = [workload("a1"), workload("b1", projectName="team-b")]
    result = run(line)
    assert result.code == 0
    assert "a1 " in result.out
    assert "b1 " in result.out


def test_delete_of_two_never_asks(run, fake):
    run("runai project set team-a")
    fake.workloads = [workload("elastic1"), workload("filler1", type="Workspace")]
    result = run("runai delete elastic1 filler1")
    assert result == (0, "Job elastic1 deleted successfully.\nJob filler1 deleted successfully.\n", "")
    deleted = [request.path for request in fake.requests if request.method == "DELETE"]
    assert deleted == ["/api/v1/workloads/id-elastic1", "/api/v1/workloads/id-filler1"]


@pytest.mark.parametrize("line", ["runai exec frac05 nvidia-smi", "runai training exec frac05 nvidia-smi"])
def test_exec(line, run, fake):
    run("runai project set team-a")
    fake.workloads = [workload("frac05")]
    fake.chunks["/api/v1/exec/s1/output"] = Chunks([b"GPU  Memory\n", b"0    8192MiB\n"])
    result = run(line)
    assert result == (0, "GPU  Memory\n0    8192MiB\n", "")
    sent = fake.sent("POST", "/api/v1/workloads/id-frac05/exec")
    assert sent[0]["command"] == ["nvidia-smi"]
    assert (sent[0]["tty"], sent[0]["stdin"]) == (False, False)


def test_login(run, fake):
    assert run(f"runai login --server {fake.url} --token fake-token").code == 0
