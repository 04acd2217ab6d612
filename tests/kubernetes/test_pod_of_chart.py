"""The chart's server as a pod on a real kubelet, from an image built by the steps of its Containerfile."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from examples.walkthrough import Stage
from tests.house.test_wheel import built_once
from tests.kubernetes.control_plane import ROOT, shared, until
from tests.kubernetes.images import build, packed
from tests.kubernetes.keeper import free_ports
from tests.kubernetes.node import NAME, image, node, programs
from tests.kubernetes.release import ACCOUNT, CHART, run
from tests.store.postgres import server

CONTAINERFILE = ROOT / "deploy" / "image" / "Containerfile"
OWN = "/api/v1/namespaces/pliant"
POD = f"{OWN}/pods/pliant-0"
JOBS = "/api/v1/namespaces/runai-team-a/pods"
STAYS = 'trap "exit 0" TERM; while :; do sleep 0.2; done'
PATHS = {
    "ServiceAccount": f"{OWN}/serviceaccounts",
    "Secret": f"{OWN}/secrets",
    "Service": f"{OWN}/services",
    "Deployment": "/apis/apps/v1/namespaces/pliant/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/pliant/poddisruptionbudgets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    **{
        kind: f"/apis/admissionregistration.k8s.io/v1/{plural}"
        for kind, plural in (
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        )
    },
}


@pytest.fixture(scope="module")
def pliant_image(tmp_path_factory):
    """The image, as `python -m build --wheel` and `docker build -f deploy/image/Containerfile` make it."""
    programs()
    base = tmp_path_factory.mktemp("image")
    (base / "dist").mkdir()
    wheel = built_once(tmp_path_factory)
    shutil.copy(wheel, base / "dist" / "pliant-0-py3-none-linux_x86_64.whl")
    env = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    env.pop("PIP_FIND_LINKS", None)  # it names a folder of this machine
    env["PIP_NO_COMPILE"] = "0"  # pip takes "false" for a yes: two servers start here, most modules never do
    settings = build(CONTAINERFILE, base, base / "root", env)
    return packed("localhost/pliant:1", base / "root", settings, base / "pliant.tar")


class Chart:
    """Applies `helm template` of the chart, and makes by hand what controllers would: the deployment's pod,
    with the token that the admission gives it, on the only node."""

    def __init__(self, plane, folder, database):
        self.plane, self.folder = plane, folder
        (self.port,) = free_ports(1)
        host, _, port = plane.url.removeprefix("https://").partition(":")
        # No kube-proxy routes to the API server's service.
        env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        values = {
            "image": {"repository": "localhost/pliant", "tag": "1"},
            "database": {"url": database},
            "hostNetwork": True,
            "port": self.port,
            "env": [{"name": name, "value": value} for name, value in env.items()],
            "lease": 1,
        }
        (folder / "values.json").write_text(json.dumps(values))
        words = ("template", "pliant", str(CHART), "--namespace=pliant", "--include-crds")
        code, text = run(*words, "--kube-version=1.36.1", f"--values={folder}/values.json")
        assert code == 0, text
        self.objects = [each for each in yaml.safe_load_all(text) if each]

    def apply(self):
        self.plane.add_namespace("pliant")
        for each in self.objects:
            self.plane.request("POST", PATHS[each["kind"]], each)
        authority = (self.plane.folder / "certificates" / "apiserver.crt").read_text()
        body = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority}}
        self.plane.request("POST", f"{OWN}/configmaps", body)
        template = next(it for it in self.objects if it["kind"] == "Deployment")["spec"]["template"]
        spec = template["spec"]
        sources = [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                }
            },
        ]
        spec["volumes"].append({"name": "kube-api-access", "projected": {"sources": sources}})
        for each in (*spec["initContainers"], *spec["containers"]):
            path = f"/var{ACCOUNT}"
            each["volumeMounts"].append({"name": "kube-api-access", "mountPath": path, "readOnly": True})
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "pliant-0"}}
        body["metadata"].pop("annotations", None)
        self.plane.request("POST", f"{OWN}/pods", {**body, "spec": {**spec, "nodeName": NAME}})

    def status(self):
        return self.plane.request("GET", POD)["status"]

    def ready(self):
        said = self.status()
        started = [each["restartCount"] for each in said.get("containerStatuses", ())]
        assert started in ([], [0], [1]), self.log()
        conditions = said.get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def log(self):
        words = [f"--kubeconfig={self.plane.kubeconfig}", "-n", "pliant", "logs", "pliant-0"]
        done = subprocess.run(
            [self.plane.pieces / "kubectl", *words], check=False, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def process(self):
        """The pid of its server on this machine."""
        word = f"--port={self.port}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if word in words and b"pliant.app" in words:
                    return int(folder.name)
        raise AssertionError("it is not there")

    def inside(self, script):
        return self.plane.kubectl("-n", "pliant", "exec", "pliant-0", "--", "sh", "-c", script)

    def env(self):
        """The environment in which a user reaches it."""
        found = (each for each in self.objects if each["kind"] == "Secret")
        secrets = {each["metadata"]["name"]: each["data"] for each in found}
        (self.folder / "ca.crt").write_bytes(decoded(secrets["pliant-tls"]["ca.crt"]))
        return {
            "PLIANT_SERVER": f"https://localhost:{self.port}",
            "PLIANT_CA": str(self.folder / "ca.crt"),
            "PLIANT_TOKEN": decoded(secrets["pliant-auth"]["token"]).decode(),
        }


def decoded(text):
    return base64.b64decode(text)


@pytest.fixture
def chart(pliant_image, tmp_path):
    (port,) = free_ports(1)
    job = image("localhost/job:1", {}, tmp_path / "job.tar")
    with (
        shared(tmp_path / "cluster") as plane,
        tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder,
        server(Path(folder), port) as database,
        node(plane, tmp_path / "kubelet", [pliant_image, job], ["GPU-00000000-0000-4000-8000-000000000001"]),
    ):
        place = database.place().partition("options=")[2]
        chart = Chart(
            plane, tmp_path, f"postgresql://{database.user}@127.0.0.1:{port}/postgres?options={place}"
        )
        chart.apply()
        yield chart


def test_its_server_runs_in_a_pod_and_goes_on_after_a_restart(chart, tmp_path):
    stage = Stage(tmp_path / "stage")
    stage.env |= chart.env()

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}; {chart.log()[-3000:]}"
        return done.out

    def phase():
        return {item["name"]: item["phase"] for item in json.loads(typed("runai list -A -o json"))}

    until(chart.ready, "the pod is ready")
    assert "admin" in typed("pliant whoami").lower()

    # as in the chart: no root, only its volumes writable, no capability, no new privileges
    assert chart.inside("id -u; id -g").split() == ["65532", "65532"]
    denied = "(touch /here || touch /usr/lib/pliant/here || touch /auth || touch /tls/tls.crt) 2>/dev/null"
    assert chart.inside(f"{denied} || touch /tmp/here && echo kept").split() == ["kept"]
    status = dict(line.split(":\t", 1) for line in chart.inside("cat /proc/1/status").splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert chart.inside("ls /usr/lib/pliant").split() == ["libpliant-gpu.so", "pliant-gpu-used"]

    # it works
    typed("pliant project create team-a --quota 1")
    typed(f"runai submit stays -i localhost/job:1 --cpu 0.1 -g 1 -p team-a --command -- sh -c '{STAYS}'")
    until(lambda: phase() == {"stays": "Running"}, "a job runs")
    (job,) = chart.plane.request("GET", JOBS)["items"]

    # after a kill its container starts again with its state; the job does not notice
    os.kill(chart.process(), signal.SIGKILL)
    until(lambda: [it["restartCount"] for it in chart.status()["containerStatuses"]] == [1], "it has ended")
    until(chart.ready, "the pod is ready again")
    until(lambda: stage.run("pliant list").code == 0, "it leads again")
    assert phase() == {"stays": "Running"}
    (now,) = chart.plane.request("GET", JOBS)["items"]
    assert now["metadata"]["uid"] == job["metadata"]["uid"]
    typed("runai delete stays -p team-a")
    until(lambda: not chart.plane.request("GET", JOBS)["items"], "it is gone")
    assert stage.close() == {}, "these processes outlived it"
