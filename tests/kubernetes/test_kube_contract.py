"""The Kubernetes engine keeps the contract of engines, on a real API server."""

import json
import random
from contextlib import suppress
from dataclasses import replace

import pytest
from lightkube import ApiError

from pliant.engines.kube.apiserver.cluster import Cluster, Refused
from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.apiserver.names import ATTEMPT, CLUSTER, FINALIZER
from pliant.model.fact import AttemptResized, NodeLost, NodeSeen, ResizeDenied
from pliant.model.order import Resize
from tests.engines.contract import GIB, A, B, EngineContract
from tests.kubernetes.control_plane import Answered
from tests.kubernetes.gate import Gate
from tests.kubernetes.kube_rig import KubeRig


@pytest.fixture
def rig(plane, tmp_path):
    rig = KubeRig(plane, tmp_path)
    rig.open()
    yield rig
    rig.clean()


class TestContract(EngineContract):
    pass


def test_a_pod_shows_what_its_workload_has_and_of_a_large_one_its_own_part(rig):
    """A pod with more than 256 KiB of annotations would never start."""

    def document(version, tasks):
        entries = [{"id": f"worker-{index}", "gpus": [f"node/gpu-{index}"]} for index in range(tasks)]
        return {"version": version, "epoch": 1, "tasks": [{**it, "state": "active"} for it in entries]}

    def shown():
        return json.loads(rig.pod(A)["metadata"]["annotations"]["pliant/allocation"])

    large = document(1, 5000)
    rig.engine.allocation(A, large)
    rig.run(A, rig.forever())
    assert shown() == {**large, "tasks": [it for it in large["tasks"] if it["id"] == A.task]}
    rig.engine.allocation(A, document(2, 2))
    rig.until(lambda: shown() == document(2, 2), "the pod shows it")
    rig.engine.allocation(A, document(3, 5000))
    rig.until(lambda: shown()["version"] == 3 and len(shown()["tasks"]) == 1, "and its part of what follows")


def test_what_a_busy_api_server_refuses_is_tried_again(plane, tmp_path):
    """A conflict does not count as a pod's end: the pod would keep its finalizer for ever."""
    gate = Gate(plane.url, plane.folder / "certificates", random.Random(1))
    said = json.loads(plane.kubeconfig.read_text())
    said["clusters"][0]["cluster"]["server"] = gate.url
    (tmp_path / "kubeconfig").write_text(json.dumps(said))
    connection = Connection(tmp_path / "kubeconfig")
    try:
        cluster = Cluster(connection.client, "another")
        body = {"metadata": {"name": "kept", "namespace": "default", "finalizers": [FINALIZER]}}
        body["spec"] = {"schedulerName": "another", "containers": [{"name": "main", "image": "forever"}]}
        pod = cluster.create(body)
        gate.trouble(1.0)
        with pytest.raises(ApiError):
            cluster.release(pod)  # 409
        with pytest.raises(Refused):
            cluster.remove(pod)  # 429
        gate.trouble(0.0)
        assert plane.get("/api/v1/namespaces/default/pods/kept")["metadata"]["finalizers"] == [FINALIZER]
        cluster.remove(pod)
        assert plane.get("/api/v1/namespaces/default/pods/kept") is None
        cluster.release(pod)  # the pod is gone: nothing to do
    finally:
        connection.close()
        gate.close()


def test_a_pod_that_has_ended_goes_when_kubectl_deletes_it(rig):
    """Its finalizer keeps it until its end is recorded; only the server removes the finalizer."""
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.until(lambda: rig.ends(A), "it has ended")
    rig.engine.recorded(A)
    name = rig.pod(A)["metadata"]["name"]
    rig.plane.kubectl("delete", "pod", "--namespace", f"runai-{rig.name}", name, "--wait=true")
    assert rig.pod(A) is None


def test_a_pod_that_has_ended_stays_until_that_is_recorded(rig):
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.until(lambda: rig.ends(A), "it has ended")
    rig.plane.request("DELETE", f"{rig.pods}/{rig.pod(A)['metadata']['name']}")
    rig.until(lambda: "deletionTimestamp" in rig.pod(A)["metadata"], "it is deleted")
    rig.until(lambda: rig.engine._pod(A).deleting, "the engine has seen that")
    assert rig.pod(A) is not None
    rig.engine.recorded(A)
    rig.until(lambda: rig.pod(A) is None, "it goes")


def add_node(rig):
    rig.plane.add_node(rig.name, gpus=4, labels={"rig": rig.name, "nvidia.com/gpu.memory": "16384"})


def nodes(rig):
    return [fact.node for fact in list(rig.seen) if isinstance(fact, NodeSeen)]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_was_given_up_with_its_node_ends_though_the_node_comes_back(rig, when):
    """The scheduler counts it as lost: it would run beside its next attempt, on GPUs given to others."""
    rig.seen = []
    sink, rig.engine._sink = rig.engine._sink, lambda fact: (rig.seen.append(fact), sink(fact))
    node = f"/api/v1/nodes/{rig.name}"
    if when == "before":
        rig.run(A, rig.stubborn())
    rig.plane.request("DELETE", node)
    rig.until(lambda: NodeLost(rig.name) in rig.seen, "the node is gone")
    rig.seen.clear()  # earlier facts, while the pod began
    if when == "meanwhile":
        rig.start(A, rig.stubborn())
        assert rig.end(A).lost
        assert rig.pod(A) is None
    add_node(rig)
    rig.until(lambda: nodes(rig), "it is back")
    if when == "meanwhile":
        return
    rig.until(lambda: "deletionTimestamp" in rig.pod(A)["metadata"], "it is asked to end")
    told = [sum(gpu.foreign for gpu in node.gpus) for node in nodes(rig)]
    free = told[0] == 0 or (set(told) != {1} and rig.alive(A))  # its grace period may be over by now
    assert not free, f"its GPU is not free as long as it lives: {rig.seen}"
    rig.destroy(A)
    assert rig.end(A).lost
    rig.until(lambda: not any(gpu.foreign for gpu in nodes(rig)[-1].gpus), "now it is")


@pytest.mark.parametrize("namespace", ["forget", "other"])
def test_a_deleted_pod_that_nobody_knows_goes_whatever_its_namespace_is_called(rig, namespace):
    """A server claimed it whose database was since restored to an older state."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    rig.plane.add_namespace(namespace)
    metadata = {"name": "stray", "finalizers": [FINALIZER], "labels": {CLUSTER: rig.name}}
    metadata["annotations"] = {ATTEMPT: "w-lost/task-0/1"}
    spec = {"schedulerName": rig.name, "containers": [{"name": "main", "image": "forever"}]}
    rig.plane.request("POST", pods, {"metadata": metadata, "spec": spec})
    rig.plane.request("DELETE", f"{pods}/stray")
    rig.until(lambda: rig.plane.get(f"{pods}/stray") is None, "it goes")


@pytest.mark.parametrize("said", ["", "a", "a/b", "a/b/c", "a/b/1/2"])
def test_a_pod_that_says_it_is_ours_in_words_that_we_do_not_know(rig, said):
    """Any account that may create pods can write that: the server must not lose sight of other pods."""
    metadata = {"name": f"forged-{rig.name}", "labels": {CLUSTER: rig.name}, "annotations": {ATTEMPT: said}}
    with suppress(Answered):
        rig.plane.add_namespace("forged")
    path = "/api/v1/namespaces/forged/pods"
    spec = {"nodeName": rig.name, "containers": [{"name": "main", "image": "forever"}]}
    rig.plane.request("POST", path, {"metadata": metadata, "spec": spec})
    try:
        rig.run(A, rig.forever())
        rig.until(lambda: rig.alive(A), "it runs")
        rig.drop()
        rig.open()
        rig.until(lambda: rig.engine._pod(A) is not None, "it is known again")
    finally:
        rig.plane.request("DELETE", f"{path}/{metadata['name']}?gracePeriodSeconds=0")


def test_a_pod_that_is_ending_is_not_told_what_others_lose(rig):
    """Otherwise the end of a gang of hundreds would cost a request for each pod and each end."""

    def shown(attempt=A):
        return json.loads(rig.pod(attempt)["metadata"]["annotations"]["pliant/allocation"])

    rig.run(A, rig.stubborn())
    rig.engine.allocation(A, {"version": 2, "epoch": 1, "tasks": []})
    rig.until(lambda: shown()["version"] == 2, "it is told")
    rig.stop(A, 60_000)
    rig.until(lambda: "deletionTimestamp" in rig.pod(A)["metadata"], "it is to end")
    rig.run(B, rig.forever())  # the same watch shows it, and so has shown the other's end before
    rig.engine.allocation(A, {"version": 3, "epoch": 1, "tasks": []})
    rig.engine.allocation(B, {"version": 4, "epoch": 1, "tasks": []})
    rig.until(lambda: shown(B)["version"] == 4, "work goes on")
    assert shown()["version"] == 2
    rig.destroy(A)


def fitted(rig, cpu, memory, attempt=A):
    rig.engine.resize(Resize(attempt, replace(rig.place(0), cpu=cpu, memory=memory), 10, "user", rig.epoch))


def denied(rig):
    return [fact for fact in rig.facts if isinstance(fact, ResizeDenied)]


def pending(rig, reason, message):
    condition = {"type": "PodResizePending", "status": "True", "reason": reason, "message": message}
    rig.told(A, {"conditions": [condition]})


def test_what_a_node_cannot_give_is_told_and_given_later(rig):
    rig.run(A, rig.forever())
    fitted(rig, 3000, 2 * GIB)
    rig.until(lambda: rig.asked(A)["cpu"] == "3", "the pod asks for it")
    pending(rig, "Deferred", "Node didn't have enough resource: cpu")
    rig.until(lambda: denied(rig), "it is told")
    assert denied(rig) == [ResizeDenied(A, "Node didn't have enough resource: cpu.", later=True)]
    rig.drop()
    rig.facts.clear()
    rig.open()
    fitted(rig, 3000, 2 * GIB)  # the next server repeats the order
    rig.until(lambda: denied(rig), "the next server is told too")
    rig.grant(A)
    rig.until(lambda: has(rig, 3000, 2 * GIB), "it has that")
    rig.facts.clear()
    fitted(rig, 4000, GIB)
    rig.until(lambda: rig.asked(A)["cpu"] == "4", "the pod asks for it")
    pending(rig, "Infeasible", "its cores are its own")
    rig.until(lambda: denied(rig), "it is told")
    assert denied(rig) == [ResizeDenied(A, "its cores are its own.", later=False)]
    rig.facts.clear()
    fitted(rig, 90_000, GIB)
    rig.until(lambda: denied(rig), "the API server refuses what the node does not have")
    assert "requested: 90000, allocatable: 8000" in denied(rig)[0].said


def has(rig, cpu, memory):
    return any(isinstance(it, AttemptResized) and (it.cpu, it.memory) == (cpu, memory) for it in rig.facts)


def test_a_pod_without_memory_of_its_own_gets_none(rig):
    """That would change its QoS class, which the API server refuses; its pod continues unchanged."""
    rig.run(A, rig.forever(), replace(rig.place(0), cpu=0, memory=0))
    fitted(rig, 1000, GIB)
    rig.until(lambda: denied(rig), "it is told")
    (fact,) = denied(rig)
    assert "QOS" in fact.said.upper().replace(" ", "") and not fact.later
    assert rig.alive(A) and "cpu" not in rig.asked(A)


def test_a_limit_moves_once_though_the_watch_is_late(rig):
    asked = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "3Gi"}}
    container = {"name": "main", "image": "forever", "resources": asked}
    metadata = {"name": "limited", "namespace": f"runai-{rig.name}"}
    with suppress(Answered):
        rig.plane.add_namespace(metadata["namespace"])
    body = {"metadata": metadata, "spec": {"nodeName": rig.name, "containers": [container]}}
    connection = Connection(rig.kubeconfig)
    try:
        cluster = Cluster(connection.client, "another")
        pod = cluster.create(body)
        path = f"{rig.pods}/limited"
        rig.until(lambda: rig.plane.get(path)["status"]["phase"] == "Running", "it runs")
        for _ in range(2):
            cluster.resize(pod, 2000, 2 * GIB)
        (main,) = rig.plane.get(path)["spec"]["containers"]
        assert main["resources"] == {
            "requests": {"cpu": "2", "memory": str(2 * GIB)},
            "limits": {"cpu": "4", "memory": str(4 * GIB)},
        }
    finally:
        rig.plane.request("DELETE", f"{rig.pods}/limited?gracePeriodSeconds=0")
        connection.close()


def test_an_api_server_that_cannot_change_pods_is_named(plane, tmp_path):
    gate = Gate(plane.url, plane.folder / "certificates", random.Random(1))
    gate.lacks = "/resize"
    rig = KubeRig(plane, tmp_path)
    said = json.loads(plane.kubeconfig.read_text())
    said["clusters"][0]["cluster"]["server"] = gate.url
    rig.kubeconfig = tmp_path / "kubeconfig"
    rig.kubeconfig.write_text(json.dumps(said))
    try:
        rig.open()
        rig.run(A, rig.forever())
        fitted(rig, 2000, 2 * GIB)
        rig.until(lambda: denied(rig), "it is told")
        assert "Kubernetes can from version 1.33 on" in denied(rig)[0].said
        assert rig.alive(A)
    finally:
        rig.clean()
        gate.close()


def test_a_disruption_budget_is_honoured(rig, monkeypatch):
    """No controller computes how many disruptions it allows, so no pod that it selects is evicted."""
    tries, evict = [], Cluster.evict

    def told(self, pod, grace):
        tries.append(evict(self, pod, grace))
        return tries[-1]

    monkeypatch.setattr(Cluster, "evict", told)
    rig.run(A, rig.forever())
    path = f"/apis/policy/v1/namespaces/{rig.pod(A)['metadata']['namespace']}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"pliant/workload": A.workload}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}}
    rig.plane.request("POST", path, body | {"spec": spec})
    rig.stop(A)
    rig.until(lambda: len(tries) >= 2, "it is tried again")
    assert set(tries) == {False} and rig.alive(A) and not rig.ends(A)
    rig.plane.request("DELETE", f"{path}/kept")
    assert rig.end(A).stopped
