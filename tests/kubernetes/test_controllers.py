"""With the real controllers of Jobs, garbage, namespaces and disruption budgets, on nodes of KWOK."""

import json
import re
import threading

import pytest

from examples.walkthrough import Stage
from tests.house.gaps import gap
from tests.kubernetes.control_plane import SETUP, pieces, shared, until

PLACE = "/api/v1/namespaces/runai-team-a"
JOBS = "/apis/batch/v1/namespaces/runai-team-a/jobs"
BUDGETS = "/apis/policy/v1/namespaces/runai-team-a/poddisruptionbudgets"


@pytest.fixture
def cluster(tmp_path):
    if not (pieces() / "kube-controller-manager").exists():
        gap("no Kubernetes", f"the pieces that were given have no kube-controller-manager: run {SETUP}")
    with shared(tmp_path / "cluster", "controllers", "audit") as plane:
        plane.add_node("n1", gpus=2)
        yield plane


class Typing(Stage):
    def typed(self, command):
        done = self.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out


@pytest.fixture
def stage(cluster, tmp_path):
    stage = Typing(tmp_path / "stage")
    stage.typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    stage.typed("pliant project create team-a --quota 1")
    stage.typed("pliant project create team-b --quota 1")
    yield stage
    stage.run("pliant down --yes")
    assert stage.close() == {}, "these processes outlived `pliant down`"


def phases(stage):
    return {it["name"]: it["phase"] for it in json.loads(stage.typed("runai list -A -o json"))}


def pods(cluster, place=PLACE):
    """Name -> node of each pod."""
    found = cluster.request("GET", f"{place}/pods")["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in found}


def add_job(cluster, name, *, pods=1):
    container = {"name": "train", "image": "forever", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"schedulerName": "pliant", "restartPolicy": "Never", "containers": [container]}
    template["terminationGracePeriodSeconds"] = 1
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": template}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    cluster.request("POST", JOBS, body)


def test_a_job_whose_controller_makes_and_counts_its_pods(cluster, stage):
    cluster.add_namespace("runai-team-a")
    add_job(cluster, "pair", pods=2)
    until(lambda: list(pods(cluster).values()) == ["n1", "n1"], "its controller made two, and both are bound")
    until(lambda: phases(stage) == {"pair": "Running"}, "they are one workload")

    stage.typed("runai submit b1 -i forever -g 1 -p team-b")
    until(lambda: phases(stage).get("b1") == "Running", "team-b got its GPU back")
    until(lambda: sorted(pods(cluster).values()) == ["", "n1"], "the controller made the evicted pod again")
    until(lambda: "GPU" in stage.typed("runai describe job pair -p team-a"), "it says what it waits for")

    stage.typed("runai delete b1 -p team-b")
    until(lambda: list(pods(cluster).values()) == ["n1", "n1"], "it is bound again")
    cluster.request("DELETE", f"{JOBS}/pair", {"propagationPolicy": "Background"})
    until(lambda: not pods(cluster) and not phases(stage), "the garbage collector removed its pods")

    add_job(cluster, "short")
    until(lambda: list(pods(cluster).values()) == ["n1"], "it runs")
    (pod,) = pods(cluster)
    ended = {
        "name": "train",
        "image": "forever",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": 0}},
    }
    status = {"phase": "Succeeded", "containerStatuses": [ended]}
    cluster.request("PATCH", f"{PLACE}/pods/{pod}/status", {"status": status})  # as its node would set it
    until(lambda: cluster.get(f"{JOBS}/short")["status"].get("succeeded") == 1, "its controller counts it")
    until(lambda: phases(stage) == {"short": "Completed"}, "and Pliant says so")


def test_a_namespace_that_is_deleted_is_emptied_and_the_others_go_on(cluster, stage):
    stage.typed("runai submit a1 -i forever -g 1 -p team-a")
    stage.typed("runai submit b1 -i forever -g 1 -p team-b")
    until(lambda: phases(stage) == {"a1": "Running", "b1": "Running"}, "both run")
    old, other = uid(cluster), set(pods(cluster, "/api/v1/namespaces/runai-team-b"))
    cluster.kubectl("delete", "namespace", "runai-team-a", "--wait=false")
    until(lambda: uid(cluster) not in ("", old), "it was emptied, and made again for the job")
    until(lambda: phases(stage) == {"a1": "Running", "b1": "Running"}, "which runs there")
    assert set(pods(cluster, "/api/v1/namespaces/runai-team-b")) == other


def uid(cluster):
    return (cluster.get(PLACE) or {"metadata": {"uid": ""}})["metadata"]["uid"]


def test_a_budget_that_its_controller_counts(cluster, stage):
    """Of two replicas one may be disrupted: the other stays, whatever team-b asks for."""
    cluster.add_namespace("runai-team-a")
    add_job(cluster, "pair", pods=2)
    until(lambda: list(pods(cluster).values()) == ["n1", "n1"], "both run")
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": "pair"}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}}
    cluster.request("POST", BUDGETS, body | {"spec": {"minAvailable": 2, "selector": selector}})
    until(
        lambda: cluster.get(f"{BUDGETS}/kept").get("status", {}).get("currentHealthy") == 2, "it is counted"
    )
    before = set(pods(cluster))
    try:
        stage.typed("runai submit b1 -i forever -g 1 -p team-b")
        until(lambda: len(refused(cluster)) >= 2, "its eviction is refused, and tried again")
        assert set(pods(cluster)) == before and phases(stage)["b1"] != "Running"
        cluster.request("PATCH", f"{BUDGETS}/kept", {"spec": {"minAvailable": 1}})
        until(lambda: phases(stage)["b1"] == "Running", "one may go")
        assert len(before & alive(cluster)) == 1
    finally:
        cluster.request("DELETE", f"{BUDGETS}/kept")  # otherwise the server's end waits for its pods


def test_the_end_of_a_server_names_the_budget_that_keeps_a_pod_and_what_to_type(cluster, stage):
    stage.typed("runai submit a1 -i forever -g 1 -p team-a")
    until(lambda: phases(stage) == {"a1": "Running"}, "it runs")
    (pod,) = pods(cluster)
    labels = cluster.get(f"{PLACE}/pods/{pod}")["metadata"]["labels"]
    selector = {"matchLabels": {"pliant/workload": labels["pliant/workload"]}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}}
    cluster.request("POST", BUDGETS, body | {"spec": {"minAvailable": 1, "selector": selector}})
    until(
        lambda: cluster.get(f"{BUDGETS}/kept").get("status", {}).get("currentHealthy") == 1, "it is counted"
    )
    told, done = stage.where / "told", []
    down = threading.Thread(target=lambda: done.append(stage.run("pliant down --yes 2>told")))
    down.start()
    try:
        until(lambda: told.exists() and "The disruption budget kept needs" in told.read_text(), "it says why")
        assert told.read_text().count("is not stopped yet") == 1 and list(pods(cluster)) == [pod]
        assert not done, "it waits"
        typed = re.search(r"`kubectl (delete pod [^`]*)`", told.read_text())[1]
        cluster.kubectl(*typed.split(), "--wait=false")
        down.join(60)
        assert [it.code for it in done] == [0], "what it said to type was enough"
    finally:
        cluster.request("DELETE", f"{BUDGETS}/kept")
        down.join()


def alive(cluster):
    """Pods with live containers; an ended pod may stay until the controller has counted it."""
    found = cluster.request("GET", f"{PLACE}/pods")["items"]
    return {it["metadata"]["name"] for it in found if it["status"]["phase"] in ("Pending", "Running")}


def refused(cluster):
    """Evictions that the API server refused because of a budget."""
    lines = (cluster.folder / "audit.log").read_text().splitlines()
    asked = [json.loads(line) for line in lines if '"eviction"' in line]
    return [it for it in asked if it.get("responseStatus", {}).get("code") == 429]
