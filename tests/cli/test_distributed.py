"""The submits of workloads of several tasks, and the groups of commands they belong to."""

import pytest

from tests.cli.items import workload

PLAIN = {"distributedFramework": "PyTorch", "numWorkers": 1}
TENTH = {
    "gpuRequestType": "portion",
    "gpuPortionRequest": 0.1,
    "gpuDevicesRequest": 1,
    "cpuMemoryRequest": "100M",
}

SUBMITS = [
    (
        "training pytorch submit d -i I --workers 2 --gpu-request-type portion --gpu-portion-request 0.1"
        " --gpu-devices-request 1 --cpu-memory-request 100M",
        {"distributedFramework": "PyTorch", "numWorkers": 2, "compute": TENTH},
        {},
    ),
    ("pytorch submit d -i I", PLAIN, {}),
    (
        "training pytorch submit d -i I --workers 3 --min-replicas 1 --max-replicas 5 --no-master",
        {"distributedFramework": "PyTorch", "numWorkers": 3, "minReplicas": 1, "maxReplicas": 5},
        {"masterSpecSameAsWorker": False},
    ),
    (
        "training pytorch submit d -i I -g 2 --master-gpu-devices-request 1 --master-args \"--lead 'a b'\"",
        {**PLAIN, "compute": {"gpuDevicesRequest": 2}},
        {
            "masterSpecSameAsWorker": False,
            "masterSpec": {
                "args": "--lead 'a b'",
                "argsArgv": ["--lead", "a b"],
                "compute": {"gpuDevicesRequest": 1},
            },
        },
    ),
    (
        "training mpi submit d -i I --slots-per-worker 4",
        {"distributedFramework": "MPI", "numWorkers": 1, "slotsPerWorker": 4},
        {},
    ),
    ("training tensorflow submit d -i I --workers 2", {"distributedFramework": "TF", "numWorkers": 2}, {}),
    ("training tf submit d -i I", {"distributedFramework": "TF", "numWorkers": 1}, {}),
    (
        "xgboost submit d -i I --clean-pod-policy all",
        {"distributedFramework": "XGBoost", "numWorkers": 1, "cleanPodPolicy": "All"},
        {},
    ),
    ("training jax submit d -i I", {"distributedFramework": "JAX", "numWorkers": 1}, {}),
    (
        "submit-mpi d --processes=2 -g 1 -i I",
        {"distributedFramework": "MPI", "numWorkers": 2, "compute": {"gpuDevicesRequest": 1}},
        {},
    ),
    (
        "submit-mpi d --processes 2 -i I -- sh -c 'sleep infinity'",
        {
            "distributedFramework": "MPI",
            "numWorkers": 2,
            "args": "sh -c 'sleep infinity'",
            "argsArgv": ["sh", "-c", "sleep infinity"],
        },
        {},
    ),
    (
        "submit-dist pytorch d --workers 2 --min-replicas 1 --max-replicas 3 -g 0.5 -i I",
        {
            "distributedFramework": "PyTorch",
            "numWorkers": 2,
            "minReplicas": 1,
            "maxReplicas": 3,
            "compute": {"gpuRequestType": "portion", "gpuPortionRequest": 0.5, "gpuDevicesRequest": 1},
        },
        {},
    ),
    ("submit-dist mpi d --processes 3 -i I", {"distributedFramework": "MPI", "numWorkers": 3}, {}),
    ("submit-dist tf d --workers 3 -i I", {"distributedFramework": "TF", "numWorkers": 3}, {}),
    (
        "submit-dist xgboost d --no-master -i I",
        {"distributedFramework": "XGBoost", "numWorkers": 1},
        {"masterSpecSameAsWorker": False},
    ),
]


@pytest.mark.parametrize(("words", "spec", "top"), SUBMITS, ids=[words for words, _, _ in SUBMITS])
def test_what_is_sent(words, spec, top, run, fake):
    result = run(f"pliant -p team-a {words}")
    assert result.code == 0, result.err
    assert fake.last.path == "/api/v1/workloads/distributed"
    body = fake.last.body
    assert body["spec"] == {"image": "I", **spec}
    assert {key: body[key] for key in body if key.startswith("master")} == top


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("training pytorch submit d -i I --workers 0", "--workers"),
        ("training tf submit d -i I --min-replicas 1", "No such option"),
        ("training pytorch submit d -i I --no-master --master-args x", "--no-master excludes"),
        ('training pytorch submit d -i I --master-command "it\'s"', "--master-command: No closing quotation"),
        ("submit-dist spark d -i I", "Unknown command 'spark'"),
    ],
)
def test_what_is_refused_before_anything_is_sent(words, said, run, fake):
    result = run(f"pliant -p team-a {words}")
    assert result.code == 2
    assert said in result.err
    assert fake.requests == []


def test_what_is_printed(run, fake):
    assert run("runai training pytorch submit d -i I -p team-a").out == (
        "The training 'd' has been submitted successfully\n"
        "You can run `runai training pytorch describe d -p team-a` to check its status\n"
    )
    assert run("runai submit-mpi d -i I -p team-a").out == (
        "The job 'd' has been submitted successfully\n"
        "You can run `runai describe job d -p team-a` to check its status\n"
    )


@pytest.fixture
def crowd(fake):
    many = {"number": 2, "min": 1, "max": 3, "parallelism": 2, "completions": 2}
    torch = {"type": "Distributed", "distributedFramework": "PyTorch", "requestedPods": many}
    fake.workloads = [
        workload("plain"),
        workload("torch", **torch),
        workload("mpi", type="Distributed", distributedFramework="MPI"),
        workload("work", type="Workspace"),
    ]
    return fake


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("training", ["mpi", "plain", "torch"]),
        ("training standard", ["plain"]),
        ("training pytorch", ["torch"]),
        ("mpi", ["mpi"]),
        ("workspace", ["work"]),
        ("workload", ["mpi", "plain", "torch", "work"]),
    ],
)
def test_each_group_shows_its_own(group, names, run, crowd):
    result = run(f"pliant {group} list -p team-a --no-headers")
    assert [line.split()[0] for line in result.out.splitlines()] == names


def test_the_number_of_pods_may_vary(run, crowd):
    result = run("pliant training pytorch list -p team-a --no-headers")
    assert "1/1-3" in result.out.split()


def test_a_group_knows_only_its_own_names(run, crowd):
    assert run("pliant training pytorch describe torch -p team-a").code == 0
    assert run("pliant training describe torch -p team-a").code == 0
    result = run("pliant training pytorch describe mpi -p team-a")
    assert (result.code, "does not exist in project team-a" in result.err) == (3, True)


def test_suspend_goes_to_its_own_path(run, crowd):
    assert run("pliant training pytorch suspend torch -p team-a").code == 0
    assert crowd.last.path == "/api/v1/workloads/distributed/id-torch/suspend"


def test_a_master_with_a_priority_of_its_own(run, fake):
    result = run("pliant training pytorch submit d -i I -p team-a --workers 2 -g 1 --master-priority high")
    assert result.code == 0, result.err
    body = fake.last.body
    assert body["masterSpec"] == {"priorityClass": "high"}
    assert (body["masterSpecSameAsWorker"], "priorityClass" in body["spec"]) == (False, False)


def test_a_priority_of_ones_own_is_for_the_server_to_know(run, fake):
    for line in ("training pytorch submit d --workers 2", "training submit d"):
        result = run(f"pliant {line} -i I -p team-a -g 1 --priority urgent")
        assert result.code == 0, result.err
        assert fake.last.body["spec"]["priorityClass"] == "urgent"
