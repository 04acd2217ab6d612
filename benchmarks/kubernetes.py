"""Pods on a real API server with nodes played by KWOK: how fast Pliant fills, reclaims, places a large gang.

After `tests/kubernetes/setup`:

    python benchmarks/kubernetes.py --nodes 1000 --pods 8000 --rounds 3 --limit 1800
    python benchmarks/kubernetes.py --nodes 1000 --pods 8000 --parts reclaim --limit 1200
    python benchmarks/kubernetes.py --nodes 1000 --pods 8000 --parts gang --limit 1200

`fill`: one client makes pods of one GPU with 8 threads and no request limit. Without a server of Pliant, it
binds each pod as soon as it has made it; then Pliant gets pods that name it as their scheduler, and is done
when none of them is unbound. Rounds alternate; the ratio is that of the two rates.
`reclaim`: one project has filled all nodes, and another one with a quota of half of them makes as many pods.
`gang`: a third project submits a job of a quarter of all GPUs, whose tasks have a node each.
It stops after `--limit` seconds with what it has printed so far. Memory is the sum of the peaks of the
server's processes.
"""

import argparse
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import pieces, shared, until

THREADS = 8
GPUS = 8  # of a node
LOOK, LATEST = 0.25, 2.0  # seconds between two polls: each makes the API server list the unbound pods
HZ = os.sysconf("SC_CLK_TCK")
OURS = ("server", "decider")


def cpu(pid):
    """CPU seconds of a process, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def programs(folder, server):
    """Name -> pids; a child process of the server is the decider."""
    found = {
        "kube-apiserver": [],
        "etcd": [],
        "kwok": [],
        "server": [],
        "decider": [],
        "client": [os.getpid()],
    }
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        name = Path(os.fsdecode(words[0])).name
        text = b" ".join(words)
        if name in found and os.fsencode(folder) in text:
            found[name].append(int(entry))
        elif os.fsencode(server) in text and b"pliant.app" in text:
            found["server"].append(int(entry))
    for entry in found["server"]:
        below = subprocess.run(["pgrep", "-P", str(entry)], capture_output=True, text=True, check=False)
        found["decider"] += map(int, below.stdout.split())
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

    def unbound(self, namespace):
        """How many of its pods have no node, from the API server's cache."""
        query = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D&resourceVersion=0"
        kind = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        return len(self.http.get(query, headers={"Accept": kind}).json()["items"] or ())

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


def bare(client, namespace, pods, nodes):
    begun = time.monotonic()

    def one(number):
        client.create(namespace, f"p{number}", "nobody")
        client.bind(namespace, f"p{number}", f"n{number // GPUS % nodes}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(pods)))
    return time.monotonic() - begun


def ours(client, namespace, pods):
    """Seconds until all are bound, and until all were made."""
    begun = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: client.create(namespace, f"p{number}", "pliant"), range(pods)))
    made = time.monotonic() - begun
    try:
        while left := client.unbound(namespace):
            rate = max(pods - left, 1) / (time.monotonic() - begun)
            half = left / rate / 2  # of the time that the rest will take: hours until the first is bound
            time.sleep(min(max(LOOK, half), LATEST))
    except TimeoutError:
        sys.exit(f"not within the limit: {client.unbound(namespace)} pods are not bound")
    return time.monotonic() - begun, made


def wait(condition, what):
    try:
        while not condition():
            time.sleep(LOOK)
    except TimeoutError:
        sys.exit(f"not within the limit: {what()}")


def clean(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [
        each["metadata"]["name"] for each in client.http.get(f"{path}?resourceVersion=0").json()["items"]
    ]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: client.http.delete(f"{path}/{name}?gracePeriodSeconds=0"), names))
    wait(lambda: not client.http.get(f"{path}?limit=1").json()["items"], lambda: "pods stay")


class Server:
    """A server of Pliant."""

    def __init__(self, plane, stage) -> None:
        self.plane, self.stage = plane, stage
        self.peak = 0  # MiB of all its processes
        self.pids = {}

    def type(self, command):
        done = self.stage.run(f"pliant {command}")
        assert done.code == 0, done.said
        return done.said

    def __enter__(self):
        self.type(f"up --kubeconfig {self.plane.kubeconfig}")
        self.pids = programs(self.plane.folder, self.stage.state)
        return self

    def __exit__(self, *_):
        told = (Path(f"/proc/{pid}/status").read_text() for name in OURS for pid in self.pids[name])
        self.peak = max(self.peak, sum(int(each.split("VmHWM:")[1].split()[0]) for each in told) // 1024)
        for pid in self.pids["server"]:  # a `down` would first stop everything
            os.kill(pid, signal.SIGKILL)


def shares(before, after):
    spent = {key: after[key] - before.get(key, 0.0) for key in after}
    ours = 100 * sum(spent.get(name, 0.0) for name in OURS) / max(sum(spent.values()), 0.1)
    return f"{json.dumps({key: round(each, 1) for key, each in spent.items()})}, Pliant {ours:.0f} %"


def fill(client, server, pods, nodes, rounds):
    ratios = []
    for number in range(rounds):
        pids = programs(server.plane.folder, server.stage.state)
        begun = spent(pids)
        alone = bare(client, "bare", pods, nodes)
        first = shares(begun, spent(pids))
        print(f"bare {alone:.1f} s", flush=True)
        clean(client, "bare")
        with server:
            begun = spent(server.pids)
            took, made = ours(client, "runai-team", pods)
            second = shares(begun, spent(server.pids))
            if number + 1 < rounds:
                clean(client, "runai-team")
        ratios.append(alone / took)
        print(
            f"round {number + 1}: bare {alone:.1f} s ({pods / alone:.0f}/s), Pliant {took:.1f} s "
            f"({pods / took:.0f}/s; made in {made:.1f} s): {100 * alone / took:.0f} %\n"
            f"  processor s: bare {first}, Pliant {second}",
            flush=True,
        )
    print(f"median {100 * sorted(ratios)[len(ratios) // 2]:.0f} %", flush=True)


def take_back(client, server, pods, parts):
    with server:
        begun = spent(server.pids)
        took, _ = ours(client, "runai-team", pods)
        print(f"filled in {took:.1f} s; {shares(begun, spent(server.pids))}", flush=True)
        if "reclaim" in parts:
            begun = spent(server.pids)
            took, made = ours(client, "runai-owner", pods // 2)
            print(
                f"reclaim of {pods // 2} pods: {took:.1f} s ({pods // 2 / took:.0f}/s; made in {made:.1f} s)"
                f"\n  processor s {shares(begun, spent(server.pids))}",
                flush=True,
            )
        if "gang" in parts:
            size, path = pods // 4 // GPUS, "/api/v1/namespaces/runai-gang/pods"
            begun, since = spent(server.pids), time.monotonic()
            words = f"--workers {size - 1} --gpu-devices-request 8 --image forever"
            server.type(f"training pytorch submit big --project gang {words}")

            def bound():
                found = client.http.get(f"{path}?resourceVersion=0").json()["items"]
                return sum(bool(each["spec"].get("nodeName")) for each in found)

            wait(lambda: bound() == size, lambda: f"{bound()} pods of the gang are bound")
            print(
                f"gang of {size} x {GPUS} GPUs: {time.monotonic() - since:.1f} s"
                f"\n  processor s {shares(begun, spent(server.pids))}",
                flush=True,
            )


def over(*_):
    raise TimeoutError("not within the limit")


def main(pods, nodes, rounds, parts):
    with tempfile.TemporaryDirectory(prefix="pliant-kube-") as name:
        folder = Path(name)
        with shared(folder / "cluster") as plane:
            client = Client(plane)
            labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
            can = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}

            def add(number):
                node = {"apiVersion": "v1", "kind": "Node", "status": {"capacity": can, "allocatable": can}}
                annotations = {"kwok.x-k8s.io/node": "fake"}
                node["metadata"] = {"name": f"n{number}", "labels": labels, "annotations": annotations}
                client.post("/api/v1/nodes", node)

            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(add, range(nodes)))
            for number in range(nodes):
                until(lambda number=number: plane._ready(f"n{number}"), "the nodes are ready")
            for space in ("bare", "runai-team", "runai-owner", "runai-gang"):
                plane.add_namespace(space)
            stage = Stage(folder / "stage")
            server = Server(plane, stage)
            try:
                with server:
                    for project, quota in (("team", pods // 4), ("owner", pods // 2), ("gang", pods // 4)):
                        server.type(f"project create {project} --quota {quota}")
                if "fill" in parts:
                    fill(client, server, pods, nodes, rounds)
                if {"reclaim", "gang"} & parts:
                    take_back(client, server, pods, parts)
            finally:
                stage.close()
            print(f"memory of the server {server.peak} MiB, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default in (("--nodes", 1000), ("--pods", 8000), ("--rounds", 3)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--parts", default="fill", help="of fill, reclaim, gang, with commas between them")
    parser.add_argument("--limit", type=int, default=1800, help="seconds")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, over)
    signal.alarm(given.limit)
    try:
        pieces()
    except pytest.skip.Exception as missing:
        sys.exit(f"{missing}: nothing was measured")
    try:
        main(given.pods, given.nodes, given.rounds, set(given.parts.split(",")))
    except TimeoutError as error:
        sys.exit(f"{error} of {given.limit} s")
