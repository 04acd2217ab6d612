"""The environment of a distributed workload's tasks, and their rendezvous."""

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.launch import rendezvous
from pliant.engines.local.launch.distributed import variables
from pliant.engines.local.launch.rendezvous import NoPort, Rendezvous
from pliant.model.machine import Placement
from pliant.model.order import Start
from pliant.model.workload import AttemptId, Kind, Launch, Request, TaskGroup, Workload
from tests.engines.contract import NODE
from tests.engines.local_rig import LocalRig

ALONE = TaskGroup("master", Request(1))
LAUNCHER = TaskGroup("launcher", Request())


def distributed(framework, *groups, id="w-d", command=("train",)):
    launch = Launch("ubuntu", command)
    return Workload(id, "dist", "project-1", Kind.DISTRIBUTED, launch, groups, framework=framework)


def workers(wanted=2, least=None, most=None, devices=1):
    return TaskGroup("worker", Request(devices), least or wanted, wanted, most or wanted)


def names(workload):
    return [f"{group.name}-{index}" for group in workload.groups for index in range(group.wanted)]


def env(workload, task):
    return variables(workload, task, names(workload), 20001, Path("/folder"))


def test_pytorch():
    job = distributed("PyTorch", ALONE, workers(2, devices=4))
    assert [env(job, task)["RANK"] for task in names(job)] == ["0", "1", "2"]
    assert env(job, "worker-1") == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20001",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "2",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": "20001",
        "PET_NNODES": "3",
    }


def test_pytorch_with_a_varying_number_of_workers():
    job = distributed("PyTorch", ALONE, workers(2, 1, 5))
    found = env(job, "worker-0")
    assert found["WORLD_SIZE"] == "3", "those it starts with"
    assert {name: found[name] for name in found if name.startswith(("PET_RDZV", "PET_NNODES"))} == {
        "PET_NNODES": "2:6",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "127.0.0.1:20001",
        "PET_RDZV_ID": "w-d",
    }


def test_tensorflow_gives_every_task_a_port():
    job = distributed("TF", ALONE, workers(2))
    found = json.loads(env(job, "worker-1")["TF_CONFIG"])
    assert found["cluster"] == {
        "chief": ["127.0.0.1:20001"],
        "worker": ["127.0.0.1:20002", "127.0.0.1:20003"],
    }
    assert found["task"] == {"type": "worker", "index": 1}


def test_mpi_knows_the_number_of_workers_and_its_launcher_how_to_reach_them():
    job = distributed("MPI", LAUNCHER, workers(2))
    assert env(job, "worker-0") == {"RUNAI_MPI_NUM_WORKERS": "2"}
    found = env(job, "launcher-0")
    assert found["RUNAI_MPI_NUM_WORKERS"] == "2"
    for name in ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"):
        assert found[name] == "/folder/hostfile"
    for name in ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"):
        assert found[name] == "/folder/rsh"


def test_others():
    job = distributed("JAX", workers(2))
    assert env(job, "worker-1") == {
        "COORDINATOR_ADDRESS": "127.0.0.1",
        "COORDINATOR_PORT": "20001",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }
    job = distributed("XGBoost", ALONE, workers(2))
    assert env(job, "worker-1") == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20001",
        "RANK": "2",
        "WORLD_SIZE": "3",
    }


@pytest.mark.parametrize("task", ["worker-2", "other-0", "worker", "worker-x"])
def test_a_task_that_there_is_not(task):
    with pytest.raises(ValueError, match="has no task"):
        env(distributed("PyTorch", ALONE, workers(2)), task)


# -- ports -----------------------------------------------------------------------------------------


@pytest.fixture
def meeting(tmp_path):
    layout = Layout(tmp_path / "state")
    layout.prepare()
    for workload in ("w-a", "w-b"):
        layout.make(AttemptId(workload, "master-0", 1))
    return Rendezvous(layout)


A, A2, B = AttemptId("w-a", "master-0", 1), AttemptId("w-a", "master-0", 2), AttemptId("w-b", "master-0", 1)


def nothing():
    return False


def everything():
    return True


def test_a_port_is_kept_while_something_lives_and_replaced_when_it_was_taken(meeting):
    first = meeting.ports(A, 1, nothing)
    again = Rendezvous(meeting._layout)  # the next server
    assert again.ports(A, 1, nothing) == first
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        assert Rendezvous(meeting._layout).ports(A, 1, everything) == first, "it is their own"
        assert meeting.ports(A, 1, nothing) == first, "those that are starting were told that one"
        assert Rendezvous(meeting._layout).ports(A2, 1, nothing) != first


def test_two_workloads_have_different_ports(meeting, monkeypatch):
    monkeypatch.setattr(rendezvous, "LAST", rendezvous.FIRST + 40)
    blocks = [range(port, port + 8) for port in (meeting.ports(A, 8, nothing), meeting.ports(B, 8, nothing))]
    assert not set(blocks[0]) & set(blocks[1])


def test_no_port_is_left(meeting, monkeypatch):
    monkeypatch.setattr(rendezvous, "LAST", rendezvous.FIRST + 4)
    with pytest.raises(NoPort, match="8 neighbouring ports between 20000 and 20004 are not free"):
        meeting.ports(A, 8, nothing)


# -- together --------------------------------------------------------------------------------------

SUM = """
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(where) as server:
        total = 0
        for _ in range(world - 1):
            peer, _ = server.accept()
            with peer:
                total += int(peer.recv(10))
    print("sum", total)
else:
    import time
    end = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(where)
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.01)
    with peer:
        peer.sendall(str(rank).encode())
"""


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(tmp_path)
    rig.open()
    yield rig
    rig.clean()


def launch(rig, job, task, number=1):
    attempt = AttemptId(job.id, task, number)
    everybody = [{"id": name, "state": "active"} for name in names(job)]
    rig.engine.allocation(attempt, {"version": 1, "epoch": 1, "tasks": everybody})
    rig.engine.start(Start(attempt, Placement(NODE.name), job, "d-1", 1))
    return attempt


def test_tasks_meet(rig):
    job = distributed("PyTorch", ALONE, workers(2), command=(sys.executable, "-c", SUM))
    attempts = [launch(rig, job, task) for task in reversed(names(job))]
    for attempt in attempts:
        assert rig.end(attempt).succeeded, rig.log(attempt)
    assert rig.log(attempts[-1]) == "sum 3\n"
    rig.engine.forget(job)
    assert not (rig.state / "attempts" / job.id).exists()


ASK_EACH = r"""
while read -r host slots; do
    "$PRTE_MCA_plm_ssh_agent" -x -l me "$host" echo "$slots" 'for $PLIANT_ATTEMPT in $(pwd)'
done < "$PRTE_MCA_prte_default_hostfile"
"$PRTE_MCA_plm_ssh_agent" name-worker-9 true || echo "code $?"
cat "$HYDRA_HOST_FILE"
"""


def test_an_mpi_launcher_starts_commands_inside_the_workers(rig):
    hold = replace(workers(2), launch=Launch("ubuntu", ("sleep", "1000"), grace=2000))
    job = replace(distributed("MPI", LAUNCHER, hold, command=("sh", "-c", ASK_EACH)), slots=3)
    members = [launch(rig, job, task) for task in ("worker-0", "worker-1")]
    for attempt in members:
        rig.until(lambda attempt=attempt: rig.started(attempt), f"{attempt} runs")
    launcher = launch(rig, job, "launcher-0")
    assert rig.end(launcher).succeeded
    cwd = rig.state / "checkpoints" / job.id
    assert rig.log(launcher).splitlines() == [
        f"slots=3 for {members[0]} in {cwd}",
        f"slots=3 for {members[1]} in {cwd}",
        "mpi_agent: name-worker-9: name-worker-9 does not run",
        "code 255",
        "dist-worker-0:3",
        "dist-worker-1:3",
    ]
    assert all(rig.alive(attempt) for attempt in members)


def test_the_leader_has_a_command_of_its_own(rig):
    lead = replace(ALONE, launch=Launch("ubuntu", ("echo", "I lead")))
    job = distributed("PyTorch", lead, workers(1), command=("echo", "I follow"))
    for task, said in (("master-0", "I lead\n"), ("worker-0", "I follow\n")):
        attempt = launch(rig, job, task)
        assert rig.end(attempt).succeeded
        assert rig.log(attempt) == said


def test_without_a_port_a_task_says_why(rig, monkeypatch):
    monkeypatch.setattr(rendezvous, "LAST", rendezvous.FIRST)
    job = distributed("PyTorch", ALONE, workers(1))
    assert "ports between" in rig.end(launch(rig, job, "master-0")).error
