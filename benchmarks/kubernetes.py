"""Pods bound per second: Pliant against a bare client that creates and binds, on a real API server.

`python benchmarks/kubernetes.py [PODS] [NODES] [ROUNDS]`, after `tests/kubernetes/setup`. Nodes are KWOK's,
with 8 GPUs each. Both times one client makes PODS pods of one GPU with 8 threads and no limit of requests.
The bare client binds each pod as soon as it has made it; Pliant gets pods that name it as their scheduler,
and is done when the last one is bound. Rounds alternate. It prints seconds, the ratio, and processor seconds.
"""

import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import pieces, shared, until

THREADS = 8
HZ = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    """Processor seconds of a process and of all below it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def programs(folder, server):
    """Name -> pids."""
    found = {"kube-apiserver": [], "etcd": [], "kwok": [], "pliant": []}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        name = Path(os.fsdecode(words[0])).name
        text = b" ".join(words)
        if name in found and os.fsencode(folder) in text:
            found[name].append(int(entry))
        elif os.fsencode(server) in text and b"pliant" in text:
            found["pliant"].append(int(entry))
    return found


def spent(pids):
    total = {}
    for name, each in pids.items():
        total[name] = 0.0
        for pid in each:
            try:
                total[name] += cpu(pid)
            except OSError:
                continue
    return total


class Client:
    def __init__(self, plane) -> None:
        headers = {"Authorization": f"Bearer {plane.token}"}
        certificates = plane.folder / "certificates" / "apiserver.crt"
        limits = httpx2.Limits(max_connections=THREADS + 1)
        context = ssl.create_default_context(cafile=certificates)
        self.http = httpx2.Client(
            base_url=plane.url, headers=headers, verify=context, limits=limits, timeout=60, trust_env=False
        )

    def post(self, path, body):
        answer = self.http.post(path, json=body)
        assert answer.status_code < 300, answer.text

    def create(self, namespace, name, scheduler):
        amounts = {"nvidia.com/gpu": "1", "cpu": "100m", "memory": "100Mi"}
        resources = {"requests": amounts, "limits": {"nvidia.com/gpu": "1"}}
        container = {"name": "main", "image": "forever", "resources": resources}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        body["spec"] = {"schedulerName": scheduler, "containers": [container]}
        self.post(f"/api/v1/namespaces/{namespace}/pods", body)

    def bind(self, namespace, name, node):
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        body["target"] = {"kind": "Node", "name": node}
        self.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)


class Watch:
    """Counts pods of a namespace that have a node."""

    def __init__(self, client, namespace) -> None:
        self.client, self.path = client, f"/api/v1/namespaces/{namespace}/pods"
        self.bound: set[str] = set()
        told = client.http.get(self.path).json()
        self.version = told["metadata"]["resourceVersion"]
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        query = f"{self.path}?watch=1&resourceVersion={self.version}&timeoutSeconds=600"
        with self.client.http.stream("GET", query, timeout=None) as lines:
            for line in lines.iter_lines():
                pod = json.loads(line)["object"]
                if pod["spec"].get("nodeName"):
                    self.bound.add(pod["metadata"]["name"])

    def wait(self, wanted):
        while len(self.bound) < wanted:
            time.sleep(0.05)


def bare(client, namespace, pods, nodes):
    begun = time.monotonic()

    def one(number):
        client.create(namespace, f"p{number}", "nobody")
        client.bind(namespace, f"p{number}", f"n{number // 8 % nodes}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(pods)))
    return time.monotonic() - begun


def ours(client, namespace, pods):
    watch = Watch(client, namespace)
    begun = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: client.create(namespace, f"p{number}", "pliant"), range(pods)))
    made = time.monotonic() - begun
    watch.wait(pods)
    return time.monotonic() - begun, made


def clean(plane, namespace):
    words = [str(plane.pieces / "kubectl"), f"--kubeconfig={plane.kubeconfig}", "--namespace", namespace]
    subprocess.run(
        [*words, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false"],
        check=False,
        capture_output=True,
    )
    path = f"/api/v1/namespaces/{namespace}/pods?limit=1"
    deadline = time.monotonic() + 300
    while plane.request("GET", path)["items"]:
        assert time.monotonic() < deadline, "pods stay"
        time.sleep(0.5)


def main(pods, nodes, rounds):
    with tempfile.TemporaryDirectory(prefix="pliant-kube-") as name:
        folder = Path(name)
        with shared(folder / "cluster") as plane:
            client = Client(plane)
            labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
            can = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
            for number in range(nodes):
                node = {"apiVersion": "v1", "kind": "Node", "status": {"capacity": can, "allocatable": can}}
                annotations = {"kwok.x-k8s.io/node": "fake"}
                node["metadata"] = {"name": f"n{number}", "labels": labels, "annotations": annotations}
                client.post("/api/v1/nodes", node)
            until(lambda: plane._ready(f"n{nodes - 1}"), "the nodes are ready")
            for space in ("bare", "runai-team"):
                plane.add_namespace(space)
            stage = Stage(folder / "stage")
            try:
                run(plane, client, stage, pods, nodes, rounds)
            finally:
                stage.close()


def run(plane, client, stage, pods, nodes, rounds):
    done = stage.run(f"pliant up --kubeconfig {plane.kubeconfig}")
    assert done.code == 0, done.said
    stage.run("pliant project create team --quota 100000")
    pids = programs(plane.folder, stage.state)

    ratios = []
    for number in range(rounds):
        before = spent(pids)
        alone = bare(client, "bare", pods, nodes)
        between = spent(pids)
        clean(plane, "bare")
        time.sleep(5)
        start = spent(pids)
        took, made = ours(client, "runai-team", pods)
        after = spent(pids)
        ratios.append(alone / took)
        share = {key: round(after[key] - start[key], 1) for key in after}
        first = {key: round(between[key] - before[key], 1) for key in before}
        print(
            f"round {number + 1}: bare {alone:.1f} s ({pods / alone:.0f}/s), Pliant {took:.1f} s "
            f"({pods / took:.0f}/s; made in {made:.1f} s): {100 * alone / took:.0f} %; "
            f"processor s bare {json.dumps(first)}, Pliant {json.dumps(share)}",
            flush=True,
        )
        clean(plane, "runai-team")
        time.sleep(5)
    memory = max(
        int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
        for pid in pids["pliant"]
    )
    print(f"median {100 * sorted(ratios)[len(ratios) // 2]:.0f} %; largest server process {memory} MiB")


if __name__ == "__main__":
    try:
        pieces()
    except pytest.skip.Exception as missing:
        sys.exit(f"{missing}: nothing was measured")
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(1000, 1000, 3)[len(given) :])
