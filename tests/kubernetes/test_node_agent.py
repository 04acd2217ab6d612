"""A node's agent as a pod of the chart, with its account's token, on a real kubelet: limits reach running
programs through a folder of the node, and the agent reports what pods use."""

import base64
import json
import re
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from examples.walkthrough import Stage
from pliant.devices import cards
from pliant.devices.cards import DRIVERS, Card
from pliant.devices.handout import SHIM
from pliant.devices.node_look import OVER_SECONDS
from tests.kubernetes.control_plane import ROOT, Answered, shared, until
from tests.kubernetes.images import libraries
from tests.kubernetes.keeper import free_ports
from tests.kubernetes.node import NAME, image, node, programs
from tests.kubernetes.release import ACCOUNT, CHART, run
from tests.shim.stage import HERE as PROBES
from tests.shim.stage import compile_c

GIB = 2**30
UUID = "GPU-00000000-0000-4000-8000-000000000001"
FOLDER = "/run/pliant-fractions"
OWN = "/api/v1/namespaces/default"
JOBS = "/api/v1/namespaces/runai-team-a"
SUBMIT = "runai training standard submit -i localhost/job:1"
REST = "--cpu-core-request 0.1 -p team-a -c --"
STAYS = 'trap "exit 0" TERM; while :; do sleep 0.2; done'
WAITS = "go() { until [ -e /tmp/$1 ]; do sleep 0.1; done; echo; }; (go first; go second; go third)"
OPS = "soname init ctx total ready total fill:alloc:64M ready total free fill:alloc:64M ready"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One node with one simulated GPU of 16 GiB, which lends Python and this repository to containers."""
    programs()
    base = tmp_path_factory.mktemp("agent")
    probe = compile_c(base / "probe", PROBES / "probe.c", "-ldl")
    cards.create(base / UUID, [Card(UUID, "Simulated-GPU", 16 * GIB)])
    simulated = {f"drivers/{path.name}": path for path in DRIVERS.iterdir()} | {f"cards/{UUID}": base / UUID}
    needed = {key: path for each in (probe, SHIM) for key, path in libraries(each).items()}
    ours = {f"usr/lib/pliant/{it.name}": it for it in (SHIM, SHIM.parent / "pliant-gpu-used")}
    env = ["LD_LIBRARY_PATH=/drivers", f"PLIANT_SIM_CARDS=/cards/{UUID}"]
    path = f"PATH={Path(sys.executable).parent}:/bin"
    images = [
        image("localhost/job:1", {"bin/probe": probe, **simulated, **needed}, base / "job.tar", env=env),
        image("localhost/pliant:1", {**ours, **simulated}, base / "pliant.tar", env=[*env, path]),
    ]
    lent = {Path(sys.base_prefix), Path(sys.prefix), ROOT, Path("/usr/lib/x86_64-linux-gnu")}
    lent |= {path for path in (Path("/lib"), Path("/lib64")) if path.exists()}
    with shared(base / "cluster") as plane, node(plane, base / "kubelet", images, [UUID], sorted(lent)):
        labels = {"nvidia.com/gpu.product": "Simulated-GPU", "nvidia.com/gpu.memory": str(16 * 1024)}
        plane.request("PATCH", f"/api/v1/nodes/{NAME}", {"metadata": {"labels": labels}})
        plane.card = base / UUID
        yield plane


class Agent:
    """Makes pods as the chart's DaemonSet would: its controller does not run here."""

    def __init__(self, plane):
        self.plane = plane
        (self.port,) = free_ports(1)
        given = (
            "--set=image.repository=localhost/pliant",
            "--set-string=image.tag=1",
            "--set=nodeAgent.enabled=true",
        )
        given += ("--set=database.url=postgresql://pliant@db/pliant", "--kube-version=1.36.1")
        code, text = run("template", "pliant", str(CHART), "--namespace=default", *given)
        assert code == 0, text
        mine = [
            each for each in yaml.safe_load_all(text) if each and each["metadata"]["name"] == "pliant-node"
        ]
        self.made = {each["kind"]: each for each in mine}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        for path, kind in (
            (f"{OWN}/serviceaccounts", "ServiceAccount"),
            (f"{rbac}/clusterroles", "ClusterRole"),
            (f"{rbac}/clusterrolebindings", "ClusterRoleBinding"),
        ):
            if plane.get(f"{path}/pliant-node") is None:  # otherwise another test has made all of it
                plane.request("POST", path, self.made[kind])
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        body["spec"] = {"expirationSeconds": 3600}
        token = plane.request("POST", f"{OWN}/serviceaccounts/pliant-node/token", body)["status"]["token"]
        authority = (plane.folder / "certificates" / "apiserver.crt").read_bytes()
        told = {"token": token.encode(), "namespace": b"default", "ca.crt": authority}
        data = {key: base64.b64encode(value).decode() for key, value in told.items()}
        if plane.get(f"{OWN}/secrets/agent-account") is None:
            plane.request("POST", f"{OWN}/secrets", {"metadata": {"name": "agent-account"}, "data": data})

    def begin(self, name, port=0):
        """Starts one on the node's network, the only one that reaches it, with the token of the admission."""
        template = json.loads(json.dumps(self.made["DaemonSet"]["spec"]["template"]))
        spec, (container,) = template["spec"], template["spec"]["containers"]
        host, _, door = self.plane.url.removeprefix("https://").partition(":")
        container["env"] += [
            {"name": "KUBERNETES_SERVICE_HOST", "value": host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": door},
        ]
        container["args"] = [
            re.sub(r"^--port=9440$", f"--port={port or self.port}", it) for it in container["args"]
        ]
        container["ports"] = [{"name": "metrics", "containerPort": port or self.port}]
        container["volumeMounts"] += [
            {"name": "account", "mountPath": f"/var{ACCOUNT}", "readOnly": True},
            {"name": "card", "mountPath": f"/cards/{UUID}"},
        ]
        spec["volumes"] += [
            {"name": "account", "secret": {"secretName": "agent-account"}},
            {"name": "card", "hostPath": {"path": str(self.plane.card), "type": "File"}},
        ]
        spec |= {"nodeName": NAME, "hostNetwork": True, "restartPolicy": "Always"}
        spec.pop("nodeSelector")
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}}
        body["metadata"].pop("annotations")
        self.plane.request("POST", f"{OWN}/pods", {**body, "spec": spec})

    def log(self, name):
        with suppress(subprocess.CalledProcessError):  # its container has not begun
            return self.plane.kubectl("-n", "default", "logs", name)
        return ""

    def ready(self, name):
        said = (self.plane.get(f"{OWN}/pods/{name}") or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in said)

    def until_ready(self, name):
        until(lambda: self.ready(name), f"{name} is ready")

    def kill(self, name):
        """Ends its container at once."""
        with suppress(Answered):
            self.plane.request("DELETE", f"{OWN}/pods/{name}?gracePeriodSeconds=1")
        until(lambda: self.plane.get(f"{OWN}/pods/{name}") is None, f"{name} is gone")

    def metrics(self):
        """(name, workload) -> (value, the other labels but the node)."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = {}
        for line in text.splitlines():
            if (match := re.fullmatch(r"(pliant_\w+)\{(.*)\} (\S+)", line)) is not None:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
                assert labels.pop("node") == NAME
                found[match[1].removeprefix("pliant_"), labels.get("workload", "")] = float(match[3]), labels
        return found

    def share(self, workload, what):
        value, _ = self.metrics().get((f"gpu_share_{what}", workload), (None, {}))
        return value

    def inside(self, name, script):
        return self.plane.kubectl("-n", "default", "exec", name, "--", "sh", "-c", script)


@pytest.fixture
def agent(cluster):
    agent = Agent(cluster)
    yield agent
    for pod in cluster.request("GET", f"{OWN}/pods")["items"]:
        if "pliant/node-agent" in pod["metadata"].get("labels", {}):
            agent.kill(pod["metadata"]["name"])


@pytest.fixture
def typed(cluster, agent, tmp_path):
    stage = Stage(tmp_path / "stage")

    def typed(command, code=0):
        done = stage.run(command)
        assert done.code == code, f"{command}: {done.said}"
        return done.out

    typed(f"pliant up --kubeconfig {cluster.kubeconfig} --share-image localhost/pliant:1")
    typed("pliant project create team-a --quota 2")
    yield typed
    names = [item["name"] for item in json.loads(typed("runai list -A -o json"))]
    if names:
        typed(f"runai delete {' '.join(names)} -p team-a")
    until(lambda: not cluster.request("GET", f"{JOBS}/pods")["items"], "nothing of it is left")
    typed("pliant down --yes")
    assert stage.close() == {}, "these processes outlived `pliant down`"


def test_limits_reach_running_programs_and_what_they_use_is_told(cluster, agent, typed):
    def shown():
        return typed("runai logs lender -p team-a")

    def went_on(name, ops, numbers):
        typed(f"runai exec lender -p team-a -- sh -c ': > /tmp/{name}'")
        until(lambda: shown().count("ready") == numbers, f"it has done {ops}")
        return [int(line.split()[2]) for line in shown().splitlines() if line.split()[0] in ops][-len(ops) :]

    def limit():
        text = typed("runai exec lender -p team-a -- cat /etc/pliant/gpu.conf")
        return [int(found) // GIB for found in re.findall(r" limit=(\d+)", text)]

    def phase(name):
        return {item["name"]: item["phase"] for item in json.loads(typed("runai list -A -o json"))}.get(name)

    def pod(name):
        items = cluster.request("GET", f"{JOBS}/pods")["items"]
        return next(each for each in items if each["metadata"]["name"].startswith(f"{name}-"))

    def told(reason, name):
        items = cluster.request("GET", f"{JOBS}/events")["items"]
        uid = pod(name)["metadata"]["uid"]
        return [it["message"] for it in items if (it["reason"], it["involvedObject"]["uid"]) == (reason, uid)]

    agent.begin("agent-1")
    agent.until_ready("agent-1")
    part = "--gpu-portion-request 0.25 --gpu-portion-limit 0.75"
    ends = 'trap "exit 0" TERM;'
    typed(f"{SUBMIT} lender {part} {REST} sh -c '{ends} {WAITS} | /bin/probe {OPS} & wait $!'")
    until(lambda: shown().count("ready") == 1, "it runs")
    assert pod("lender")["metadata"]["annotations"]["pliant/node-agent"] == "true"
    uid = pod("lender")["metadata"]["uid"]
    until(lambda: limit() == [12], "its file says that more was lent to it")
    assert went_on("first", ("total", "fill"), 2) == [12 * GIB, 12 * GIB], "without a restart"
    until(lambda: agent.share("lender", "used_bytes") == 12 * GIB, "the agent sees it")
    assert agent.metrics()["node_agent_nvml", ""][0] == 1

    # the pod cannot change its limit, and its ledger cannot grow beyond a ledger's size
    denied = "echo no > /etc/pliant/gpu.conf || rm /etc/pliant/gpu.conf || rm /run/pliant/ledger || echo kept"
    assert typed(f"runai exec lender -p team-a -- sh -c '({denied}) 2>/dev/null'").splitlines() == ["kept"]
    much = "busybox head -c 4000000 /dev/zero >> /run/pliant/ledger"
    typed(f"runai exec lender -p team-a -- sh -c '{much}'")
    until(lambda: told("GpuLedgerDamaged", "lender"), "that is an event of the pod")
    assert agent.share("lender", "used_bytes") == 12 * GIB

    # another agent waits until the first one is killed; nothing is lost, leftovers of others are removed
    agent.inside("agent-1", f"mkdir -p {FOLDER}/default_old/conf {FOLDER}/.new-default_x")
    agent.kill("agent-1")
    typed(f"{SUBMIT} needy --gpu-portion-request 0.5 {REST} sh -c '{STAYS}'")
    text = "limit=8589934592"
    until(lambda: text in pod("lender")["metadata"]["annotations"]["pliant/gpu-conf"], "it is to have less")
    assert limit() == [12] and phase("needy") != "Running"
    agent.begin("agent-2")
    agent.until_ready("agent-2")
    until(lambda: limit() == [8], "its file says that it has less")
    assert agent.inside("agent-2", f"ls -a {FOLDER}").split()[2:] == [
        ".lock",
        f"runai-team-a_{pod('lender')['metadata']['name']}",
    ]
    until(lambda: agent.share("lender", "used_bytes") == 12 * GIB, "it has seen what is in use")

    # it uses more than its limit now; a new pod waits, and after a while there is an event
    assert agent.share("lender", "over_limit") == 1 and agent.share("lender", "limit_bytes") == 8 * GIB
    until(lambda: told("GpuShareOverLimit", "lender"), "it is reported", seconds=OVER_SECONDS + 60)
    assert "it uses 12Gi of GPU-0000" in told("GpuShareOverLimit", "lender")[0]
    assert phase("needy") != "Running", "what it uses is not free yet"
    assert went_on("second", ("total", "fill"), 3) == [8 * GIB, 8 * GIB]
    until(lambda: phase("needy") == "Running", "it has given back")
    until(lambda: agent.share("needy", "limit_bytes") == 8 * GIB, "both are told of")
    assert (agent.share("lender", "used_bytes"), agent.share("lender", "over_limit")) == (8 * GIB, 0)
    assert (agent.share("needy", "used_bytes"), agent.share("needy", "request_bytes")) == (0, 8 * GIB)
    _, labels = agent.metrics()["gpu_share_used_bytes", "needy"]
    name = pod("needy")["metadata"]["name"]
    assert labels == {"project": "team-a", "workload": "needy", "pod": name, "gpu": UUID}
    assert pod("lender")["metadata"]["uid"] == uid and phase("lender") == "Running"

    # two at a time: the second one waits for the first
    agent.begin("agent-3", *free_ports(1))
    until(lambda: "has not ended" in agent.log("agent-3"), "it waits")
    assert agent.ready("agent-2") and not agent.ready("agent-3")

    # a broken annotation: the earlier limits stay until the server ends the pod
    note = {"metadata": {"annotations": {"pliant/gpu-conf": "limit=all"}}}
    cluster.request("PATCH", f"{JOBS}/pods/{name}", note)
    broken = cluster.request("GET", f"{JOBS}/pods/{name}")["metadata"]["uid"]

    def said():
        items = cluster.request("GET", f"{JOBS}/events")["items"]
        return [it["message"] for it in items if it["involvedObject"]["uid"] == broken]

    until(lambda: any("the limits of before stay" in it for it in said()), "that is an event")
    typed("runai delete lender needy -p team-a")
    until(
        lambda: agent.inside("agent-2", f"ls -A {FOLDER}").split() == [".lock"], "nothing stays", seconds=240
    )
