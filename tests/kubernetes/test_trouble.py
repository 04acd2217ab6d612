"""Faults of a cluster at night: running jobs continue, users see why others wait, and all recovers."""

import json
import os
import random
import shutil
import signal
import time
import urllib.request

import pytest

from examples.walkthrough import Stage
from pliant.engines.kube.apiserver import connection as ways
from pliant.model.fact import NodeSeen
from tests.engines.contract import A
from tests.kubernetes.control_plane import until
from tests.kubernetes.gate import Gate
from tests.kubernetes.kube_rig import KubeRig

SOON = 12.0  # seconds after a fault's end
PODS = "/api/v1/namespaces/runai-team-a/pods"
UNREACHABLE = 8  # exit code
ALARM = {"memberID": "0", "alarm": "NOSPACE"}
FINALIZER = "example.com/theirs"


class Night(Stage):
    """A server of a cluster with one node of two GPUs, and the gate to its API server."""

    def open(self, plane, tmp_path):
        self.plane = plane
        self.gate = Gate(plane.url, plane.folder / "certificates", random.Random(1))
        said = json.loads(plane.kubeconfig.read_text())
        said["clusters"][0]["cluster"]["server"] = self.gate.url
        (tmp_path / "kubeconfig").write_text(json.dumps(said))
        plane.add_node("n1", gpus=2)
        self.typed(f"pliant up --kubeconfig {tmp_path}/kubeconfig")
        self.typed("pliant project create team-a --quota 2")

    def typed(self, command):
        done = self.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.said

    def submit(self, name, more=""):
        self.typed(f"runai submit {name} -i forever -g 1 -p team-a {more}")

    def runs(self, name):
        until(lambda: self.phase(name) == "Running", f"{name} runs")

    def phase(self, name):
        done = self.run("runai list -A -o json")
        return {it["name"]: it["phase"] for it in json.loads(done.out)}.get(name)

    def why(self, name):
        return self.typed(f"pliant why {name} -p team-a")

    def pods(self):
        """The live pods."""
        found = self.plane.request("GET", PODS)["items"]
        return [it for it in found if it["status"]["phase"] in ("Pending", "Running")]

    def uids(self):
        return {it["metadata"]["uid"] for it in self.pods()}

    def tell(self, job, status):
        """Sets its status as its node would."""
        (pod,) = (it for it in self.pods() if it["metadata"]["name"].startswith(f"{job}-"))
        self.plane.request("PATCH", f"{PODS}/{pod['metadata']['name']}/status", {"status": status})

    def gpus(self, count):
        self.plane.request(
            "PATCH",
            "/api/v1/nodes/n1/status",
            {"status": {"allocatable": {"nvidia.com/gpu": str(count)}, "capacity": {"nvidia.com/gpu": "2"}}},
        )

    def etcd(self, path, body):
        ask = urllib.request.Request(f"{self.plane.etcd}/v3/{path}", json.dumps(body).encode())
        urllib.request.urlopen(ask, timeout=20).close()


@pytest.fixture
def night(planes, tmp_path):
    with planes.own() as plane:
        night = Night(tmp_path / "stage")
        night.open(plane, tmp_path)
        yield night
        night.gate.delay = night.gate.answers = 0
        night.etcd("maintenance/alarm", {**ALARM, "action": "DEACTIVATE"})
        night.run("pliant down --yes")
        night.gate.close()
        assert night.close() == {}, "these processes outlived `pliant down`"


def test_etcd_is_full(night):
    """It answers reads and refuses writes."""
    night.submit("stays")
    night.submit("waits")
    night.runs("stays")
    night.runs("waits")
    night.typed("runai suspend waits -p team-a")
    until(lambda: night.phase("waits") == "Stopped", "it has stopped")
    before = night.uids()
    night.etcd("maintenance/alarm", {**ALARM, "action": "ACTIVATE"})
    night.typed("runai resume waits -p team-a")
    told = "Note: The cluster does not do what it is asked for (etcdserver: mvcc: database space exceeded)"
    until(lambda: told in night.typed("runai list -A"), "everybody is told")
    refused = night.run("runai submit more -i forever -g 1 -p team-a")
    assert refused.code == UNREACHABLE and "database space exceeded" in refused.said
    assert night.uids() == before and night.phase("stays") == "Running"
    night.etcd("maintenance/alarm", {**ALARM, "action": "DEACTIVATE"})
    over = time.monotonic()
    night.runs("waits")
    assert time.monotonic() - over < SOON
    until(lambda: "Note:" not in night.typed("runai list -A"), "nothing is wrong any more")


def test_an_api_server_that_refuses_everything(night):
    night.submit("stays")
    night.runs("stays")
    night.gate.answers = 429
    night.typed("runai suspend stays -p team-a")
    until(lambda: "Note: " in night.typed("runai list -A"), "it is told")
    night.gate.answers = 0
    over = time.monotonic()
    until(lambda: night.phase("stays") == "Stopped", "it has stopped")
    assert time.monotonic() - over < SOON


@pytest.mark.long  # mostly waiting; the same is tested below without a server and with shorter times
def test_an_api_server_that_takes_its_time(night):
    night.gate.delay = ways.CONNECT + 2
    night.submit("slow")
    until(lambda: night.phase("slow") == "Running", "each step takes its time, and is done", seconds=120)


def test_a_device_plugin_that_starts_again(night):
    """Its node has no GPUs for a while. Running jobs continue, and none is stopped for a missing device."""
    night.submit("keeps")
    night.runs("keeps")
    before = night.uids()
    night.gpus(0)
    until(lambda: "0.00" in night.typed("pliant list nodes").splitlines()[-1], "none is free")
    night.submit("comes", "--interactive")
    until(lambda: night.phase("comes") == "Pending", "it waits")
    assert "GPU" in night.why("comes")
    assert night.uids() == before and night.phase("keeps") == "Running"
    night.gpus(2)
    night.runs("comes")
    assert before < night.uids()


def test_a_resource_quota_that_is_used_up(night):
    """Others may free it: the job waits, shows why, and the server does not retry too often."""
    night.submit("one")
    night.runs("one")
    place = "/api/v1/namespaces/runai-team-a/resourcequotas"
    hard = {"hard": {"pods": "1"}}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": hard}
    night.plane.request("POST", place, body)
    status = {**hard, "used": {"pods": "1"}}  # as its controller would count
    night.plane.request("PATCH", f"{place}/q/status", {"status": status})
    night.typed("pliant cluster settings retry-base=1s")
    asked = night.gate.asked["POST", PODS]
    night.submit("two")
    until(lambda: night.gate.asked["POST", PODS] >= asked + 3, "it is tried again")
    said = night.why("two")
    assert "exceeded quota: q" in said and "the next attempt starts in" in said, said
    assert night.phase("two") not in ("Failed", "Completed")
    assert night.gate.asked["POST", PODS] < asked + 6
    night.plane.request("DELETE", f"{place}/q")
    night.runs("two")


EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.",
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
}
REJECTED = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu.",
    "containerStatuses": None,
}
KILLED = {"exitCode": 137, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z"}
KILLED["finishedAt"] = "2026-01-01T00:00:01Z"
MAIN = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
PULL = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry.example/none:1"'}


@pytest.mark.parametrize(
    ("status", "said", "counts"),
    [
        (
            {**EVICTED, "containerStatuses": [{**MAIN, "state": {"terminated": KILLED}}]},
            "was lost: The node was low on resource: memory.",
            False,
        ),
        (REJECTED, "was lost: Allocate failed due to requested number of devices unavailable", False),
        (
            {
                "phase": "Failed",
                "containerStatuses": [{**MAIN, "state": {"terminated": {**KILLED, "reason": "OOMKilled"}}}],
            },
            "ran out of memory and was killed by the kernel (SIGKILL); retry 1 of 6",
            True,
        ),
        (
            {"phase": "Pending", "containerStatuses": [{**MAIN, "state": {"waiting": PULL}}]},
            'not be started: ImagePullBackOff: Back-off pulling image "registry.example/none:1"; retry 1',
            True,
        ),
    ],
    ids=["evicted by its node", "rejected by its node", "out of memory", "no such image"],
)
def test_why_a_pod_has_ended(night, status, said, counts):
    """A node's action against the pod is no failure of the job."""
    night.submit("job")
    night.runs("job")
    night.tell("job", status)
    told = until(lambda: said in (shown := night.why("job")) and shown, "it is told")
    assert ("retry 1" in told) == counts
    if not counts:
        night.runs("job")


def test_a_node_that_flaps_and_moves_to_another_pool(night):
    night.submit("stays")
    night.runs("stays")
    before = night.uids()
    for good in ("False", "True", "False", "True"):
        ready = {"type": "Ready", "status": good, "reason": "x", "message": "x"}
        night.plane.request("PATCH", "/api/v1/nodes/n1/status", {"status": {"conditions": [ready]}})
        state = "NotReady" if good == "False" else " Ready"
        until(lambda state=state: state in f" {night.typed('pliant list nodes')}", f"it is {state}")
    night.typed("pliant nodepool create fast --label kind=fast")
    for kind in ("fast", None):
        night.plane.request("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"kind": kind}}})
        pool = kind or "default"
        until(lambda pool=pool: pool in night.typed("pliant describe node n1"), f"it is in pool {pool}")
    night.submit("more")
    night.runs("more")
    assert before < night.uids()


def kill(night):
    os.kill(int(json.loads((night.state / "server.json").read_text())["pid"]), signal.SIGKILL)


def test_a_backup_is_restored_on_another_machine(night, tmp_path):
    """Later servers have led since the backup; it finds the running jobs."""
    night.submit("keeps")
    night.runs("keeps")
    night.typed(f"pliant backup {tmp_path}/backup.db")
    before = night.uids()
    for _ in range(3):
        kill(night)
        night.typed("pliant up")
    night.submit("younger")
    night.runs("younger")
    kill(night)
    shutil.rmtree(night.state)
    night.typed(f"pliant restore {tmp_path}/backup.db --yes")
    night.typed(f"pliant up --kubeconfig {tmp_path}/kubeconfig")
    night.runs("keeps")
    until(lambda: night.uids() == before, "it goes on, and what the backup does not know ends")


# ---- without a server ----


@pytest.fixture
def rig(plane, tmp_path):
    rig = KubeRig(plane, tmp_path)
    yield rig
    rig.clean()


def through_a_gate(rig):
    gate = Gate(rig.plane.url, rig.plane.folder / "certificates", random.Random(1))
    said = json.loads(rig.kubeconfig.read_text())
    said["clusters"][0]["cluster"]["server"] = gate.url
    rig.kubeconfig = rig.folder / "kubeconfig"
    rig.kubeconfig.write_text(json.dumps(said))
    return gate


def test_who_takes_its_time_for_an_answer_does_what_is_asked(rig, monkeypatch):
    """Each answer takes longer than the limit for a connection."""
    assert ways.ANSWER > 3 * ways.CONNECT, "as told in the changelog: 35 s"
    monkeypatch.setattr(ways, "CONNECT", 0.4)
    gate = through_a_gate(rig)
    try:
        rig.open()
        gate.delay = ways.CONNECT + 0.3
        rig.run(A, rig.forever())
        rig.stop(A)
        assert rig.end(A).stopped
    finally:
        gate.delay = 0
        rig.engine.close()
        gate.close()


def test_a_watch_that_says_nothing_more_is_given_up(rig, monkeypatch):
    """As when the network silently fails: the connection never ends by itself."""
    monkeypatch.setattr(ways, "SILENCE", 2.0)
    gate = through_a_gate(rig)
    try:
        rig.open()
        until(lambda: len(gate.watches) >= 2, "pods and nodes are watched")
        gate.hush()
        rig.run(A, rig.forever())
        rig.stop(A)
        assert rig.end(A).stopped
    finally:
        rig.engine.close()
        gate.close()


def test_a_pod_that_somebody_elses_finalizer_keeps(rig):
    """Its containers are gone, so its GPU is free; the finalizer's owner removes the rest."""
    rig.open()
    rig.run(A, rig.forever())
    path = f"{rig.pods}/{rig.pod(A)['metadata']['name']}"
    finalizers = [*rig.pod(A)["metadata"]["finalizers"], FINALIZER]
    rig.plane.request("PATCH", path, {"metadata": {"finalizers": finalizers}})
    rig.stop(A)
    assert rig.end(A).stopped
    rig.engine.recorded(A)
    rig.until(lambda: rig.pod(A)["metadata"]["finalizers"] == [FINALIZER], "ours is taken away")


def test_gpus_that_a_pod_has_by_a_claim_are_used(rig):
    """A claim that another scheduler has allocated; its driver reports the devices."""
    rig.open()
    place = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": rig.name}}
    rig.plane.request("POST", place, {**body, "spec": spec})
    results = [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": rig.name, "device": f"gpu-{index}"}
        for index in range(2)
    ]
    status = {"allocation": {"devices": {"results": results}}}
    path = f"{place}/{rig.name}"
    rig.plane.request("PATCH", f"{path}/status", {"status": status})
    rig.until(lambda: foreign(rig) == 2, "two are used")
    rig.drop()
    rig.open()
    assert foreign(rig) == 2, "another server knows it before it places anything"
    rig.plane.request("PATCH", f"{path}/status", {"status": {"allocation": None}})
    rig.until(lambda: foreign(rig) == 0, "and free again")
    rig.plane.request("DELETE", path)


def foreign(rig):
    nodes = [fact.node for fact in rig.facts if isinstance(fact, NodeSeen)]
    return sum(gpu.foreign for gpu in nodes[-1].gpus)


def test_what_others_add_to_our_pods_is_not_given_away(rig):
    """An admission policy adds a container with two cores to each of our pods, as a service mesh does."""
    kind = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
    space = {"matchLabels": {"kubernetes.io/metadata.name": f"runai-{rig.name}"}}
    amount = 'Object.spec.containers.resources{requests: {"cpu": "2", "memory": "1Gi"}}'
    mesh = f'Object.spec.containers{{name: "mesh", image: "forever", resources: {amount}}}'
    spec = {
        "matchConstraints": {
            "namespaceSelector": space,
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{containers: [{mesh}]}}}}"},
            }
        ],
    }
    name = {"metadata": {"name": rig.name}}
    rig.plane.request("POST", kind, {**name, "spec": spec})
    binding = {"policyName": rig.name}
    rig.plane.request("POST", kind.replace("policies", "policybindings"), {**name, "spec": binding})
    rig.plane.add_namespace(f"runai-{rig.name}")
    tried = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "main", "image": "forever"}]}}

    def containers():
        return len(rig.plane.request("POST", f"{rig.pods}?dryRun=All", tried)["spec"]["containers"])

    try:
        until(lambda: containers() == 2, "the API server knows it")
        rig.open()
        rig.run(A, rig.forever())
        rig.until(lambda: cores(rig) == 6000, "two cores are taken")
        rig.stop(A)
        rig.end(A)
        rig.until(lambda: cores(rig) == 8000, "and free again")
    finally:
        rig.plane.request("DELETE", f"{kind}/{rig.name}")
        rig.plane.request("DELETE", f"{kind.replace('policies', 'policybindings')}/{rig.name}")


def cores(rig):
    return [fact.node for fact in rig.facts if isinstance(fact, NodeSeen)][-1].cpu
