"""Custom resources as a user applies, edits and deletes them, with a whole server."""

import json
import os
import signal
import subprocess

import pytest

from examples.walkthrough import Stage
from tests.kubernetes.control_plane import ROOT, until

CONFLICT = 5  # exit code
CRDS = ROOT / "src" / "pliant" / "engines" / "kube" / "crds"
VERSION = "pliant.dev/v1alpha1"
PATHS = {"Department": "departments", "Project": "projects", "NodePool": "nodepools", "Workload": "workloads"}


class Applied:
    """A cluster with a server that uses all its nodes."""

    def __init__(self, plane, stage) -> None:
        self.plane, self.stage = plane, stage

    def typed(self, command):
        done = self.stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def apply(self, kind, name, spec=None, namespace="default"):
        """Applies it; returns what kubectl prints."""
        body = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}}
        body |= {} if spec is None else {"spec": spec}
        words = [str(self.plane.pieces / "kubectl"), f"--kubeconfig={self.plane.kubeconfig}"]
        words += ["--namespace", namespace, "apply", "-f", "-"]
        done = subprocess.run(
            words, check=False, input=json.dumps(body), capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    def path(self, kind, name, namespace="default"):
        place = f"namespaces/{namespace}/" if kind == "Workload" else ""
        return f"/apis/{VERSION}/{place}{PATHS[kind]}/{name}"

    def status(self, kind, name, namespace="default"):
        body = self.plane.get(self.path(kind, name, namespace))
        return (body or {}).get("status", {})

    def condition(self, kind, name, namespace="default", type_="Accepted"):
        """(status, reason, message)"""
        said = self.status(kind, name, namespace).get("conditions", ())
        found = (it for it in said if it["type"] == type_)
        return next(((it["status"], it["reason"], it["message"]) for it in found), ("", "", ""))

    def accepted(self, kind, name, namespace="default"):
        until(lambda: self.condition(kind, name, namespace)[0] == "True", f"{name} is accepted")

    def log(self):
        return (self.stage.state / "server.log").read_text()

    def projects(self):
        return {item["name"]: item for item in json.loads(self.typed("pliant project list -o json"))}


@pytest.fixture
def applied(planes, tmp_path):
    with planes.own() as plane:
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559", "kind": "fast"}
        plane.add_node("n1", gpus=2, labels=labels)
        plane.kubectl("apply", "-f", str(CRDS))
        stage = Stage(tmp_path / "stage")
        done = stage.run(f"pliant up --kubeconfig {plane.kubeconfig}")
        assert done.code == 0, done.said
        yield Applied(plane, stage)
        assert stage.close() == {}, "these processes outlived `pliant down`"


def quota(gpus, pool="default", **more):
    return {"nodePools": [{"name": pool, "gpuQuota": gpus, **more}]}


def test_quotas_that_kubectl_applies_are_those_of_the_server(applied):
    apply, typed, plane = applied.apply, applied.typed, applied.plane
    apply("Department", "research", quota(4))
    apply("NodePool", "fast", {"labelKey": "kind", "labelValue": "fast", "gpuPlacement": "spread"})
    apply("Project", "team-a", {"department": "research", **quota(1.5, "fast", gpuLimit=2)})
    for kind, name in (("Department", "research"), ("NodePool", "fast"), ("Project", "team-a")):
        applied.accepted(kind, name)
    assert "1.50" in typed("pliant project list") and "research" in typed("pliant project list")
    assert "spread" in typed("pliant nodepool list -o json")
    until(lambda: applied.status("Project", "team-a")["gpuQuota"] == "1.5", "its status has its quota")
    assert applied.status("Project", "team-a")["namespace"] == "runai-team-a"
    until(lambda: applied.status("NodePool", "fast")["gpus"] == 2, "its status has its GPUs")

    for command in (
        "pliant project update team-a --quota 3",
        "pliant project delete team-a --yes",
        "pliant department update research --quota 3",
        "pliant nodepool delete fast",
    ):
        refused = applied.stage.run(command)
        assert refused.code == CONFLICT, (command, refused.said)
        assert "was applied with kubectl as" in refused.said and "kubectl edit" in refused.said

    apply("Project", "team-a", {"department": "research", **quota(0.5, "fast")})
    until(lambda: applied.status("Project", "team-a")["gpuQuota"] == "0.5", "an edit counts")
    events = len(typed("pliant project describe team-a").splitlines())

    os.kill(int(json.loads((applied.stage.state / "server.json").read_text())["pid"]), signal.SIGKILL)
    typed("pliant up")
    applied.accepted("Project", "team-a")
    assert len(typed("pliant project describe team-a").splitlines()) == events, "nothing is applied again"

    plane.kubectl("delete", "projects.pliant.dev", "team-a", "--wait=true")
    assert "team-a" not in applied.projects()
    plane.kubectl("delete", "nodepools.pliant.dev", "fast", "--wait=true")
    plane.kubectl("delete", "departments.pliant.dev", "research", "--wait=true")
    assert "research" not in typed("pliant department list")


def test_what_the_server_made_shows_and_says_why(applied):
    typed, plane = applied.typed, applied.plane
    typed("pliant project create team-b --quota 1")
    typed("runai submit first -i forever -g 2 -p team-b")
    typed("runai submit second -i forever -g 2 -p team-b")
    until(lambda: applied.status("Workload", "second", "runai-team-b").get("why"), "it says why it waits")
    until(lambda: applied.status("Workload", "first", "runai-team-b").get("phase") == "Running", "one runs")
    shown = plane.kubectl("get", "workloads", "--namespace", "runai-team-b")
    header, first, second = shown.splitlines()
    assert header.split() == ["NAME", "STATUS", "GPUS", "PODS", "WHY", "AGE"]
    assert first.split()[:4] == ["first", "Running", "2", "1/1"]
    assert second.split()[:4] == ["second", "Pending", "0", "0/1"]
    why = applied.status("Workload", "second", "runai-team-b")["why"]
    assert why in second and "GPU" in why
    columns = plane.kubectl("get", "projects.pliant.dev", "team-b", "--no-headers").split()
    assert columns[:6] == ["team-b", "default", "1", "2", "4", "True"]
    assert applied.condition("Project", "team-b")[1] == "Shown"

    plane.kubectl("delete", "workloads.pliant.dev", "--namespace", "runai-team-b", "first")
    assert "first" not in typed("runai list -p team-b"), "kubectl has deleted it"
    plane.kubectl("delete", "projects.pliant.dev", "team-b")
    until(lambda: applied.condition("Project", "team-b")[1] == "Shown", "its project is made again")
    typed("runai delete second -p team-b")
    until(lambda: applied.plane.get(applied.path("Workload", "second", "runai-team-b")) is None, "it goes")
    typed("pliant project delete team-b --yes")
    until(lambda: applied.plane.get(applied.path("Project", "team-b")) is None, "its project too")


def test_a_workload_that_kubectl_applies_runs_once(applied):
    apply, plane = applied.apply, applied.plane
    apply("Project", "team-a", quota(1))
    applied.accepted("Project", "team-a")
    plane.add_namespace("runai-team-a")
    spec = {"image": "forever", "gpus": 1, "cpu": "500m", "memory": "1Gi"}
    apply("Workload", "train", spec, "runai-team-a")
    place = ("Workload", "train", "runai-team-a")
    until(lambda: applied.status(*place).get("phase") == "Running", "it runs")
    pods = plane.request("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
    assert [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods] == [
        {"nvidia.com/gpu": "1", "cpu": "500m", "memory": str(2**30)}
    ]
    assert "cannot be changed" in apply("Workload", "train", {**spec, "gpus": 2}, "runai-team-a")
    refused = applied.stage.run("runai delete train -p team-a")
    assert refused.code == CONFLICT
    assert "kubectl delete --namespace runai-team-a workload.pliant.dev/train" in refused.said

    plane.kubectl("delete", "projects.pliant.dev", "team-a", "--wait=false")
    until(lambda: applied.condition("Project", "team-a")[1] == "Conflict", "a project in use stays")
    assert "still has workloads: train" in applied.condition("Project", "team-a")[2]

    def events():
        found = plane.request("GET", "/api/v1/namespaces/default/events")["items"]
        return [it for it in found if it["involvedObject"]["name"] == "team-a"]

    told = until(events, "an event tells it as well")
    assert [it["reason"] for it in told] == ["Conflict"] and "still has workloads" in told[0]["message"]
    plane.kubectl("delete", "workload.pliant.dev/train", "--namespace", "runai-team-a", "--wait=true")
    until(lambda: plane.get(applied.path("Project", "team-a")) is None, "then it goes by itself")
    until(lambda: not plane.request("GET", "/api/v1/namespaces/runai-team-a/pods")["items"], "with its pod")


def test_bad_input_is_refused_at_the_door(applied):
    apply = applied.apply
    for kind, name, spec, said in (
        ("Project", "team-a", quota(2, gpuLimit=1), "gpuLimit is below gpuQuota"),
        ("Project", "team.a", {}, "the name has 1 to 63 lower-case letters"),
        ("Project", "team-a", quota(-1), "should be greater than or equal to 0"),
        ("Project", "team-a", quota(1, cpuQuota="many"), "should match"),
        ("Project", "team-a", {"nodePools": [{"name": "x"}, {"name": "x"}]}, "Duplicate value"),
        ("Department", "a", {"parent": "a"}, "cannot be its own parent"),
        ("NodePool", "default", {"labelKey": "a", "labelValue": "b"}, "no label"),
        ("NodePool", "x", {"labelKey": "a"}, "labelValue: Required value"),
        ("Workload", "x", {"gpus": 1}, "image: Required value"),
    ):
        answer = apply(kind, name, spec)
        assert said in answer, (kind, spec, answer)
    apply("NodePool", "x", {"labelKey": "a", "labelValue": "b"})
    assert "label of a node pool cannot be changed" in apply(
        "NodePool", "x", {"labelKey": "a", "labelValue": "c"}
    )


def test_bad_input_that_only_the_server_knows_is_a_condition_and_an_event(applied):
    apply, plane = applied.apply, applied.plane
    apply("Project", "lost", {"department": "nowhere"})
    until(lambda: applied.condition("Project", "lost")[1] == "NotFound", "no such department")
    apply("Project", "fine", quota(0.0005))
    until(lambda: applied.condition("Project", "fine")[1] == "BadRequest", "finer than a thousandth")
    plane.add_namespace("elsewhere")
    apply("Workload", "x", {"image": "forever"}, "elsewhere")
    until(lambda: applied.condition("Workload", "x", "elsewhere")[1] == "BadRequest", "whose namespace?")
    apply("Project", "good", quota(1))
    applied.accepted("Project", "good")
    apply("Department", "nowhere", quota(1))
    applied.accepted("Project", "lost")  # the server retries: the department exists now
    events = plane.request("GET", "/api/v1/namespaces/default/events")["items"]
    told = {it["involvedObject"]["name"]: it["message"] for it in events}
    assert "There is no department 'nowhere'" in told["lost"] and "thousandths of a GPU" in told["fine"]


def test_a_quota_below_what_cannot_be_taken_is_refused_while_in_use(applied):
    apply = applied.apply
    apply("Project", "team-a", quota(2))
    applied.accepted("Project", "team-a")
    applied.typed("runai submit keep -i forever -g 2 -p team-a --interactive")
    until(lambda: applied.status("Project", "team-a")["gpuAllocated"] == "2", "it runs")
    apply("Project", "team-a", quota(1))
    until(lambda: applied.condition("Project", "team-a")[1] == "Conflict", "edited while in use")
    assert applied.status("Project", "team-a")["gpuQuota"] == "2"
    applied.typed("runai delete keep -p team-a")
    applied.accepted("Project", "team-a")
    until(lambda: applied.status("Project", "team-a")["gpuQuota"] == "1", "then it counts")


def test_a_namespace_that_is_being_deleted(applied):
    """The controller that would empty it does not run, so it stays until its finalizer is removed."""
    apply, plane = applied.apply, applied.plane
    apply("Project", "team-a", quota(1))
    apply("Project", "team-b", quota(1))
    applied.accepted("Project", "team-a")
    plane.add_namespace("runai-team-a")
    plane.request("DELETE", "/api/v1/namespaces/runai-team-a")
    applied.typed("runai submit a1 -i forever -g 1 -p team-a")
    until(
        lambda: "namespace runai-team-a is being deleted" in applied.typed("runai describe job a1 -p team-a"),
        "its history says what is wrong",
    )
    found = until(
        lambda: [
            it
            for it in [applied.condition("Project", "team-a", type_="NamespaceReady")]
            if it[1] == "NamespaceTerminating"
        ],
        "its project says so",
    )
    assert "no pod can be created in it" in found[0][2]
    applied.typed("runai submit b1 -i forever -g 1 -p team-b")
    until(lambda: applied.status("Workload", "b1", "runai-team-b").get("phase") == "Running", "others go on")
    body = plane.request("GET", "/api/v1/namespaces/runai-team-a")
    plane.request("PUT", "/api/v1/namespaces/runai-team-a/finalize", {**body, "spec": {"finalizers": []}})
    until(lambda: applied.status("Workload", "a1", "runai-team-a").get("phase") == "Running", "then it runs")


def test_two_servers_on_one_cluster_do_not_write_over_each_other(planes, tmp_path):
    """Each has its own project `default`, and takes over the quotas that kubectl applied."""
    stages = [Stage(tmp_path / name) for name in ("one", "two")]
    with planes.own("audit") as plane:
        plane.add_node("n1", gpus=2)
        plane.kubectl("apply", "-f", str(CRDS))
        first, second = (Applied(plane, stage) for stage in stages)
        first.apply("Project", "both", quota(1))
        first.typed(f"pliant up --kubeconfig {plane.kubeconfig}")
        first.accepted("Project", "both")
        second.typed(f"pliant up --kubeconfig {plane.kubeconfig} --scheduler-name another")
        until(lambda: "both" in second.projects(), "both have it")

        def writes():
            lines = (plane.folder / "audit.log").read_text().splitlines()
            told = [json.loads(line) for line in lines]
            found = [it["objectRef"] for it in told if it["verb"] == "patch"]
            return sum(it["resource"] in PATHS.values() for it in found)

        first.typed("pliant submit --name job --project both -g 1 -i forever")
        for place in (("Project", "both"), ("Department", "default"), ("NodePool", "default")):
            until(lambda place=place: first.status(*place).get("gpuAllocated") == "1", "it is shown")
        until(lambda: first.status("Workload", "job", "runai-both").get("phase") == "Running", "it runs")
        before = writes()
        for name in ("a", "b", "c"):
            second.typed(f"pliant project create {name} --quota 1")
            until(lambda name=name: second.status("Project", name), "the second server goes on")
        assert writes() - before <= 6, "each shows what it has, once"

        assert "created" in second.apply("Workload", "once", {"image": "forever"})
        second.accepted("Workload", "once")
        owners = [server for server in (first, second) if "once" in server.typed("pliant list")]
        assert len(owners) == 1, "one of them runs it"
        other = second if owners == [first] else first
        until(
            lambda: "workloads.pliant.dev once --namespace default is of server" in other.log(),
            "the other one says whose it is",
        )
        plane.kubectl("delete", "workloads.pliant.dev", "once")
        pods = plane.get("/api/v1/namespaces/default/pods")["items"]
        assert pods == [], "its object goes when its pods are gone"
        for stage in stages:
            assert stage.close() == {}
