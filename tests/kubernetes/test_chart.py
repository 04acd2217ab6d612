"""The Helm chart: what it installs, and that it grants the rights that the server uses and no others."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from examples.walkthrough import Stage
from pliant.engines.kube.cluster import Cluster
from pliant.engines.kube.connection import Connection
from pliant.engines.kube.rights import RIGHTS
from tests.kubernetes.control_plane import ROOT, Answered, ControlPlane, helm, shared, until

CHART = ROOT / "deploy" / "helm" / "pliant"
GIVEN = ("--set=image.repository=registry.example/pliant", "--set=database.url=postgresql://pliant@db/pliant")
ALL = ("--set=serviceMonitor.enabled=true", "--set=dashboards.enabled=true")
ACCOUNT, TOKEN = "system:serviceaccount:pliant:pliant", "token-of-the-account"


def run(*words):
    done = subprocess.run([helm(), *words], check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def rendered(*more):
    words = (
        "template",
        "pliant",
        str(CHART),
        "--namespace=pliant",
        "--kube-version=1.36.1",
        "--include-crds",
    )
    code, text = run(*words, *GIVEN, *more)
    assert code == 0, text
    return text


def documents(*more):
    return [each for each in yaml.safe_load_all(rendered(*more)) if each]


def granted(rules):
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def wanted():
    return {(right.group, right.resource, verb) for right in RIGHTS for verb in right.verbs}


def role():
    return next(each for each in documents() if each["kind"] == "ClusterRole")


def test_it_passes_lint():
    code, said = run("lint", "--strict", str(CHART), *GIVEN)
    assert code == 0, said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("database.url=postgresql://pliant:hunter2@db/pliant", "database"),
        ("database.url=mysql://db/pliant", "database"),
        ("replicas=0", "replicas"),
        ("replica=2", "replica"),
        ("image.repository=", "repository"),
    ],
)
def test_values_that_cannot_be_meant(value, said):
    code, text = run("template", "pliant", str(CHART), "--kube-version=1.36.1", *GIVEN, f"--set={value}")
    assert code != 0 and said in text


def test_what_it_carries_is_what_the_server_has():
    crds = ROOT / "src" / "pliant" / "engines" / "kube" / "crds"
    names = sorted(each.name for each in crds.iterdir())
    assert sorted(each.name for each in (CHART / "crds").iterdir()) == names
    for name in names:
        assert (CHART / "crds" / name).read_bytes() == (crds / name).read_bytes(), f"copy {name} again"
    board = ROOT / "docs" / "guide" / "grafana.json"
    assert (CHART / "dashboards" / "pliant.json").read_bytes() == board.read_bytes(), "copy it again"


def test_it_grants_what_the_server_uses_and_nothing_else():
    rules = granted(role()["rules"])
    assert rules == wanted()
    assert not any("*" in part for rule in rules for part in rule)


def test_its_pods_are_closed_and_know_no_secret_in_their_arguments():
    deployment = next(each for each in documents() if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2 and pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        closed = container["securityContext"]
        assert closed["readOnlyRootFilesystem"] and not closed["allowPrivilegeEscalation"]
    secrets = next(each for each in documents() if each["metadata"]["name"] == "pliant-auth")
    text = json.dumps(pod)
    assert not any(value in text for value in secrets["data"].values())


def test_secrets_that_are_there_are_used():
    more = (
        "--set=auth.existingSecret=mine",
        "--set=tls.existingSecret=cert",
        "--set=database.existingSecret=pg",
    )
    found = documents(*more)
    assert not any(each["kind"] == "Secret" for each in found)
    text = json.dumps(found)
    assert '"secretName": "mine"' in text and '"secretName": "cert"' in text and '"name": "pg"' in text


def test_the_api_server_takes_all_of_it(plane):
    define(plane, "monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
    define(plane, "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
    if plane.get("/api/v1/namespaces/pliant") is None:
        plane.add_namespace("pliant")
    words = [str(plane.pieces / "kubectl"), f"--kubeconfig={plane.kubeconfig}", "apply", "--dry-run=server"]
    done = subprocess.run(
        [*words, "-f", "-"], input=rendered(*ALL), check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    kinds = [line.split("/")[0] for line in done.stdout.splitlines()]
    assert kinds.count("customresourcedefinition.apiextensions.k8s.io") == 4
    assert {"deployment.apps", "poddisruptionbudget.policy", "servicemonitor.monitoring.coreos.com"} <= set(
        kinds
    )
    assert done.stdout.count("(server dry run)") == len(kinds)


def define(plane, group, version, kind, plural):
    """As much of a custom resource as the API server needs to keep one."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": loose}}]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with suppress(Answered):  # another test has it already
        plane.request("POST", path, {**body, "metadata": {"name": f"{plural}.{group}"}})
    until(lambda: plane.get(f"/apis/{group}/{version}") is not None, f"{kind} is known")


# ---- rights, as they are used ----


class Installed:
    """A server with the rights of the chart alone, and what was asked of the API server in its name."""

    def __init__(self, plane: ControlPlane, stage: Stage, kubeconfig: Path) -> None:
        self.plane, self.stage, self.kubeconfig = plane, stage, kubeconfig

    def typed(self, command):
        done = self.stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def used(self):
        """(group, resource, verb) -> HTTP statuses."""
        found = {}
        for line in (self.plane.folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            about = event.get("objectRef")
            if event["user"]["username"] != ACCOUNT or about is None:
                continue
            part = f"/{about['subresource']}" if "subresource" in about else ""
            key = (about.get("apiGroup", ""), about["resource"] + part, event["verb"])
            found.setdefault(key, set()).add(event.get("responseStatus", {}).get("code"))
        return found


def bound(plane, rules):
    """The chart's role with these rules, given to the account."""
    kinds = "/apis/rbac.authorization.k8s.io/v1"
    name = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "pliant"}}
    plane.request("POST", f"{kinds}/clusterroles", {**name, "kind": "ClusterRole", "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "pliant", "namespace": "pliant"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pliant"}
    body = {**name, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": [subject]}
    plane.request("POST", f"{kinds}/clusterrolebindings", body)


@pytest.fixture
def installed(tmp_path):
    words = ("audit", "podgroups", f"account=pliant:pliant:{TOKEN}")
    with shared(tmp_path / "cluster", *words) as plane:
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
        plane.add_node("n1", gpus=2, labels=labels)
        plane.add_namespace("pliant")
        plane.kubectl("apply", "-f", str(CHART / "crds"))
        for version, kind, plural in MADE[1:]:
            define(plane, *version.split("/"), kind, plural)
        define(plane, "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
        bound(plane, role()["rules"])
        config = json.loads(plane.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = TOKEN
        config["contexts"][0]["context"]["namespace"] = "pliant"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        stage = Stage(tmp_path / "stage")
        yield Installed(plane, stage, kubeconfig)
        assert stage.close() == {}, "these processes outlived `pliant down`"


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
    typed(f"pliant up --kubeconfig {installed.kubeconfig}")

    # what the server makes shows, and goes
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
    typed("runai suspend a1 -p team-a")
    until(lambda: status("workloads", "a1", place).get("phase") == "Stopped", "it has stopped")
    typed("runai resume a1 -p team-a")
    until(lambda: status("workloads", "a1", place).get("phase") == "Running", "it runs again")
    typed("runai delete a1 -p team-a")
    until(lambda: plane.get(f"/apis/pliant.dev/v1alpha1/{place}workloads/a1") is None, "it is gone")

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

    # pods of others, and one that cannot be taken in
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
    add_pod(plane, pods, "odd", limits, annotations={"gpu-fraction": "0.5"})

    def told(name):
        said = (plane.get(f"{pods}/{name}") or {}).get("status", {}).get("conditions", ())
        return any(it["type"] == "PodScheduled" for it in said)

    names = {kind.lower() for _, kind, _ in MADE} - {"leaderworkerset"} | {"leader"}
    for name in ("odd", "plugin", "upstream", *sorted(names)):
        until(lambda name=name: told(name), f"{name} is told why it waits")

    # what only a race between two servers does
    connection = Connection(installed.kubeconfig)
    cluster = Cluster(connection.client, "another")
    body = {"metadata": {"name": "twice", "namespace": "runai-team-a"}}
    body["spec"] = {"schedulerName": "another", "containers": [{"name": "main", "image": "forever"}]}
    assert cluster.create(body).uid == cluster.create(body).uid
    connection.close()

    typed("pliant restart")
    until(lambda: {"update", "get", "create"} <= verbs(installed.used(), "leases"), "its lease is raised")
    typed("pliant down --yes")
    used = installed.used()
    refused = {key: codes for key, codes in used.items() if 403 in codes}
    assert refused == {}
    assert set(used) - DOCTOR == wanted() - BESIDE


BESIDE = {("", "pods/exec", "create")}
"""Asked of the authorizer beside `get` for a web socket; the audit has no line of its own for that."""

DOCTOR = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
"""What `pliant doctor --kube` asks besides; everybody may."""


def verbs(used, resource):
    return {verb for _, name, verb in used if name == resource}


MADE = (
    ("batch/v1", "Job", "jobs"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
    ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),
    ("ray.io/v1", "RayCluster", "rayclusters"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets"),
)
"""Kinds that make pods and whose objects the server reads."""


def add_owner(plane, version, kind, plural, spec, above=None):
    metadata = {"name": "o", "ownerReferences": [above] if above else []}
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    made = plane.request("POST", f"/apis/{version}/namespaces/runai-team-a/{plural}", body)["metadata"]
    return {"apiVersion": version, "kind": kind, "name": "o", "uid": made["uid"], "controller": True}


def add_pod(plane, pods, name, resources, spec=None, **metadata):
    container = {"name": "train", "image": "forever", "resources": resources}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}
    own = {"schedulerName": "pliant", "restartPolicy": "Never", "containers": [container]}
    plane.request("POST", pods, {**body, "spec": {**own, **(spec or {})}})
