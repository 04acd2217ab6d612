"""A running release of the chart, a user of its server, and the audit log of its API server."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import shared, until
from tests.kubernetes.release import NAME, Release
from tests.kubernetes.test_chart import define
from tests.store.postgres import server

ACCOUNT = f"system:serviceaccount:{NAME}:{NAME}"


class Installed:
    """A release, a user of its server, and the requests that it sent to the API server."""

    def __init__(self, release, stage, kubeconfig):
        self.release, self.plane, self.stage, self.kubeconfig = release, release.plane, stage, kubeconfig

    def begin(self, name):
        """Starts one of its servers; `typed` uses this one from now on."""
        begun = self.release.begin(name)
        self.stage.env |= self.release.env(begun)
        return begun

    def leads(self, name):
        process = self.release.servers[name]

        def found():
            assert process.process.poll() is None, process.log.read_text()[-3000:]
            return self.release.leading() == [name]

        until(found, f"the service leads to {name}: {process.log}")

    def typed(self, command):
        done = self.stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def asked(self, account=ACCOUNT):
        """Each request: (group, resource, verb), HTTP status, and the rule that allowed it."""
        for line in (self.plane.folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            about = event.get("objectRef")
            if event["user"]["username"] != account or about is None:
                continue
            part = f"/{about['subresource']}" if "subresource" in about else ""
            key = (about.get("apiGroup", ""), about["resource"] + part, event["verb"])
            why = event.get("annotations", {}).get("authorization.k8s.io/reason", "")
            yield key, event.get("responseStatus", {}).get("code"), why

    def used(self, account=ACCOUNT):
        """(group, resource, verb) -> HTTP statuses."""
        found = {}
        for key, code, _ in self.asked(account):
            found.setdefault(key, set()).add(code)
        return found

    def allowed(self, role, account=ACCOUNT):
        """What that role allowed. Rules only add rights, so without the rule each of these is refused."""
        by = f'RBAC: allowed by ClusterRoleBinding "{role}" of ClusterRole "{role}" '
        return {key for key, code, why in self.asked(account) if why.startswith(by) and code != 403}


@contextmanager
def a_release(tmp_path: Path) -> Iterator[Installed]:
    with (
        shared(tmp_path / "cluster", "audit", "podgroups") as plane,
        tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder,
        server(Path(folder)) as database,
    ):
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
        plane.add_node("n1", gpus=2, labels=labels)
        for version, kind, plural in MADE[1:]:
            define(plane, *version.split("/"), kind, plural)
        define(plane, "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
        release = Release(plane, tmp_path / "release", database.place().replace("@/", "@localhost/"))
        release.install()
        config = json.loads(plane.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = release.account()
        config["contexts"][0]["context"]["namespace"] = NAME
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        stage = Stage(tmp_path / "stage")
        yield Installed(release, stage, kubeconfig)
        release.end()
        assert stage.close() == {}, "these processes outlived the test"


OPENS = """
from pliant.client import Client
client = Client.connect()
client.open_port(next(each["id"] for each in client.workloads("team-a")), 80)
"""


MADE = (
    ("batch/v1", "Job", "jobs"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
    ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),
    ("ray.io/v1", "RayCluster", "rayclusters"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets"),
)
"""Kinds that make pods and whose objects the server reads."""


def add_owner(plane, version, kind, plural, spec, above=None):
    metadata = {"name": "o", "ownerReferences": [above] if above else []}
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    made = plane.request("POST", f"/apis/{version}/namespaces/runai-team-a/{plural}", body)["metadata"]
    return {"apiVersion": version, "kind": kind, "name": "o", "uid": made["uid"], "controller": True}


def add_pod(plane, pods, name, resources, spec=None, **metadata):
    container = {"name": "train", "image": "forever", "resources": resources}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}
    own = {"schedulerName": "pliant", "restartPolicy": "Never", "containers": [container]}
    plane.request("POST", pods, {**body, "spec": {**own, **(spec or {})}})
