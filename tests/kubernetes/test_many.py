"""Counts a server's requests for each of many pods: an API server answers a limited number a second."""

import json
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import until
from tests.kubernetes.gate import Gate

FOUND, OURS, NODES, GPUS = 120, 40, 20, 8
PATH = "/api/v1/namespaces/default/pods"


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path / "stage")
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


def still(gate):
    """True if there was no request since the last look."""
    before, gate.seen = getattr(gate, "seen", None), sum(gate.asked.values())
    return before == gate.seen


def test_down_asks_once_for_each_task(stage, planes, tmp_path):
    """One request to end each task. Our own pods also get a final annotation and lose their finalizer."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"

    def create(number):
        container = {"name": "main", "image": "forever", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}}
        plane.request("POST", PATH, body | {"spec": {"schedulerName": "pliant", "containers": [container]}})

    def phases():
        return [pod["status"].get("phase") for pod in plane.request("GET", PATH)["items"]]

    with planes.own() as plane:
        gate = Gate(plane.url, plane.folder / "certificates", random.Random(1))
        said = json.loads(plane.kubeconfig.read_text())
        said["clusters"][0]["cluster"]["server"] = gate.url
        (tmp_path / "kubeconfig").write_text(json.dumps(said))
        for number in range(NODES):
            plane.add_node(f"n{number}", gpus=GPUS)
        typed(f"pliant up --kubeconfig {tmp_path}/kubeconfig")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(FOUND)))
        words = f"--workers {OURS} --no-master --gpu-devices-request 1 --image forever"
        typed(f"pliant training pytorch submit many {words}")
        until(lambda: phases() == ["Running"] * (FOUND + OURS), "all run")
        until(lambda: still(gate), "nothing is asked for a second", least=1.0)
        gate.asked.clear()
        typed("pliant down --yes")
        asked = Counter()
        for (method, path), times in gate.asked.items():
            asked[method, re.sub(r"/pods/[^/]+", "/pods/*", path)] += times
        gate.close()
        assert set(phases()) <= {"Succeeded", "Failed"}
    writes = {what: times for what, times in asked.items() if what[0] != "GET"}
    tasks = FOUND + OURS  # a pod whose watch is more than 2 s late gets a second request
    assert tasks <= writes.pop(("POST", f"{PATH}/*/eviction")) <= tasks * 5 // 4, asked
    assert writes.pop(("PATCH", f"{PATH}/*"), 0) <= 3 * OURS, asked
    assert sum(writes.values()) <= 5, asked
    assert sum(times for (method, _), times in asked.items() if method == "GET") <= 30, asked
