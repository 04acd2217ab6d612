"""The server's database is lost: another takes in what runs, from what is on pods and custom resources."""

import json
import os
import re
import shutil
import signal

import pytest

from tests.kubernetes.control_plane import until
from tests.kubernetes.test_controllers import Typing
from tests.kubernetes.test_resources import CRDS

TEAM_A = "/api/v1/namespaces/runai-team-a/pods"
FINALIZERS = {"metadata": {"finalizers": None}}


@pytest.fixture
def cluster(planes):
    with planes.own() as plane:
        plane.add_node("n1", gpus=8)
        plane.kubectl("apply", "-f", str(CRDS))
        yield plane


@pytest.fixture
def stage(cluster, tmp_path):
    stage = Typing(tmp_path / "stage")
    stage.up = f"pliant up --kubeconfig {cluster.kubeconfig}"
    stage.typed(stage.up)
    yield stage
    stage.run("pliant down --yes")
    assert stage.close() == {}, "these processes outlived `pliant down`"


def lose(stage):
    """The server by SIGKILL, and all that it had on its disk."""
    pid = int(json.loads((stage.state / "server.json").read_text())["pid"])
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the server is gone")
    shutil.rmtree(stage.state)


def pods(cluster):
    """Names and uids of those of team-a that live."""
    found = cluster.request("GET", TEAM_A)["items"]
    live = [it for it in found if it["status"]["phase"] in ("Pending", "Running")]
    return {
        it["metadata"]["name"]: it["metadata"]["uid"]
        for it in live
        if "deletionTimestamp" not in it["metadata"]
    }


def phases(stage):
    return {it["name"]: it["phase"] for it in json.loads(stage.typed("runai list -A -o json"))}


def put(cluster, path, kind, name, spec):
    body = {"apiVersion": "pliant.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.request("POST", f"/apis/pliant.dev/v1alpha1/{path}", body)


def submit_all(cluster, stage):
    """A job with a variable, one of two pods, a pod of others, and an object with a spec, in team-a."""
    stage.typed("pliant project create team-a --quota 3")
    put(cluster, "projects", "Project", "team-b", {"nodePools": [{"name": "default", "gpuQuota": 1}]})
    stage.typed("runai submit solo -i forever -g 1 -p team-a -e ANSWER=42")
    stage.typed("runai training pytorch submit pair --workers 1 -i forever -g 1 -p team-a")
    container = {"name": "main", "image": "forever", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"schedulerName": "pliant", "containers": [container]}
    until(lambda: pods(cluster), "its namespace is there")
    cluster.request("POST", TEAM_A, {"metadata": {"name": "theirs"}, "spec": spec})
    put(cluster, "namespaces/runai-team-a/workloads", "Workload", "applied", {"image": "forever", "gpus": 1})
    everything = dict.fromkeys(("solo", "pair", "theirs", "applied"), "Running")
    until(lambda: phases(stage) == everything, "all run")
    return everything


def test_what_runs_is_taken_in_again(cluster, stage):
    everything = submit_all(cluster, stage)
    before = pods(cluster)
    assert len(before) == 5
    lose(stage)

    stage.typed(stage.up)
    log = (stage.state / "server.log").read_text()
    assert (
        "4 tasks of another server run on this cluster. If its database is lost: `pliant up --adopt`" in log
    )
    assert phases(stage).get("solo") is None and pods(cluster).items() >= before.items(), "nothing ends"
    lose(stage)

    stage.typed(f"{stage.up} --adopt")
    del everything["theirs"]  # it is its maker's, and counts as used
    until(lambda: phases(stage) == everything, "all of ours is known, and runs")
    assert pods(cluster) == before, "not one was started again"
    projects = json.loads(stage.typed("pliant list projects -o json"))
    quotas = {it["name"]: it["totalResources"]["gpuQuota"] for it in projects}
    assert quotas["team-a"] == 3 and quotas["team-b"] == 1
    assert "adopted by a store that did not know it" in stage.typed("pliant describe job solo -p team-a")

    # what was taken in is a job like any other: it ends, starts again with its variables, and goes
    stage.typed("pliant suspend solo -p team-a")
    until(lambda: phases(stage)["solo"] == "Stopped", "it stops")
    stage.typed("pliant resume solo -p team-a")
    until(lambda: phases(stage)["solo"] == "Running", "it runs again")
    (again,) = set(pods(cluster)) - set(before)
    (main,) = cluster.request("GET", f"{TEAM_A}/{again}")["spec"]["containers"]
    (secret,) = (each["secretRef"]["name"] for each in main["envFrom"])
    values = cluster.request("GET", f"/api/v1/namespaces/runai-team-a/secrets/{secret}")["data"]
    assert list(values) == ["ANSWER"]
    stage.typed("pliant delete solo pair -p team-a")
    until(lambda: len(pods(cluster)) == 2, "their pods are gone")
    assert "theirs" in pods(cluster)


def test_what_is_on_a_pod_is_believed_about_its_own_project_alone(cluster, stage):
    stage.typed("pliant project create team-a --quota 1")
    stage.typed("runai submit solo -i forever -g 1 -p team-a")
    until(lambda: phases(stage).get("solo") == "Running", "it runs")
    (name,) = pods(cluster)
    real = cluster.request("GET", f"{TEAM_A}/{name}")
    lose(stage)
    notes = {**real["metadata"]["annotations"]}
    notes["pliant/attempt"] = re.sub(r"\d+$", "9", notes["pliant/attempt"])
    forged = {"name": "forged", "annotations": notes, "labels": real["metadata"]["labels"]}
    spec = {"schedulerName": "pliant", "nodeName": "n1", "containers": [{"name": "main", "image": "forever"}]}
    cluster.request("POST", "/api/v1/namespaces/default/pods", {"metadata": forged, "spec": spec})
    refused = stage.run(f"{stage.up} --adopt")
    assert refused.code != 0 and "is about another workload or project" in refused.said
    path = "/api/v1/namespaces/default/pods/forged"
    for damaged in ("{", "[1]", "[" * 100_000):
        cluster.request("PATCH", path, {"metadata": {"annotations": {"pliant/order": damaged}}})
        refused = stage.run(f"{stage.up} --adopt")
        assert refused.code != 0 and "kubectl delete pod --namespace default forged" in refused.said
    cluster.request("DELETE", "/api/v1/namespaces/default/pods/forged?gracePeriodSeconds=0")
    stage.typed(f"{stage.up} --adopt")
    until(lambda: phases(stage).get("solo") == "Running", "it is known")


def test_pods_of_two_lost_servers_are_not_mixed(cluster, stage):
    for name in ("first", "second"):
        stage.typed("pliant project create team-a --quota 1")
        stage.typed(f"runai submit {name} -i forever -g 1 -p team-a")
        until(lambda name=name: phases(stage).get(name) == "Running", f"{name} runs")
        lose(stage)
        if name == "first":
            stage.typed(stage.up)
    refused = stage.run(f"{stage.up} --adopt")
    assert refused.code != 0 and "Pods of 2 other servers run on this cluster: " in refused.said
    first = re.search(r"cluster: (\S+), ", refused.said)[1]
    cluster.kubectl("delete", "pods", "--all-namespaces", "-l", f"pliant/cluster={first}", "--wait=false")
    for pod in cluster.request("GET", f"{TEAM_A}?labelSelector=pliant/cluster={first}")["items"]:
        cluster.request("PATCH", f"{TEAM_A}/{pod['metadata']['name']}", FINALIZERS)
    until(lambda: len(cluster.request("GET", TEAM_A)["items"]) == 1, "one server's are left")
    stage.typed(f"{stage.up} --adopt")
    until(lambda: "Running" in phases(stage).values(), "it is known")
