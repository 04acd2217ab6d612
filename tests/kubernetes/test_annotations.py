"""Annotations of Pliant on pods that others create, with its webhook and its policy on a real API server."""

import json
import subprocess

import pytest

from tests.kubernetes.control_plane import shared, until
from tests.kubernetes.test_controllers import Typing

PODS = "/api/v1/namespaces/default/pods"
SAID = "Annotations pliant/... are written by Pliant alone"
FORGED = {"pliant/gpu-conf": "limit=1", "pliant/devices": "any", "pliant/node-agent": "true"}
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eve"}


@pytest.fixture
def cluster(tmp_path):
    with shared(tmp_path / "cluster") as plane:
        plane.add_node("n1", gpus=2, labels={"nvidia.com/gpu.memory": "81559"})
        yield plane


@pytest.fixture
def stage(cluster, tmp_path):
    stage = Typing(tmp_path / "stage")
    stage.env |= {"KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{cluster.pieces}:{stage.env['PATH']}"}
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


def test_who_creates_a_pod_cannot_speak_in_its_name(cluster, stage):
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    cluster.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": "eve"}, "rules": rules})
    subjects = [{"kind": "User", "name": "eve", "apiGroup": ROLE["apiGroup"]}]
    body = {"metadata": {"name": "eve"}, "roleRef": ROLE, "subjects": subjects}
    cluster.request("POST", f"{rbac}/clusterrolebindings", body)

    def create(name, notes, scheduler="pliant"):
        """Creates a pod as eve; returns the answer."""
        spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "forever"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}}
        words = [cluster.pieces / "kubectl", f"--kubeconfig={cluster.kubeconfig}", "--as=eve", "create"]
        text = json.dumps({**body, "spec": spec})
        done = subprocess.run(
            [*words, "-f", "-"], input=text, check=False, capture_output=True, text=True, timeout=60
        )
        return done.stderr

    def notes(name):
        return cluster.request("GET", f"{PODS}/{name}")["metadata"].get("annotations", {})

    stage.typed(f"pliant up --kubeconfig {cluster.kubeconfig} --share-image pliant:1 --tls")
    url = json.loads((stage.state / "server.json").read_text())["url"]
    ca = next(stage.state.rglob("trusted.pem"))
    made = stage.typed(f"pliant cluster webhook --url {url} --ca {ca} --account admin")
    (stage.folder / "webhook.yaml").write_text(made)
    cluster.kubectl("apply", "-f", str(stage.folder / "webhook.yaml"))
    until(lambda: SAID in create("forged", FORGED), "the policy is in force")

    for asks, scheduler in (({}, "default-scheduler"), ({"gpu-fraction": "0.5"}, "default-scheduler")):
        assert SAID in create("forged", {**FORGED, **asks}, scheduler), (asks, scheduler)
    assert SAID in create("forged", {"pliant/any": "1"})
    assert create("plain", {"own": "1"}) == "" and notes("plain")["own"] == "1"
    until(lambda: create("half", {**FORGED, "gpu-fraction": "0.5", "own": "1"}) == "", "the webhook answers")
    assert {"gpu-fraction": "0.5", "own": "1"}.items() <= notes("half").items()
    assert notes("half").get("pliant/gpu-conf") != FORGED["pliant/gpu-conf"]
    assert notes("half").get("pliant/devices") != "any" and "pliant/node-agent" not in notes("half")

    stage.typed("runai submit own -i forever -g 1")
    until(lambda: any("pliant/attempt" in notes(it) for it in names(cluster)), "the server writes its own")


def names(cluster):
    return [it["metadata"]["name"] for it in cluster.request("GET", PODS)["items"]]
