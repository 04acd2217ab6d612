"""A Job with a part of a GPU on a real kubelet whose node has an agent: its pods' limits change while they
run. The controller of Jobs does not run here: the test makes its pods as that would.
"""

import json
import re
import subprocess

import pytest

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import until
from tests.kubernetes.test_node_agent import FOLDER, GIB, JOBS, OPS, STAYS, WAITS, agent, cluster

__all__ = ["agent", "cluster"]
BATCH = "/apis/batch/v1/namespaces/runai-team-a/jobs"
NOTES = {"gpu-fraction": "0.25", "gpu-fraction-limit": "0.75"}


@pytest.fixture
def stage(cluster, tmp_path):
    stage = Stage(tmp_path / "stage")
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


def test_a_jobs_pods_get_their_limits_from_the_agent(cluster, agent, stage):
    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def made(name, notes, script):
        """A Job of one pod, and that pod."""
        container = {"name": "train", "image": "localhost/job:1", "command": ["sh", "-c", script]}
        container["resources"] = {"requests": {"cpu": "100m"}}
        spec = {"schedulerName": "pliant", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        template = {"metadata": {"annotations": notes}, "spec": {**spec, "containers": [container]}}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        job = cluster.request("POST", BATCH, {**body, "spec": {"template": template}})
        template = job["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        metadata = {**template["metadata"], "generateName": f"{name}-"}
        metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        return cluster.request("POST", f"{JOBS}/pods", body)["metadata"]["name"]

    def inside(pod, script):
        return cluster.kubectl("-n", "runai-team-a", "exec", pod, "-c", "train", "--", "sh", "-c", script)

    def shown(pod):
        words = [cluster.pieces / "kubectl", f"--kubeconfig={cluster.kubeconfig}", "-n", "runai-team-a"]
        done = subprocess.run([*words, "logs", pod], check=False, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""  # otherwise its container has not begun

    def limit(pod):
        return [
            int(found) // GIB
            for found in re.findall(r" limit=(\d+)", inside(pod, "cat /etc/pliant/gpu.conf"))
        ]

    def went_on(pod, step, times):
        inside(pod, f": > /tmp/{step}")
        until(lambda: shown(pod).count("ready") == times, f"{pod} has done {step}")
        found = [line.split() for line in shown(pod).splitlines()]
        return [int(it[2]) for it in found if it[0] in ("total", "fill")][-2:]

    def phases():
        return {it["name"]: it["phase"] for it in json.loads(typed("runai list -A -o json"))}

    agent.begin("agent-1")
    agent.until_ready("agent-1")
    typed(f"pliant up --kubeconfig {cluster.kubeconfig} --share-image localhost/pliant:1 --tls")
    typed("pliant project create team-a --quota 2")
    url = json.loads((stage.state / "server.json").read_text())["url"]
    ca = next(stage.state.rglob("trusted.pem"))
    file = stage.folder / "webhook.yaml"
    file.write_text(typed(f"pliant cluster webhook --url {url} --ca {ca}"))
    cluster.kubectl("apply", "-f", str(file))
    if cluster.get(JOBS) is None:
        cluster.add_namespace("runai-team-a")
    try:
        lender = made("lender", NOTES, f"{WAITS} | /bin/probe {OPS}")
        until(lambda: shown(lender).count("ready") == 1, "it runs")
        until(lambda: limit(lender) == [12], "its file says that more was lent to it")
        assert went_on(lender, "first", 2) == [12 * GIB, 12 * GIB], "without a restart"
        until(lambda: agent.share("lender", "used_bytes") == 12 * GIB, "the agent sees what it uses")
        assert agent.inside("agent-1", f"ls {FOLDER}").split() == [f"runai-team-a_{lender}"]
        kept = inside(
            lender, "(echo no > /etc/pliant/gpu.conf || rm /run/pliant/ledger || echo kept) 2>/dev/null"
        )
        assert kept.split() == ["kept"]

        other = made("other", {"gpu-fraction": "0.5"}, STAYS)
        until(lambda: limit(lender) == [8], "it is to give back")
        assert phases()["other"] != "Running", "what it uses is not free yet"
        assert went_on(lender, "second", 3) == [8 * GIB, 8 * GIB]
        until(lambda: phases() == {"lender": "Running", "other": "Running"}, "it has given back")
        until(lambda: limit(other) == [8], "it has what it asked for")
        status = cluster.request("GET", f"{JOBS}/pods/{lender}")["status"]["containerStatuses"]
        assert [each["restartCount"] for each in status] == [0]
    finally:
        cluster.kubectl("delete", "-f", str(file))
        for kind in ("jobs", "pods"):
            cluster.kubectl("delete", kind, "-n", "runai-team-a", "--all", "--wait=false")
    until(lambda: not json.loads(typed("runai list -A -o json")), "Pliant has nothing of them any more")
    until(
        lambda: agent.inside("agent-1", f"ls -A {FOLDER}").split() == [".lock"], "nothing stays", seconds=240
    )
    typed("pliant down --yes")
