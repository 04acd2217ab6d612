"""The installed chart: its servers run with its arguments, its secrets and only its account's rights,
and the API server's audit log shows that they use every one of these rights.
"""

import json
import shlex
import subprocess
from itertools import count

import pytest

from pliant.engines.kube.apiserver.cluster import Cluster
from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.rights import AGENT_RIGHTS
from tests.kubernetes.control_plane import until
from tests.kubernetes.installed import ACCOUNT, MADE, OPENS, a_release, add_owner, add_pod
from tests.kubernetes.keeper import free_ports
from tests.kubernetes.release import CHART, NAME
from tests.kubernetes.test_chart import wanted


@pytest.fixture
def installed(tmp_path):
    with a_release(tmp_path) as found:
        yield found


def test_its_servers_run_take_turns_and_are_upgraded(installed):
    """Each has the account, the secrets, the volumes and the read-only files that the chart gives it."""
    typed, release, plane = installed.typed, installed.release, installed.plane

    def running():
        pods = plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in pods
            if pod["status"]["phase"] == "Running"
        }

    installed.begin("pliant-0")
    installed.leads("pliant-0")
    typed("runai submit first -i forever -g 1")
    until(running, "it runs")
    before = running()
    installed.begin("pliant-1")
    until(
        lambda: installed.stage.run("curl -sf --cacert $PLIANT_CA $PLIANT_SERVER/readyz").code == 0,
        "it is ready",
    )
    refused = installed.stage.run("PLIANT_TOKEN=wrong pliant list")
    assert refused.code != 0 and running() == before

    secrets = {name: release.secret(name) for name in ("pliant-auth", "pliant-tls")}
    release.helm("upgrade", NAME, str(CHART), "--reuse-values", "--set=replicas=3")
    assert release.object("deployments")["spec"]["replicas"] == 3
    assert {name: release.secret(name) for name in secrets} == secrets, "tokens stay good"

    release.servers["pliant-0"].end()
    installed.leads("pliant-1")
    assert "first" in typed("pliant list")
    assert running() == before, "it did not notice"
    typed("runai submit waits -i forever -g 3")

    def left():
        found = plane.get("/apis/pliant.dev/v1alpha1/namespaces/default/workloads/waits")
        return found is not None and "pliant/row" in found["metadata"].get("annotations", {})

    until(left, "its object says what it is")
    release.servers["pliant-1"].end()
    release.empty_database()
    release.helm("upgrade", NAME, str(CHART), "--reuse-values", "--set=adopt=true")
    installed.begin("pliant-2")
    installed.leads("pliant-2")

    def phases():
        return {it["name"]: it["phase"] for it in json.loads(typed("runai list -o json"))}

    until(lambda: phases() == {"first": "Running", "waits": "Pending"}, "a lost database is made again")
    assert running() == before, "it did not notice"
    typed("runai delete first waits")
    until(lambda: not running(), "it is gone")

    release.servers["pliant-2"].end()
    release.helm("uninstall", NAME)
    left = plane.kubectl("get", "-A", "-o", "name", "-l", f"app.kubernetes.io/instance={NAME}", LEFT)
    assert [each for each in left.split() if not each.startswith("pod/")] == []
    assert plane.get("/apis/pliant.dev/v1alpha1/projects/default") is not None, "Helm keeps definitions"


EVE = [
    {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding"], "verbs": ["*"]},
    {"apiGroups": ["pliant.dev"], "resources": ["*"], "verbs": ["*"]},
]


def test_nobody_else_changes_what_it_writes_on_pods(installed):
    """Refused even to those who may create, bind and change pods and their status; the server may."""
    plane, pods = installed.plane, "/api/v1/namespaces/default/pods"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eve"}
    plane.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": "eve"}, "rules": EVE})
    subjects = [{"kind": "User", "name": "eve", "apiGroup": role["apiGroup"]}]
    body = {"metadata": {"name": "eve"}, "roleRef": role, "subjects": subjects}
    plane.request("POST", f"{rbac}/clusterrolebindings", body)
    spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "forever"}]}

    def tried(who, *words):
        command = [plane.pieces / "kubectl", f"--kubeconfig={plane.kubeconfig}", f"--as={who}", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        return done.stderr

    def create(name, notes, who="eve", **more):
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}}
        file = installed.stage.folder / f"{name}.json"
        file.write_text(json.dumps({**body, "spec": {**spec, **more}}))
        return tried(who, "create", "-f", str(file))

    assert create("bound", {"pliant/gpu-conf": "limit=1", "own": "1"}, ACCOUNT) == ""
    assert create("waits", {"own": "1"}) == ""

    def patch(value, *more, who="eve", pod="bound"):
        change = json.dumps({"metadata": {"annotations": value}})
        return tried(who, "patch", "pod", pod, f"--patch={change}", *more)

    said = "Annotations pliant/... are written by Pliant alone"
    raised, gone = {"pliant/gpu-conf": "limit=2"}, {"pliant/gpu-conf": None}
    tries = count()
    until(lambda: said in patch({"pliant/try": str(next(tries))}, pod="waits"), "the policy is in force")
    for change in (raised, gone, {"pliant/node-agent": "true"}):
        for more in ((), ("--subresource=status",)):
            assert said in patch(change, *more), (change, more)
    for notes, scheduler in (
        (raised, "none"),
        (raised, "pliant"),
        ({**raised, "gpu-fraction": "0.5"}, "none"),
        ({"pliant/node-agent": "true"}, "pliant"),
    ):
        assert said in create("forged", notes, schedulerName=scheduler), (notes, scheduler)
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}
    file = installed.stage.folder / "binding.json"
    for notes in (raised, {}):
        file.write_text(json.dumps({**binding, "metadata": {"name": "waits", "annotations": notes}}))
        path = f"{pods}/waits/binding"
        answer = tried("eve", "create", f"--raw={path}", "-f", str(file))
        assert (said in answer) if notes else answer == "", "one without annotations is nobody's business"
    assert patch({"own": "2"}) == ""
    assert plane.request("GET", f"{pods}/bound")["metadata"]["annotations"] == {
        "pliant/gpu-conf": "limit=1",
        "own": "2",
    }
    assert patch(raised, who=ACCOUNT) == ""

    # nor its annotations of objects
    for kind in ("Department", "Project", "NodePool", "Workload"):
        body, its = {"apiVersion": "pliant.dev/v1alpha1", "kind": kind}, {"pliant/row": "1"}
        for who, name, notes in (
            ("eve", "plain", {"own": "1"}),
            ("eve", "forged", its),
            (ACCOUNT, "its", its),
        ):
            metadata = {"name": f"{name}-{kind.lower()}", "annotations": notes}
            file.write_text(json.dumps({**body, "metadata": metadata}))
            answer = tried(who, "create", "-f", str(file))
            assert (said in answer) if name == "forged" else answer == "", (kind, name, answer)
        which = f"{kind.lower()}s.pliant.dev", f"its-{kind.lower()}"
        for change in ("pliant/row=2", "pliant/row-", "pliant/other=1"):
            assert said in tried("eve", "annotate", "--overwrite", *which, change), (kind, change)
        assert tried("eve", "annotate", *which, "own=1") == ""


LEFT = (
    "clusterroles,clusterrolebindings,serviceaccounts,secrets,services,deployments,poddisruptionbudgets,"
    "mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
)


def test_every_right_is_used_and_none_is_missing(installed):
    typed, plane = installed.typed, installed.plane

    def status(kind, name, place=""):
        body = plane.get(f"/apis/pliant.dev/v1alpha1/{place}{kind}/{name}")
        return (body or {}).get("status", {})

    def accepted(kind, name):
        said = [it["status"] for it in status(kind, name).get("conditions", ()) if it["type"] == "Accepted"]
        return said == ["True"]

    found = installed.stage.run(f"pliant doctor --kube --kubeconfig {installed.kubeconfig}")
    assert found.code == 0 and "right pods/binding" in found.out, found.said
    installed.begin("pliant-0")
    installed.leads("pliant-0")

    # what the server makes appears as objects, and is removed
    typed("pliant department create d1 --quota 1")
    typed("pliant project create team-a --quota 1")
    typed("pliant project create gone --quota 0")
    typed("pliant nodepool create p1 --label kind=fast")
    for kind, name in (
        ("departments", "d1"),
        ("projects", "gone"),
        ("projects", "team-a"),
        ("nodepools", "p1"),
    ):
        until(lambda kind=kind, name=name: accepted(kind, name), f"{name} shows")
    for kind, name in (("department", "d1"), ("project", "gone"), ("nodepool", "p1")):
        typed(f"pliant {kind} delete {name}" + ("" if kind == "nodepool" else " --yes"))
        until(
            lambda kind=kind, name=name: plane.get(f"/apis/pliant.dev/v1alpha1/{kind}s/{name}") is None,
            "gone",
        )

    # a pod with variables: made, bound, read, stopped, begun again, deleted
    place = "namespaces/runai-team-a/"
    typed("runai submit a1 -i forever -g 1 -p team-a -e GREETING=hello")
    until(lambda: status("workloads", "a1", place).get("phase") == "Running", "it runs")
    installed.stage.run("runai logs a1 -p team-a")
    installed.stage.run("runai exec a1 -p team-a -- true")
    installed.stage.run(f"python -c {shlex.quote(OPENS)}")
    typed("pliant resize a1 -p team-a --cpu 2")
    until(lambda: ("", "pods/resize", "patch") in installed.used(), "its pod asks for more")
    typed("runai suspend a1 -p team-a")
    until(lambda: status("workloads", "a1", place).get("phase") == "Stopped", "it has stopped")
    typed("runai resume a1 -p team-a")
    until(lambda: status("workloads", "a1", place).get("phase") == "Running", "it runs again")
    typed("runai delete a1 -p team-a")
    until(lambda: plane.get(f"/apis/pliant.dev/v1alpha1/{place}workloads/a1") is None, "it is gone")

    # pods that find one another
    typed("runai training pytorch submit d1 --workers 1 -i forever -g 0 -p team-a -c -- sleep 1000")
    until(lambda: status("workloads", "d1", place).get("phase") == "Running", "both run")
    assert [it["spec"]["clusterIP"] for it in plane.request("GET", f"/api/v1/{place}services")["items"]] == [
        "None"
    ]
    typed("runai delete d1 -p team-a")
    until(lambda: not plane.request("GET", f"/api/v1/{place}services")["items"], "their name is gone")

    # what kubectl applies
    objects = [
        ("Department", "d2", {}, None),
        ("Project", "team-b", {"department": "d2"}, None),
        ("NodePool", "p2", {"labelKey": "kind", "labelValue": "slow"}, None),
        ("Workload", "w2", {"image": "forever"}, "runai-team-a"),
    ]
    for kind, name, spec, namespace in objects:
        where = f"namespaces/{namespace}/" if namespace else ""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        body = {"apiVersion": "pliant.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        plane.request("POST", f"/apis/pliant.dev/v1alpha1/{where}{kind.lower()}s", body)
        until(
            lambda kind=kind, name=name, where=where: status(f"{kind.lower()}s", name, where),
            f"{name} is seen",
        )

    # pods of others, and one that cannot be accepted
    pods = "/api/v1/namespaces/runai-team-a/pods"
    limits = {"limits": {"nvidia.com/gpu": "9"}}
    owners = {}
    for version, kind, plural in MADE:
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}
        owners[kind] = add_owner(plane, version, kind, plural, spec if kind == "Job" else {})
        if kind != "LeaderWorkerSet":
            labels = {"ray.io/group": "headgroup"} if kind == "RayCluster" else {}
            add_pod(plane, pods, kind.lower(), limits, labels=labels, ownerReferences=[owners[kind]])
    template = {"metadata": {"labels": {"a": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"serviceName": "a", "selector": {"matchLabels": {"a": "a"}}, "template": template}
    between = add_owner(plane, "apps/v1", "StatefulSet", "statefulsets", spec, owners["LeaderWorkerSet"])
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    add_pod(plane, pods, "leader", limits, labels=labels, ownerReferences=[between])
    add_pod(plane, pods, "plugin", limits, labels={"scheduling.x-k8s.io/pod-group": "none"})
    add_pod(plane, pods, "upstream", limits, spec={"schedulingGroup": {"podGroupName": "none"}})
    add_pod(plane, pods, "odd", limits, labels={"pliant/project": "another"})

    def told(name):
        said = (plane.get(f"{pods}/{name}") or {}).get("status", {}).get("conditions", ())
        return any(it["type"] == "PodScheduled" for it in said)

    names = {kind.lower() for _, kind, _ in MADE} - {"leaderworkerset"} | {"leader"}
    for name in ("odd", "plugin", "upstream", *sorted(names)):
        until(lambda name=name: told(name), f"{name} is told why it waits")

    # requests that only a race between two servers makes
    connection = Connection(installed.kubeconfig)
    cluster = Cluster(connection.client, "another")
    body = {"metadata": {"name": "twice", "namespace": "runai-team-a"}}
    body["spec"] = {"schedulerName": "another", "containers": [{"name": "main", "image": "forever"}]}
    assert cluster.create(body).uid == cluster.create(body).uid
    connection.close()

    installed.release.servers["pliant-0"].end()
    installed.begin("pliant-1")
    installed.leads("pliant-1")
    until(lambda: {"update", "get", "create"} <= verbs(installed.used(), "leases"), "its lease is raised")
    installed.release.servers["pliant-1"].end()
    used = installed.used()
    refused = {key: codes for key, codes in used.items() if 403 in codes}
    assert refused == {}
    assert set(used) - DOCTOR == wanted() - BESIDE == installed.allowed(NAME)


def test_every_right_of_a_nodes_agent_is_used_and_none_is_missing(installed):
    """A process with the token of its account lists and follows the pods of its node, and reports what is
    wrong with one."""
    plane, release = installed.plane, installed.release
    release.helm("upgrade", NAME, str(CHART), "--reuse-values", "--set=nodeAgent.enabled=true")
    account = release.object("daemonsets", f"{NAME}-node")["spec"]["template"]["spec"]["serviceAccountName"]
    config = json.loads(installed.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = release.account(account)
    installed.kubeconfig.write_text(json.dumps(config))
    (port,) = free_ports(1)
    words = ["pliant", "node", "agent", "--node", "n1", "--port", str(port)]
    script = (
        f"mount -t tmpfs tmpfs /run && exec {shlex.join([*words, '--kubeconfig', str(installed.kubeconfig)])}"
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    log = installed.stage.folder / "agent.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(command, env=installed.stage.env, stdout=said, stderr=said) as agent,
    ):
        try:
            until(lambda: "writes limits to /run/pliant-fractions" in log.read_text(), f"it began: {log}")
            notes = {"pliant/gpu-conf": "limit=all", "pliant/node-agent": "true"}
            container = {"name": "main", "image": "forever"}
            metadata = {"name": "odd", "annotations": notes, "labels": {"pliant/cluster": "any"}}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            body["spec"] = {"nodeName": "n1", "containers": [container]}
            file = installed.stage.folder / "odd.json"
            file.write_text(json.dumps(body))
            plane.kubectl(f"--as={ACCOUNT}", "create", "-f", str(file))  # no other account may write that

            def told():
                events = plane.request("GET", "/api/v1/namespaces/default/events")["items"]
                return [it["message"] for it in events if it["reason"] == "GpuLimitsBroken"]

            until(told, "it is an event")
            assert "it is not what was written; it cannot start" in told()[0]
        finally:
            agent.terminate()
    who = f"system:serviceaccount:{NAME}:{account}"
    used = installed.used(who)
    assert {key: codes for key, codes in used.items() if 403 in codes} == {}
    assert set(used) == wanted(AGENT_RIGHTS) == installed.allowed(account, who)


BESIDE = {("", "pods/exec", "create"), ("", "pods/portforward", "create")}
"""The authorizer checks this beside `get` for a web socket; the audit log has no line of its own for it."""

DOCTOR = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
"""Further requests of `pliant doctor --kube`, which every account may make."""


def verbs(used, resource):
    return {verb for _, name, verb in used if name == resource}
