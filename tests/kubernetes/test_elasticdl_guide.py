"""ElasticDL's guide on a cluster: its own kubectl commands and files, on nodes of its size."""

import os
import re
import shutil
import subprocess

import pytest

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import ROOT, Answered, until

FIRST = """python elasticdl/python/elasticdl/client/client.py \\
    --job_name=low-prio-job \\
    --model_file=elasticdl/python/examples/mnist_functional_api.py \\
    --train_data_dir=/data/mnist/train \\
    --master_pod_priority=high-priority \\
    --worker_pod_priority=low-priority \\
    --num_epoch=1 \\
    --minibatch_size=10 \\
    --record_per_task=100 \\
    --num_worker=2 \\
    --master_cpu_request=1000m \\
    --master_cpu_limit=1000m \\
    --master_memory_request=1024Mi \\
    --master_memory_limit=1024Mi \\
    --worker_cpu_request=3000m \\
    --worker_cpu_limit=3000m \\
    --worker_memory_request=4096Mi \\
    --worker_memory_limit=4096Mi \\
    --grads_to_wait=2 \\
    --codec_type=bytes \\
    --repository=gcr.io \\
    --image_base=gcr.io/elasticdl/elasticdl:dev"""
SECOND = (
    FIRST.replace("low-prio-job", "high-prio-job")
    .replace("worker_pod_priority=low", "worker_pod_priority=high")
    .replace("num_worker=2", "num_worker=1")
)


@pytest.fixture
def guide(planes, tmp_path):
    """Three nodes of 4 cores and 15 GB; Kubernetes leaves 3.92 cores and 12.3 GiB of each to pods."""
    with planes.own() as plane:
        for number in range(3):
            plane.add_node(f"n{number}", cpu="3920m", memory="12595Mi")
        folder = tmp_path / "elasticdl"
        shutil.copytree(ROOT / "examples" / "elasticdl", folder)
        stage = Stage(tmp_path / "stage")
        yield plane, stage, folder
        assert stage.close() == {}, "these processes outlived `pliant down`"


def test_the_guide_as_it_is_typed(guide):
    plane, stage, folder = guide
    path = os.pathsep.join((str(plane.pieces), stage.env["PATH"]))
    environment = {**stage.env, "PATH": path, "KUBECONFIG": str(plane.kubeconfig)}

    def typed(command, where=folder):
        words = ["bash", "-c", command]
        done = subprocess.run(
            words, check=False, cwd=where, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def states(selector=""):
        rows = typed(f"kubectl get pods --no-headers {selector}").splitlines()
        return sorted((row.split()[0].rsplit("-", 2)[0], row.split()[2]) for row in rows)

    typed("make data RECORDS=600 DATA=$HOME/.local/share/pliant/mnist")
    typed("kubectl get all --all-namespaces")
    typed("kubectl apply -f ../manifests/examples/elasticdl-rbac.yaml", folder / "elasticdl")
    typed(f"pliant up --kubeconfig {plane.kubeconfig}")
    assert "high-priority created" in typed("kubectl apply -f high-prio.yaml")
    assert "low-priority created" in typed("kubectl apply -f low-prio.yaml")
    until(lambda: "low-priority" in typed("pliant priorityclass list"), "the server knows the classes")

    typed(FIRST)
    one = "-l elasticdl_job_name=low-prio-job"
    names = ("low-prio-job-master-0", "low-prio-job-worker-0", "low-prio-job-worker-1")
    running = [(name, "Running") for name in names]
    until(lambda: states(one) == running, "one master and two workers run")
    kept = typed("kubectl get pods -o jsonpath={.items[*].metadata.uid}").split()

    typed(SECOND)
    two = "-l elasticdl_job_name=high-prio-job"
    wanted = [("high-prio-job-master-0", "Running"), ("high-prio-job-worker-0", "Running")]
    until(lambda: states(two) == wanted, "master and worker of the second run")
    until(lambda: len(states(one)) == 2, "one worker of the first was deleted")
    assert ("low-prio-job-master-0", "Running") in states(one)
    left = typed("kubectl get pods -o jsonpath={.items[*].metadata.uid}").split()
    assert len(set(kept) & set(left)) == 2, "no other pod was started again"
    listed = typed("pliant get pods")
    assert "elasticdl-worker-low-prio-job" in listed and "Pending" in listed

    for pod in plane.request("GET", "/api/v1/namespaces/default/pods")["items"]:
        if pod["metadata"]["labels"].get("elasticdl_job_name") == "high-prio-job":
            end(plane, pod["metadata"]["name"])
    until(lambda: states(one) and len(states(one)) == 3, "the worker that gave way runs again")

    def both():
        for pod in plane.request("GET", "/api/v1/namespaces/default/pods")["items"]:
            end(plane, pod["metadata"]["name"])
        return len(re.findall("Completed|Succeeded", typed("pliant list"))) >= 2

    until(both, "both")


def end(plane, name):
    """Simulates the end of a pod's containers; does nothing if the pod was replaced meanwhile."""
    path = f"/api/v1/namespaces/default/pods/{name}"
    try:
        pod = plane.request("GET", path)
        if pod["status"]["phase"] != "Running":
            return
        now = pod["metadata"]["creationTimestamp"]
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
        main = {"name": "main", "image": "elasticdl", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [{**main, "state": state}]}
        plane.request("PATCH", f"{path}/status", {"status": status})
    except Answered as error:
        if error.status != 404:
            raise
