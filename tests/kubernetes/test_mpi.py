"""Open MPI in real pods: mpirun reaches the workers by the program that their pods run."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from examples.walkthrough import Stage
from tests.house.gaps import gap
from tests.kubernetes.control_plane import ROOT, shared, until
from tests.kubernetes.node import image, node, programs

UUIDS = ("GPU-00000000-0000-4000-8000-00000000000c", "GPU-00000000-0000-4000-8000-00000000000d")
SUMS = """\
import ctypes, os, socket
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
thing = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
world, rank, total = thing("ompi_mpi_comm_world"), ctypes.c_int(), ctypes.c_int()
assert mpi.MPI_Init(None, None) == 0
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mine = ctypes.c_int(rank.value + 1)
how = 1, thing("ompi_mpi_int"), thing("ompi_mpi_op_sum"), world
assert mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), *how) == 0
print("rank", rank.value, "sum", total.value, "in", socket.gethostname(), flush=True)
mpi.MPI_Finalize()
"""
"""Each rank prints the sum over all ranks."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One node with two GPUs, with this machine's Python and Open MPI."""
    binaries = programs()
    if shutil.which("mpirun") is None:
        gap("no Open MPI", "apt install openmpi-bin")
    base = tmp_path_factory.mktemp("mpi")
    (base / "sums.py").write_text(SUMS)
    found = {f"usr/bin/{name}": Path(shutil.which(name)).resolve() for name in ("mpirun", "orted")}
    tools = {"usr/bin/env": binaries / "busybox", "bin/bash": Path("/bin/bash").resolve()}
    root = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    env = [f"PATH={Path(sys.executable).parent}:/usr/bin:/bin", *root]
    images = [
        image("localhost/mpi:1", {**found, **tools}, base / "mpi.tar", env=env),
        image("localhost/bare:1", {}, base / "bare.tar"),
    ]
    folders = {
        Path(sys.base_prefix),
        Path(sys.prefix),
        ROOT,
        base,
        Path("/usr/lib"),
        Path("/usr/share/openmpi"),
    }
    folders |= {path for path in (Path("/lib"), Path("/lib64"), Path("/etc/openmpi")) if path.exists()}
    with shared(base / "cluster") as plane, node(plane, base / "kubelet", images, UUIDS, sorted(folders)):
        plane.base = base
        yield plane


@pytest.fixture
def typed(cluster, tmp_path):
    stage = Stage(tmp_path / "stage")

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    yield typed
    typed("runai delete dist")
    typed("pliant down --yes")
    assert stage.close() == {}, "these processes outlived `pliant down`"


def phase(typed):
    (item,) = json.loads(typed("runai list -A -o json"))
    return item["phase"]


def submit(typed, image, command):
    typed(f"runai submit-mpi dist --processes=2 -g 1 --cpu 0.1 -i {image} --command -- {command}")


def test_mpirun_starts_ranks_in_the_pods_of_the_workers(cluster, typed):
    submit(typed, "localhost/mpi:1", f"mpirun python3 {cluster.base}/sums.py")
    until(lambda: phase(typed) in ("Completed", "Failed"), "it has ended")
    said = typed("runai logs dist")
    assert phase(typed) == "Completed", said
    told = sorted(re.findall(r"rank (\d) sum (\d) in (\S+)", said))
    assert told == [("0", "3", "worker-0"), ("1", "3", "worker-1")], said


def test_an_image_without_python_says_so(cluster, typed):
    submit(typed, "localhost/bare:1", "sh -c 'trap \"exit 0\" TERM; sleep 1000 & wait'")
    until(lambda: phase(typed) == "Failed", "it has failed")
    pods = cluster.request("GET", "/api/v1/namespaces/default/pods")["items"]
    # The first worker that fails ends the job: the other one can end before it prints anything.
    failed = [it["metadata"]["name"] for it in pods if it["status"].get("phase") == "Failed"]
    assert failed
    for name in failed:
        assert "mpirun on a cluster needs python3 in the image" in cluster.kubectl("logs", name)
