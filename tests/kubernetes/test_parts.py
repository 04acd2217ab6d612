"""Parts of a GPU on a real API server: one pod holds the device, the pods that share it get their limits."""

import uuid
from contextlib import suppress
from dataclasses import replace

import pytest

from pliant.devices.config import parse
from pliant.devices.pods import sharing
from pliant.engines.kube.apiserver.names import GPU_CONF, holder_name
from pliant.engines.kube.fractions import lent
from pliant.model.fact import NodeSeen
from pliant.model.machine import Placement, Share
from pliant.model.order import Start
from pliant.model.workload import Attempt, AttemptId, Request
from tests.engines.contract import GIB, A, B, workload
from tests.kubernetes.control_plane import Answered
from tests.kubernetes.kube_rig import KubeRig

C = AttemptId("w-c", "worker-0", 1)
HOLDERS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def rig(plane, tmp_path):
    rig = PartsRig(plane, tmp_path)
    yield rig
    rig.clean()


class PartsRig(KubeRig):
    sharing = sharing("registry/pliant:1")

    def __init__(self, plane, folder):
        super().__init__(plane, folder)
        self.uuids = [f"GPU-{uuid.uuid4()}" for _ in self.node.gpus]
        for index, gpu in enumerate(self.node.gpus):
            self.says(gpu.uuid, f"devices={self.uuids[index]}")

    def says(self, device, line):
        """Sets what the pod that holds the device prints, by KWOK."""
        name = holder_name(self.name, device)
        file = self.folder / name
        file.write_text(f"2026-11-27T07:00:00.000000000Z stdout F {line}\n")
        body = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": {"name": name}}
        body["spec"] = {"logs": [{"logsFile": str(file), "follow": False}]}
        self.plane.request("POST", "/apis/kwok.x-k8s.io/v1alpha1/namespaces/default/logs", body)

    def part(self, index, portion=500):
        device = self.node.gpus[index].uuid
        return Placement(self.name, (Share(device, portion, 16 * GIB * portion // 1000),), 500, GIB)

    def start_one(self, attempt, placement, request):
        row = workload(attempt.workload, self.forever())
        row = replace(row, groups=(replace(row.groups[0], request=request),))
        self.known[attempt] = Attempt(attempt, placement, self.epoch, "decision-1", 0)
        self.engine.start(Start(attempt, placement, row, "decision-1", self.epoch))

    def annotate(self, attempt, text):
        metadata = self.pod(attempt)["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self.plane.request("PATCH", path, {"metadata": {"annotations": {GPU_CONF: text}}})

    def limit(self, attempt):
        return parse(self.pod(attempt)["metadata"]["annotations"][GPU_CONF]).grants[0].limit

    def holders(self):
        """Device -> the pod that holds it."""
        found = {}
        for pod in self.plane.request("GET", HOLDERS)["items"]:
            if pod["metadata"].get("labels", {}).get("pliant/cluster") == self.name:
                device = pod["metadata"]["annotations"]["pliant/holds"]
                assert device not in found
                found[device] = pod
        return found

    def running(self, attempt):
        self.until(lambda: self.pod(attempt) is not None and self.alive(attempt), f"{attempt} runs")
        return self.pod(attempt)

    def foreign(self):
        seen = [fact.node for fact in self.facts if isinstance(fact, NodeSeen)]
        return [gpu.uuid for gpu in seen[-1].gpus if gpu.foreign] if seen else []

    def clean(self):
        super().clean()
        with suppress(Answered):
            self.plane.request("DELETE", f"{HOLDERS}/agent-{self.name}?gracePeriodSeconds=0")
        for pod in self.holders().values():
            with suppress(Answered):
                self.plane.request("DELETE", f"{HOLDERS}/{pod['metadata']['name']}?gracePeriodSeconds=0")


def test_two_parts_of_one_gpu(rig):
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.start(B, rig.forever(), rig.part(0, 250))
    for attempt, limit in ((A, 8 * GIB), (B, 4 * GIB)):
        pod = rig.running(attempt)
        main = pod["spec"]["containers"][0]
        assert "nvidia.com/gpu" not in main["resources"].get("limits", {})
        env = {each["name"]: each.get("value") for each in main["env"]}
        assert env["NVIDIA_VISIBLE_DEVICES"] == rig.uuids[0]
        assert env["RUNAI_NUM_OF_GPUS"] == ("0.50" if attempt == A else "0.25")
        conf = parse(pod["metadata"]["annotations"][GPU_CONF])
        assert (conf.workload, str(conf.ledger)) == (str(attempt), "/run/pliant/ledger")
        assert [(it.uuid, it.limit, it.request) for it in conf.grants] == [(rig.uuids[0], limit, limit)]
        mounts = {each["mountPath"]: each for each in main["volumeMounts"]}
        closed = [path for path, it in mounts.items() if it.get("readOnly")]
        assert {"/etc/pliant", "/etc/ld.so.preload", "/opt/pliant"} <= {*closed}
        (bring,) = pod["spec"]["initContainers"]
        assert bring["image"] == "registry/pliant:1" and "/usr/lib/pliant/*" in bring["command"][-1]
    ((device, holder),) = rig.holders().items()
    assert device == rig.node.gpus[0].uuid
    asked = holder["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"nvidia.com/gpu": "1", "cpu": "0", "memory": "0"}, (
        "it fits on a node that is full of jobs"
    )
    assert rig.foreign() == [], "what is held for our own parts is nobody else's"
    assert {attempt: use.enforcement.how for attempt, use in rig.engine.uses().items()} == {
        A: "cooperative",
        B: "cooperative",
    }


def test_many_at_once_are_held_by_one_pod_for_each_gpu(rig):
    """Eight threads start them; two pods for one device would use two GPUs."""
    rig.open()
    attempts = [AttemptId(f"w-{index}", "worker-0", 1) for index in range(16)]
    for index, attempt in enumerate(attempts):
        rig.start(attempt, rig.forever(), rig.part(index % 4, 250))
    for index, attempt in enumerate(attempts):
        assert rig.running(attempt)["metadata"]["annotations"]["pliant/devices"] == rig.uuids[index % 4]
    assert len(rig.holders()) == 4


def test_the_device_is_given_back_after_the_last_part_and_only_then(rig):
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.start(B, rig.forever(), rig.part(0))
    rig.running(A), rig.running(B)
    (before,) = rig.holders().values()
    rig.stop(A)
    rig.until(lambda: rig.ends(A), "one has ended")
    rig.start(C, rig.forever(), rig.part(0))
    rig.running(C)
    assert rig.holders()[rig.node.gpus[0].uuid]["metadata"]["uid"] == before["metadata"]["uid"]
    for attempt in (B, C):
        rig.stop(attempt)
        rig.until(lambda attempt=attempt: rig.ends(attempt), "it has ended")
    rig.until(lambda: rig.holders() == {}, "the device is free")


def test_a_whole_gpu_waits_until_it_is_not_held_any_more(rig):
    """Otherwise the node would refuse the pod: it still counts the device as used."""
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.running(A)
    (holder,) = rig.holders().values()
    path = f"{HOLDERS}/{holder['metadata']['name']}"
    rig.plane.request("PATCH", path, {"metadata": {"finalizers": ["test/slow-node"]}})
    rig.stop(A)
    rig.until(lambda: rig.ends(A), "the part has ended")
    rig.start(B, rig.forever(), rig.place(0))
    rig.until(lambda: "deletionTimestamp" in rig.plane.request("GET", path)["metadata"], "it is to go")
    rig.until(lambda: rig.pod(B) is not None, "the pod for the whole GPU is there")
    assert "nodeName" not in rig.pod(B)["spec"]
    rig.plane.request("PATCH", path, {"metadata": {"finalizers": None}})
    assert rig.running(B)["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert rig.holders() == {}


def test_a_new_server_finds_who_shares(rig):
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.running(A)
    (before,) = rig.holders().values()
    rig.drop()
    rig.open()
    rig.start(B, rig.forever(), rig.part(0))
    rig.running(B)
    assert rig.alive(A) and rig.foreign() == []
    ((_, after),) = rig.holders().items()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_device_that_nobody_shares_any_more_is_given_back_by_the_next_server(rig):
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.running(A)
    rig.drop()
    rig.destroy(A)
    rig.open()
    rig.until(lambda: rig.ends(A), "it is gone")
    rig.until(lambda: rig.holders() == {}, "the device is free")


def test_who_loses_the_pod_that_holds_the_device_is_stopped(rig):
    """From then on the node may give the device to any pod."""
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.start(B, rig.forever(), rig.part(1))
    rig.running(A), rig.running(B)
    holder = rig.holders()[rig.node.gpus[0].uuid]
    rig.plane.request("DELETE", f"{HOLDERS}/{holder['metadata']['name']}?gracePeriodSeconds=0")
    rig.until(lambda: rig.ends(A), "it has ended")
    (end,) = rig.ends(A)
    assert end.lost and not end.stopped, "it is started again"
    assert rig.alive(B)


def test_of_another_server_the_whole_device_is_used(rig):
    rig.open()
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"other-{rig.name}"}}
    body["metadata"]["labels"] = {"pliant/cluster": "another", "app.kubernetes.io/managed-by": "pliant"}
    body["metadata"]["annotations"] = {"pliant/holds": rig.node.gpus[0].uuid}
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "forever", "resources": {"limits": limits}}
    body["spec"] = {"nodeName": rig.name, "containers": [container]}
    rig.plane.request("POST", HOLDERS, body)
    try:
        rig.until(lambda: len(rig.foreign()) == 1, "it counts")
    finally:
        rig.plane.request("DELETE", f"{HOLDERS}/other-{rig.name}?gracePeriodSeconds=0")


def test_without_the_image_nobody_gets_a_part(rig):
    rig.sharing = None
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.until(lambda: rig.ends(A), "it is refused")
    (end,) = rig.ends(A)
    assert end.code == 126 and "--share-image IMAGE" in end.error
    assert rig.holders() == {}


def test_the_memory_of_the_device_must_be_known(rig):
    rig.open()
    rig.start(A, rig.forever(), Placement(rig.name, (Share(rig.node.gpus[0].uuid, 500, 0),), 500, GIB))
    rig.until(lambda: rig.ends(A), "it is refused")
    (end,) = rig.ends(A)
    assert "install NVIDIA's GPU feature discovery" in end.error
    rig.until(lambda: rig.holders() == {}, "the device is free")


def test_a_node_that_does_not_say_which_gpu_it_gave(rig):
    device = rig.node.gpus[0].uuid
    name = holder_name(rig.name, device)
    rig.plane.request("DELETE", f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/default/logs/{name}")
    rig.says(device, "held")
    rig.open()
    rig.start(A, rig.forever(), rig.part(0))
    rig.until(lambda: rig.ends(A), "it is refused")
    assert "says no UUID of a GPU: kubectl logs" in rig.ends(A)[0].error
    rig.until(lambda: rig.holders() == {}, "the device is free")


def begin_agent(rig, namespace, name):
    """Makes a ready pod that claims to be an agent; returns its path."""
    with suppress(Answered):
        rig.plane.add_namespace(namespace)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    body["metadata"]["labels"] = {"pliant/node-agent": "true"}
    body["spec"] = {"nodeName": rig.name, "containers": [{"name": "agent", "image": "forever"}]}
    rig.plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def ready():
        said = rig.plane.request("GET", path)["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in said)

    rig.until(ready, f"{name} is ready")
    return path


def folders(pod):
    return [each["hostPath"]["path"] for each in pod["spec"]["volumes"] if "hostPath" in each]


def test_an_agent_of_the_servers_namespace_writes_the_limits_of_its_node(rig):
    """In another namespace any user's pod may claim to be an agent."""
    rig.open()
    begin_agent(rig, f"runai-{rig.name}-x", "pretends")
    rig.start(A, rig.forever(), rig.part(0))
    assert folders(rig.running(A)) == []
    agent = begin_agent(rig, "default", f"agent-{rig.name}")
    rig.start(B, rig.forever(), rig.part(0))
    pod = rig.running(B)
    own = f"/run/pliant-fractions/{pod['metadata']['namespace']}_{pod['metadata']['name']}"
    assert folders(pod) == [f"{own}/conf", f"{own}/ledger"]
    mounts = {
        each["mountPath"]: each.get("readOnly") for each in pod["spec"]["containers"][0]["volumeMounts"]
    }
    assert mounts["/etc/pliant"] and mounts["/etc/ld.so.preload"] and not mounts["/run/pliant/ledger"]
    held = {attempt: use.enforcement.text for attempt, use in rig.engine.uses().items()}
    assert "are not detected" in held[A] and "the agent of its node reports" in held[B]
    rig.plane.request("DELETE", f"{agent}?gracePeriodSeconds=0")
    rig.start(C, rig.forever(), rig.part(1))
    assert folders(rig.running(C)) == [], "it is gone"


def test_a_pod_that_an_agent_keeps_is_not_ended_while_the_agent_is_away(rig, monkeypatch, caplog):
    monkeypatch.setattr(lent, "BACK", 0.2)
    agent = begin_agent(rig, "default", f"agent-{rig.name}")
    rig.open()
    part = Placement(rig.name, (Share(rig.node.gpus[0].uuid, 250, 4 * GIB),), 500, GIB)
    rig.start_one(A, part, Request(1, 250, portion_limit=1000))
    assert folders(rig.running(A))
    rig.until(lambda: rig.limit(A) == rig.node.gpus[0].memory, "the whole memory is lent")
    rig.plane.request("DELETE", f"{agent}?gracePeriodSeconds=0")
    rig.start_one(B, rig.part(0), Request(1, 500))
    rig.until(lambda: "may keep what was lent to it: the agent of its node" in caplog.text, "it is noticed")
    looks, look = [], rig.engine._parts._lent._keeps
    monkeypatch.setattr(rig.engine._parts._lent, "_keeps", lambda *of: looks.append(1) or look(*of))
    rig.until(lambda: len(looks) > 20, "it was looked at often enough to end it")
    assert rig.alive(A) and rig.pod(B) is None
    begin_agent(rig, "default", f"agent-{rig.name}")
    rig.until(lambda: rig.ends(A), "KWOK's agent cannot tell that it has given anything back")


def test_memory_that_nobody_asked_for_is_lent_and_taken_back(rig, monkeypatch):
    """On KWOK's nodes no command can run: a pod that does not report its use is stopped first."""
    monkeypatch.setattr(lent, "BACK", 1.0)
    rig.open()
    device = rig.node.gpus[0].uuid
    request = Request(1, 250, portion_limit=1000)
    rig.start_one(A, Placement(rig.name, (Share(device, 250, 4 * GIB),), 500, GIB), request)
    uid = rig.running(A)["metadata"]["uid"]
    memory = rig.node.gpus[0].memory
    rig.until(lambda: rig.limit(A) == memory, "the whole memory is lent")
    rig.start_one(B, rig.part(0), Request(1, 500))
    rig.until(lambda: rig.ends(A), "it does not show that it has given it back")
    assert rig.ends(A)[0].lost, "it is started again"
    rig.running(B)
    again = AttemptId(A.workload, A.task, 2)
    rig.start_one(again, Placement(rig.name, (Share(device, 250, 4 * GIB),), 500, GIB), request)
    assert rig.running(again)["metadata"]["uid"] != uid
    rig.until(lambda: rig.limit(again) == memory - 8 * GIB, "what B asked for is not lent")
    rig.annotate(again, "limit=all")
    rig.until(lambda: rig.ends(again), "nobody can tell what it may have")
    assert rig.limit(B) == 8 * GIB and rig.alive(B)
