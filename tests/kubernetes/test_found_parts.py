"""Pods of others that ask for a part of a GPU, on a real API server; the test plays the webhook."""

import base64
import json
from contextlib import closing

import pytest
from lightkube.resources.core_v1 import Pod

from pliant.devices.config import parse
from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.apiserver.names import ATTEMPT, DEVICES, GPU_CONF, GPUS
from pliant.engines.kube.apiserver.seen import seen
from pliant.engines.kube.others.admission import admit
from pliant.engines.kube.others.placed import placed
from pliant.engines.kube.strangers import what_is_left
from pliant.model.machine import Placement, Share
from pliant.model.order import Start
from pliant.model.workload import Attempt, AttemptId
from tests.engines.contract import GIB
from tests.kubernetes.control_plane import until
from tests.kubernetes.test_origins import FoundRig
from tests.kubernetes.test_parts import PartsRig


class FoundPartsRig(FoundRig, PartsRig):
    def dressed(self, name, **notes):
        """A pod as the webhook changes it."""
        notes = {key.replace("_", "-"): value for key, value in notes.items()}
        container = {"name": "train", "image": "forever", "resources": {"requests": {"cpu": "500m"}}}
        spec = {"schedulerName": self.name, "restartPolicy": "Never", "containers": [container]}
        review = {"apiVersion": "v1", "kind": "Pod", "request": {"uid": "1"}}
        review["request"]["object"] = {"metadata": {"annotations": notes}, "spec": spec}
        response = admit(review, self.name, self.sharing.image)["response"]
        for change in json.loads(base64.b64decode(response["patch"])):
            *path, last = change["path"].strip("/").split("/")
            where = container if "containers" in path else spec
            where[last] = change["value"]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}}
        return self.plane.request("POST", self.pods, {**body, "spec": spec})["metadata"]["uid"]

    def start_found(self, row, portion, index=0):
        (group,) = row.groups
        attempt = AttemptId(row.id, f"{group.name}-0", 1)
        share = Share(self.node.gpus[index].uuid, portion, 16 * GIB * portion // 1000)
        place = Placement(self.name, (share,), group.request.cpu, group.request.memory)
        self.known[attempt] = Attempt(attempt, place, self.epoch, "decision-1", 0)
        self.engine.start(Start(attempt, place, row, "decision-1", self.epoch))
        return attempt

    def shown(self, name):
        return self.plane.request("GET", f"{self.pods}/{name}")


@pytest.fixture
def rig(plane, tmp_path):
    rig = FoundPartsRig(plane, tmp_path)
    plane.add_namespace(f"runai-{rig.name}")
    yield rig
    rig.clean()


def test_it_shares_a_device_that_a_pod_of_ours_holds(rig):
    rig.open()
    half, memory = rig.dressed("half", gpu_fraction="0.5"), rig.dressed("memory", gpu_memory="4096")
    rows = until(lambda: len(rig.found()) == 2 and rig.found(), "both are told")
    asked = {key: row.groups[0].request for key, row in rows.items()}
    assert [(it.devices, it.portion, it.gpu_memory) for it in (asked[half], asked[memory])] == [
        (1, 500, 0),
        (1, 1000, 4 * GIB),
    ]
    for identity, name, portion in ((half, "half", 500), (memory, "memory", 250)):
        rig.start_found(rows[identity], portion)
        until(lambda name=name: rig.shown(name)["status"]["phase"] == "Running", f"{name} runs")
        notes = rig.shown(name)["metadata"]["annotations"]
        assert notes[DEVICES] == rig.uuids[0]
        conf = parse(notes[GPU_CONF])
        assert [(it.uuid, it.limit) for it in conf.grants] == [(rig.uuids[0], 16 * GIB * portion // 1000)]
    assert len(rig.holders()) == 1
    check_a_lost_database(rig, {half, memory})
    for name in ("half", "memory"):
        rig.plane.request("DELETE", f"{rig.pods}/{name}?gracePeriodSeconds=0")
    until(lambda: rig.holders() == {}, "the device is free")


def check_a_lost_database(rig, both):
    """The pods alone tell what they have; without a pod that holds the device, they are not believed."""
    with closing(Connection(rig.plane.kubeconfig)) as connection:
        check_what_is_left(rig, both, connection.client)


def check_what_is_left(rig, both, client):
    names = rig.name, rig.name  # (scheduler, server)
    left = what_is_left(client, rig.name, "", frozenset(), "kube")
    assert left.cluster == rig.name and not left.attempts
    found = {row.id: [it for it, over in attempts if not over] for row, attempts in left.found}
    assert found.keys() == both
    for attempts in found.values():
        (attempt,) = attempts
        assert attempt.placement == rig.known[attempt.id].placement
    pods = [(pod, seen(pod)) for pod in client.list(Pod, namespace=f"runai-{rig.name}")]
    whole = [(pod, seen(pod)) for pod in client.list(Pod, namespace="*")]
    half = next(
        pod.metadata.annotations for pod, it in whole if it.name == "half" and it.scheduler == rig.name
    )
    real = dict(half)
    for forged in (
        {GPUS: "another/gpu-0"},
        {GPUS: f"{real[GPUS]},{rig.name}/gpu-1"},
        {GPUS: f"{rig.name}/gpu-x"},
        {ATTEMPT: "another/task-0/1"},
        {ATTEMPT: real[ATTEMPT].replace("task-0", "task-7")},
        {DEVICES: "GPU-1"},
    ):
        half.update({**real, **forged})
        again = [(pod, seen(pod)) for pod, _ in whole]
        (one,) = placed(client, again, *names, frozenset(), "kube")
        assert one[0].name == "memory", forged
    assert placed(client, pods, *names, frozenset(), "kube") == [], "their holder is in another namespace"


def test_why_it_gets_none_is_told(rig):
    rig.sharing = None
    rig.open()
    with pytest.raises(AttributeError):
        rig.dressed("none", gpu_fraction="0.5")
    rig.sharing = FoundPartsRig.sharing
    identity = rig.dressed("half", gpu_fraction="0.5")
    row = until(lambda: rig.found().get(identity), "it is told")
    attempt = rig.start_found(row, 500)
    until(lambda: rig.ends(attempt), "it is refused")

    def said():
        conditions = rig.shown("half").get("status", {}).get("conditions", ())
        return [each["message"] for each in conditions if each["type"] == "PodScheduled"]

    until(lambda: any("--share-image IMAGE" in each for each in said()), "its condition says why")
    rig.plane.request("DELETE", f"{rig.pods}/half?gracePeriodSeconds=0")
