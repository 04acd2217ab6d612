"""Two servers on one cluster under all kinds of faults; PLIANT_SEED repeats a storm."""

import http.client
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

from pliant.model.workload import AttemptId
from tests.house.seeds import seed_or
from tests.kubernetes.control_plane import Answered, ControlPlane, pieces
from tests.kubernetes.gate import Gate
from tests.kubernetes.keeper import Plane
from tests.kubernetes.owed import Owed
from tests.kubernetes.replica import Replica
from tests.shim.stage import compile_c
from tests.store.postgres import server

NODES, GPUS = 3, 2
MOST = NODES * GPUS + 2  # jobs at a time: some wait
PATIENCE = 240.0
GOAL = 10.0
"""Seconds from a fault's end until exactly the right jobs run; the test prints KWOK's part of them."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PODS = "/api/v1/namespaces/default/pods"


class Storm:
    def __init__(self, folder: Path, address: str, dice: random.Random) -> None:
        self.folder, self.address, self.dice = folder, address, dice
        (folder / "plane").mkdir()
        self.keeper = Plane(folder / "plane", pieces(), ())
        self.keeper.start()
        keeper = self.keeper
        self.plane = ControlPlane(
            keeper.url, keeper.token, str(keeper.folder), str(keeper.pieces), keeper.etcd_url
        )
        self.gate = Gate(self.plane.url, self.keeper.folder / "certificates", dice)
        for index in range(NODES):
            self.add_node(index)
        self.plane.add_namespace("pliant")
        for name in ("a", "b"):
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
            body["spec"] = {"containers": [{"name": "server", "image": "forever"}]}
            self.plane.request("POST", "/api/v1/namespaces/pliant/pods", body)
        said = json.loads(self.plane.kubeconfig.read_text())
        said["clusters"][0]["cluster"]["server"] = self.gate.url
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(said))
        self.clock = compile_c(folder / "skew.so", "-shared", "-fPIC", Path(__file__).parent / "skew.c")
        self.replicas: dict[str, Replica] = {}
        self.jobs: dict[str, str] = {}  # id by name
        self.made = 0
        self.wrong: list[str] = []  # violations of invariants that were seen
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        self.owed = Owed()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._look, daemon=True)
        self._watcher.start()
        self.begin("a")
        self.until(lambda: self.leader() is not None, "one leads")
        self.begin("b")

    def close(self) -> None:
        self._over.set()
        self._watcher.join()
        for each in self.replicas.values():
            if each.lives():
                each.end()
        self.gate.close()
        self.keeper.end()

    # ---- servers ----

    def begin(self, name: str, halt: str = "") -> Replica:
        """Starts a server whose clock is skewed."""
        env = {
            "LD_PRELOAD": str(self.clock),
            "SKEW": str(self.dice.choice((-60, 0, 60))),
            "PLIANT_HALT": halt,
        }
        self.replicas[name] = Replica(name, self.folder, self.address, self.kubeconfig, env)
        return self.replicas[name]

    def leader(self) -> Replica | None:
        return next((each for each in self.replicas.values() if each.lives() and each.leads()), None)

    def ask(self, path, body=None, *, method=None):
        """Repeats a request until a leader has answered it."""

        def once():
            leader = self.leader()
            found.append(leader.ask(path, body, method=method, timeout=10) if leader else (0, {}))
            return found[-1][0] in (200, 201, 202, 204, 404, 409)

        found: list = []
        self.until(once, f"an answer to {path}")
        return found[-1]

    def until(self, condition, what, seen=lambda: ""):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what} {seen()}"
            time.sleep(0.1)

    # ---- work ----

    def add_node(self, index: int) -> None:
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
        self.plane.add_node(f"n{index}", gpus=GPUS, labels=labels)

    def submit(self) -> None:
        self.made += 1
        name = f"job-{self.made}"
        project = self.ask("/api/v1/org-unit/projects")[1]["projects"][0]["id"]
        cluster = self.ask("/api/v1/clusters")[1][0]["uuid"]
        self.ask("/api/v1/workloads/trainings", self.body(name, project, cluster))
        self.jobs[name] = next(it["id"] for it in self.rows() if it["name"] == name)

    def body(self, name, project, cluster):
        spec = {"image": "forever", "compute": {"gpuDevicesRequest": 1}, "backoffLimit": 1000}
        return {"name": name, "projectId": project, "clusterId": cluster, "spec": spec}

    def delete(self, name: str) -> None:
        self.ask(f"/api/v1/workloads/{self.jobs.pop(name)}", method="DELETE")

    def rows(self):
        return self.ask("/api/v1/workloads")[1]["workloads"]

    def work(self) -> None:
        """Submits one to three jobs, and deletes some above MOST."""
        for _ in range(self.dice.randint(1, 3)):
            self.submit()
        while len(self.jobs) > MOST:
            self.delete(self.dice.choice(sorted(self.jobs)))

    # ---- the truth ----

    def pods(self):
        """Pods of attempts that are bound to present nodes and whose containers may run."""
        return self.running(*self.shown())

    def shown(self):
        nodes = {each["metadata"]["name"] for each in self.plane.request("GET", "/api/v1/nodes")["items"]}
        return nodes, self.plane.request("GET", PODS)["items"]

    def running(self, nodes, pods):
        found = []
        for pod in pods:
            metadata = pod["metadata"]
            bound = pod["spec"].get("nodeName") in nodes and metadata.get("deletionGracePeriodSeconds") != 0
            over = pod["status"].get("phase") in ("Succeeded", "Failed")
            if bound and not over and "pliant/attempt" in metadata.get("annotations", {}):
                found.append(pod)
        return found

    def _look(self) -> None:
        """Checks the invariants all the time, independently of servers."""
        while not self._over.wait(0.1):
            with suppress(OSError, http.client.HTTPException, Answered, ValueError):
                nodes, everything = self.shown()
                self.owed.look(everything, nodes)
                pods = self.running(nodes, everything)
                attempts = [AttemptId.parse(it["metadata"]["annotations"]["pliant/attempt"]) for it in pods]
                tasks = Counter((it.workload, it.task) for it in attempts)
                given = (it["metadata"]["annotations"]["pliant/gpus"] for it in pods)
                devices = Counter(device for gpus in given for device in gpus.split(","))
                self.wrong += [f"{it} runs twice" for it, count in tasks.items() if count > 1]
                self.wrong += [f"{it} is given twice" for it, count in devices.items() if count > 1]

    def settled(self) -> bool:
        """True if exactly the right jobs run: no GPU is idle while a job waits, and no other pod is left."""
        leader = self.leader()
        status, said = leader.ask("/api/v1/workloads", timeout=5) if leader else (0, {})
        if status != 200:
            return False
        phases = {it["id"]: it["phase"] for it in said["workloads"]}
        try:
            nodes, everything = self.shown()
        except (OSError, http.client.HTTPException, Answered):
            return False
        pods = self.running(nodes, everything)
        running = sorted(it["metadata"]["labels"]["pliant/workload"] for it in pods)
        ready = all(
            it["status"].get("phase") == "Running" and "deletionTimestamp" not in it["metadata"]
            for it in pods
        )
        left = {it["metadata"]["labels"].get("pliant/workload") for it in everything} - set(
            self.jobs.values()
        )
        return (
            ready
            and not left
            and sorted(phases) == sorted(self.jobs.values())
            and running == sorted(id for id, phase in phases.items() if phase == "Running")
            and len(running) == min(len(self.jobs), len(nodes) * GPUS)
        )

    def seen(self):
        with suppress(OSError, Answered):
            pods = self.plane.request("GET", PODS)["items"]
            shown = [
                (it["metadata"]["name"], it["spec"].get("nodeName"), it["status"].get("phase")) for it in pods
            ]
            leader = self.leader()
            rows = leader.ask("/api/v1/workloads")[1].get("workloads", ()) if leader else ()
            return shown, {it["name"]: it["phase"] for it in rows}

    # ---- rounds ----

    def round(self, fault) -> None:
        for name in ("a", "b"):
            if not self.replicas[name].lives():
                self.begin(name)
        self.until(self.both, "both are there")
        self.until(self.settled, "it is at rest", self.seen)
        fault()
        ended, owed, told = time.monotonic(), self.owed.seconds, len(self.owed.told)
        self.until(self.settled, f"what runs is what is to run after {fault.__name__}", self.seen)
        owed, took = self.owed.seconds - owed, time.monotonic() - ended
        if owed:
            print(f"{took:.1f} s, {owed:.1f} of them KWOK's: {'; '.join(self.owed.told[told:])}", flush=True)
        self.took[fault.__name__].append(took)
        assert self.wrong == []

    def both(self) -> bool:
        """True if both servers are ready: one that has just begun cannot take over yet."""
        return all(it.lives() and it.ask("/readyz", timeout=2)[0] == 200 for it in self.replicas.values())

    # ---- faults: each returns when it is over ----

    def api_server_restarts(self) -> None:
        self.keeper.kill("kube-apiserver")
        self.work()
        time.sleep(self.dice.uniform(0, 2))
        self.keeper.restart("kube-apiserver")
        self.keeper.wait()
        self.nodes_hear_again()

    def nodes_hear_again(self) -> None:
        """Restarts KWOK: it waits up to 30 s before it asks an API server again that was away several times,
        and pods that were asked to end would stay as long, whatever the servers do."""

        def hears():
            with suppress(OSError), urllib.request.urlopen(f"{self.keeper.kwok_url}/healthz", timeout=5):
                return True
            return False

        self.keeper.kill("kwok")
        self.plane.request("DELETE", LEASES)  # otherwise the new one waits 40 s for the old one's leases
        self.keeper.restart("kwok")
        self.until(hears, "KWOK is there")

    def watches_are_cut(self) -> None:
        for _ in range(3):
            self.work()
            self.gate.cut()

    def requests_fail(self) -> None:
        self.gate.trouble(0.3)
        self.work()
        time.sleep(self.dice.uniform(1, 4))
        end = time.monotonic() + PATIENCE
        while not {409, 429, 500} <= set(self.gate.injected):
            assert time.monotonic() < end, f"only these failures came: {self.gate.injected}"
            self.work()
            time.sleep(0.2)
        self.work()
        self.gate.trouble(0.0)

    def history_is_compacted(self) -> None:
        """The servers' versions are older than the history that etcd still has."""
        self.work()
        url = f"{self.keeper.etcd_url}/v3/kv"
        ask = urllib.request.Request(f"{url}/range", json.dumps({"key": "AA=="}).encode())
        with urllib.request.urlopen(ask, timeout=20) as answer:
            revision = json.loads(answer.read())["header"]["revision"]
        body = json.dumps({"revision": revision, "physical": True}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{url}/compaction", body), timeout=20):
                pass
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            assert "has been compacted" in said, said  # nothing was written since the last compaction
        self.gate.expire()
        self.work()

    def node_goes(self) -> None:
        """A node disappears with all that ran there, and comes back."""
        index = self.dice.randrange(NODES)
        self.plane.request("DELETE", f"/api/v1/nodes/n{index}")
        self.work()
        for pod in self.plane.request("GET", PODS)["items"]:  # as the garbage collector of pods does
            if pod["spec"].get("nodeName") == f"n{index}":
                with suppress(Answered):
                    self.plane.request("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        time.sleep(self.dice.uniform(0, 2))
        self.add_node(index)

    def leader_is_killed(self) -> None:
        leader = self.leader()
        assert leader is not None
        self.work()
        leader.end()

    def leader_ends_between_record_and_binding(self) -> None:
        self._halted("")

    def leader_sleeps_between_record_and_binding(self) -> None:
        """The leader is stopped until the other one leads, and a while longer."""
        self._halted(",stop")

    def _halted(self, how: str) -> None:
        leader = self.leader()
        assert leader is not None
        (other,) = (it.name for it in self.replicas.values() if it is not leader)
        self.replicas[other].end()
        self.begin(other, f"recorded:start{how}")  # halts at its first order, once it leads
        self.until(lambda: self.replicas[other].ask("/readyz", timeout=2)[0] == 200, "the next one is there")
        leader.end()
        self.begin(leader.name)
        halted = self.replicas[other]
        self.until(lambda: not self.awake(halted) or halted.leads(), "it leads, or has met its end")
        asked = self.provoke(halted)
        self.until(lambda: not self.awake(halted), "it has met its end", self.seen)
        self.until(lambda: self.leader() is not None, "the other one leads")
        rows = {it["name"]: it["id"] for it in self.rows()}
        self.jobs |= {name: rows[name] for name in asked if name in rows}  # the answer was lost
        self.work()
        if how:
            os.kill(halted.process.pid, signal.SIGCONT)

    def provoke(self, leader: Replica) -> list[str]:
        """Submits jobs until it halts at a start; returns the names of jobs that it may have accepted."""
        project = leader.ask("/api/v1/org-unit/projects", timeout=3)[1].get("projects", [{}])[0].get("id")
        clusters = leader.ask("/api/v1/clusters", timeout=3)[1] or [{}]
        asked = []
        for _ in range(MOST):
            if not self.awake(leader):
                break
            self.made += 1
            asked.append(f"job-{self.made}")
            body = self.body(asked[-1], project, clusters[0].get("uuid"))
            leader.ask("/api/v1/workloads/trainings", body, timeout=3)
            if len(self.jobs) + len(asked) > NODES * GPUS and self.jobs:
                self.delete(self.dice.choice(sorted(self.jobs)))
        return asked

    def awake(self, replica: Replica) -> bool:
        if not replica.lives():
            return False
        return Path(f"/proc/{replica.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T"

    def faults(self):
        return (
            self.requests_fail,
            self.history_is_compacted,
            self.leader_is_killed,
            self.leader_ends_between_record_and_binding,
            self.api_server_restarts,
            self.watches_are_cut,
            self.node_goes,
            self.leader_sleeps_between_record_and_binding,
        )

    def report(self) -> None:
        for what, times in sorted(self.took.items()):
            middle, most = statistics.median(times), max(times)
            print(f"{what}: {len(times)} times, at rest after {middle:.1f} s, {most:.1f} s at most")
        print(f"answers of the gate: {self.gate.injected}")


@pytest.fixture
def storm(tmp_path, request):
    dice = random.Random(seed_or(20261127))
    with tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder, server(Path(folder)) as running:
        made = Storm(tmp_path, running.place(), dice)
        yield made
        made.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("most", [4, pytest.param(8, marks=pytest.mark.long)])
def test_each_fault_once(storm, most):
    for fault in storm.faults()[:most]:
        storm.round(fault)
        print(f"{fault.__name__}: at rest after {storm.took[fault.__name__][-1]:.1f} s", flush=True)
    assert set(storm.gate.injected) == {409, 410, 429, 500}


@pytest.mark.long
@pytest.mark.timeout(9000)
def test_a_hundred_rounds(storm):
    rounds = int(os.environ.get("PLIANT_ROUNDS", "100"))
    for number in range(1, rounds + 1):
        fault = storm.dice.choice(storm.faults())
        storm.round(fault)
        took = storm.took[fault.__name__][-1]
        print(f"round {number}: {fault.__name__}, at rest after {took:.1f} s", flush=True)
    storm.report()
    assert not {what: max(times) for what, times in storm.took.items() if max(times) >= GOAL}
