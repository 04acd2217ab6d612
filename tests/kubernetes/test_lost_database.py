"""The server's database is lost: a new one takes over the running work from pods and custom resources."""

import json
import os
import re
import shlex
import shutil
import signal

import pytest

from tests.kubernetes.control_plane import until
from tests.kubernetes.test_controllers import Typing
from tests.kubernetes.test_resources import CRDS

TEAM_A = "/api/v1/namespaces/runai-team-a/pods"
OBJECTS = "namespaces/runai-team-a/workloads"
ENDING = ("short", "brief")  # jobs that end while no server runs
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


def pid_of(stage):
    return int(json.loads((stage.state / "server.json").read_text())["pid"])


def lose(stage):
    """Kills the server with SIGKILL and removes all its files."""
    pid = pid_of(stage)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the server is gone")
    shutil.rmtree(stage.state)


def pods(cluster):
    """Name -> uid of the live pods of team-a."""
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


def shown(cluster, path, name):
    return cluster.get(f"/apis/pliant.dev/v1alpha1/{path}/{name}") or {"metadata": {}, "status": {}}


def row(cluster, path, name):
    """The row in the annotation of its object."""
    said = shown(cluster, path, name)["metadata"].get("annotations", {}).get("pliant/row", "{}")
    return json.loads(json.loads(said).get("row", "{}"))


def submit_all(cluster, stage):
    """Submits, in team-a, a job with a variable, one of two pods, a pod of others, one that will end, and an
    object with a spec; waiting jobs there and in team-b; projects, a department and a node pool."""
    stage.typed("pliant department create research --quota 4")
    stage.typed("pliant nodepool create fast --label kind=fast")
    stage.typed("pliant project create team-a --quota 3")
    stage.typed("pliant project create idle --quota 2 --department research")
    put(cluster, "projects", "Project", "team-b", {"nodePools": [{"name": "default", "gpuQuota": 1}]})
    stage.typed("runai submit solo -i forever -g 1 -p team-a -e ANSWER=42")
    stage.typed("runai submit short -i forever -p team-a")
    stage.typed("runai training pytorch submit pair --workers 1 -i forever -g 1 -p team-a")
    container = {"name": "main", "image": "forever", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"schedulerName": "pliant", "containers": [container]}
    until(lambda: pods(cluster), "its namespace is there")
    cluster.request("POST", TEAM_A, {"metadata": {"name": "theirs"}, "spec": spec})
    add_pod_of_a_job(cluster, spec)
    put(cluster, OBJECTS, "Workload", "applied", {"image": "forever", "gpus": 1})
    put(cluster, OBJECTS, "Workload", "brief", {"image": "forever"})
    everything = dict.fromkeys(("solo", "short", "pair", "theirs", "batch", "applied", "brief"), "Running")
    until(lambda: phases(stage) == everything, "all run")
    stage.typed("runai submit later -i forever -g 5 -p team-a -e PASSWORD=hunter2")
    stage.typed("runai submit asleep -i forever -g 5 -p team-a")
    stage.typed("pliant suspend asleep -p team-a")
    stage.typed("runai submit unread -i forever -g 5 -p team-a")
    until(lambda: "team-b" in projects(stage), "it is applied")
    stage.typed("runai submit further -i forever -g 5 -p team-b")
    everything |= {"later": "Pending", "asleep": "Stopped", "further": "Pending"}
    until(lambda: row(cluster, OBJECTS, "asleep").get("desired") == "Stopped", "its object says so")
    until(lambda: row(cluster, OBJECTS, "later") and row(cluster, OBJECTS, "unread"), "they are shown")
    until(lambda: row(cluster, "namespaces/runai-team-b/workloads", "further"), "it is shown too")
    assert "hunter2" not in json.dumps(shown(cluster, OBJECTS, "later")), "readers of objects see no value"
    assert "annotations" not in shown(cluster, OBJECTS, "theirs")["metadata"], "no byte more for others"
    until(
        lambda: shown(cluster, OBJECTS, "asleep").get("status", {}).get("phase") == "Stopped",
        "kubectl sees it",
    )
    return everything


def add_pod_of_a_job(cluster, spec):
    """Adds a pod as the Job's controller, which does not run, would."""
    template = {"spec": {**spec, "restartPolicy": "Never"}}
    job = {"metadata": {"name": "batch"}, "spec": {"template": template, "completions": 2, "parallelism": 1}}
    uid = cluster.request("POST", "/apis/batch/v1/namespaces/runai-team-a/jobs", job)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "batch", "uid": uid, "controller": True}
    metadata = {"name": "batch-1", "ownerReferences": [owner]}
    cluster.request("POST", TEAM_A, {"metadata": metadata, "spec": template["spec"]})


def projects(stage):
    """Project -> its quota and department."""
    found = json.loads(stage.typed("pliant project list -o json"))
    return {it["name"]: (it["totalResources"]["gpuQuota"], it["parent"]["name"]) for it in found}


def allocated(cluster):
    return shown(cluster, "projects", "team-a")["status"]["gpuAllocated"]


def end(cluster, job):
    """Ends its pod while no server runs."""
    (name,) = (it for it in pods(cluster) if it.startswith(f"{job}-"))
    ended = {"exitCode": 0, "reason": "Completed"}
    main = {"name": "main", "image": "forever", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Succeeded", "containerStatuses": [{**main, "state": {"terminated": ended}}]}
    cluster.request("PATCH", f"{TEAM_A}/{name}/status", {"status": status})


def test_what_was_is_taken_in_again(cluster, stage):
    everything = submit_all(cluster, stage)
    before, quotas = pods(cluster), projects(stage)
    assert len(before) == 8
    lose(stage)

    stage.typed(stage.up)
    log = (stage.state / "server.log").read_text()
    assert "6 tasks and 14 objects of another server are on this cluster" in log
    assert phases(stage).get("solo") is None and pods(cluster).items() >= before.items(), "nothing ends"
    lose(stage)

    for job in ENDING:
        end(cluster, job)
    change = {"metadata": {"annotations": {"pliant/row": "{"}}}
    cluster.request("PATCH", f"/apis/pliant.dev/v1alpha1/{OBJECTS}/unread", change)
    stage.typed(f"{stage.up} --adopt")
    everything |= dict.fromkeys(ENDING, "Completed")
    until(lambda: phases(stage) == everything, "all is known, and goes on")
    assert pods(cluster).items() >= {(n, u) for n, u in before.items() if not n.startswith(ENDING)}
    assert len(pods(cluster)) == 6, "not one was started again"
    assert projects(stage) == quotas
    assert "research" in stage.typed("pliant department list")
    assert "fast" in stage.typed("pliant nodepool list")
    log = (stage.state / "server.log").read_text()
    assert "Workload unread is not taken in" in log and "submit it again: runai submit unread" in log
    assert "adopted by a store that did not know it" in stage.typed("pliant describe job solo -p team-a")
    said = stage.typed("pliant describe job later -p team-a")
    assert "was taken in from its object Workload" in said

    until(lambda: allocated(cluster) == "6", "what others made is in its project too")

    # an adopted job is like any other: it ends, starts again with its variables, and is deleted
    stage.typed("pliant suspend solo -p team-a")
    until(lambda: phases(stage)["solo"] == "Stopped", "it stops")
    stage.typed("pliant resume solo -p team-a")
    until(lambda: phases(stage)["solo"] == "Running", "it runs again")
    (again,) = (it for it in pods(cluster).keys() - before.keys() if it.startswith("solo-"))
    assert variables(cluster, again) == ["ANSWER"]
    stage.typed("pliant delete solo pair -p team-a")
    until(lambda: phases(stage)["later"] == "Running", "what waited starts")
    (late,) = (it for it in pods(cluster) if it.startswith("later-"))
    assert variables(cluster, late) == ["PASSWORD"]
    found = cluster.request("GET", TEAM_A)["items"]
    notes = [
        it["metadata"]["annotations"]["pliant/gpus"] for it in found if it["status"]["phase"] == "Running"
    ]
    held = [gpu for each in notes for gpu in each.split(",") if gpu]
    assert len(held) == len(set(held)) == 8, "no GPU is given twice"
    cluster.request("DELETE", f"{TEAM_A}/theirs?gracePeriodSeconds=0")
    until(lambda: "theirs" not in phases(stage), "it goes with its pod")

    # an existing database takes precedence over objects
    ghost = copied(shown(cluster, OBJECTS, "asleep"), "ghost")
    os.kill(pid_of(stage), signal.SIGKILL)
    cluster.request("POST", f"/apis/pliant.dev/v1alpha1/{OBJECTS}", ghost)
    stage.typed(f"{stage.up} --adopt")
    until(lambda: not shown(cluster, OBJECTS, "ghost")["metadata"], "it shows nothing, and goes")
    assert "ghost" not in phases(stage) and "short" in phases(stage)


def copied(body, name, namespace="runai-team-a"):
    """A copy, as a user could forge it."""
    kept = {key: body["metadata"][key] for key in ("labels", "annotations")}
    kept["annotations"] = {
        key: each.replace(f'"name\\":\\"{body["metadata"]["name"]}', f'"name\\":\\"{name}')
        for key, each in kept["annotations"].items()
    }
    about = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
    return {**about, "metadata": {**kept, "name": name, "namespace": namespace}}


def variables(cluster, pod):
    (main,) = cluster.request("GET", f"{TEAM_A}/{pod}")["spec"]["containers"]
    (secret,) = (each["secretRef"]["name"] for each in main["envFrom"])
    return list(cluster.request("GET", f"/api/v1/namespaces/runai-team-a/secrets/{secret}")["data"])


def test_what_is_on_a_pod_is_believed_about_its_own_project_alone(cluster, stage):
    for project in ("team-a", "team-b"):
        stage.typed(f"pliant project create {project} --quota 1")
    stage.typed("runai submit solo -i forever -g 1 -p team-a")
    until(lambda: phases(stage).get("solo") == "Running", "it runs")
    for name in ("later", "deleted"):
        stage.typed(f"runai submit {name} -i forever -g 9 -p team-a")
        until(lambda name=name: row(cluster, OBJECTS, name), "it is shown")
    stage.typed("runai submit without -i forever -g 9 -p team-b")
    until(lambda: row(cluster, "namespaces/runai-team-b/workloads", "without"), "it is shown")
    (name,) = pods(cluster)
    real = cluster.request("GET", f"{TEAM_A}/{name}")
    lose(stage)
    notes = {**real["metadata"]["annotations"]}
    notes["pliant/attempt"] = re.sub(r"\d+$", "9", notes["pliant/attempt"])
    forged = {"name": "forged", "annotations": notes, "labels": real["metadata"]["labels"]}
    spec = {"schedulerName": "pliant", "nodeName": "n1", "containers": [{"name": "main", "image": "forever"}]}
    cluster.request("POST", "/api/v1/namespaces/default/pods", {"metadata": forged, "spec": spec})
    later = shown(cluster, OBJECTS, "later")
    for each in (copied(later, "later", "default"), copied(later, "forged")):
        path = f"/apis/pliant.dev/v1alpha1/namespaces/{each['metadata']['namespace']}/workloads"
        cluster.request("POST", path, each)
    cluster.kubectl("delete", "workloads.pliant.dev", "-n", "runai-team-a", "deleted", "--wait=false")
    cluster.kubectl("delete", "projects.pliant.dev", "team-a", "team-b")
    refused = stage.run(f"{stage.up} --adopt")
    assert refused.code != 0 and "is about another workload or project" in refused.said
    path = "/api/v1/namespaces/default/pods/forged"
    for damaged in ("{", "[1]", "[" * 100_000):
        cluster.request("PATCH", path, {"metadata": {"annotations": {"pliant/order": damaged}}})
        refused = stage.run(f"{stage.up} --adopt")
        assert refused.code != 0 and "kubectl delete pod --namespace default forged" in refused.said
    cluster.request("DELETE", "/api/v1/namespaces/default/pods/forged?gracePeriodSeconds=0")
    stage.typed(f"{stage.up} --adopt")
    until(lambda: phases(stage) == {"solo": "Running", "later": "Pending"}, "these two are known")
    log = (stage.state / "server.log").read_text()
    assert "Workload without is not taken in: its project is not there" in log
    assert log.count("is not taken in") == 1, "forged copies are nobody"
    assert projects(stage)["team-a"][0] == 1, "as its pod says"
    until(lambda: not shown(cluster, OBJECTS, "deleted")["metadata"], "its deletion is not forgotten")


def test_pods_of_two_lost_servers_are_not_mixed(cluster, stage):
    for name in ("first", "second"):
        stage.typed("pliant project create team-a --quota 1")
        stage.typed(f"runai submit {name} -i forever -g 1 -p team-a")
        until(lambda name=name: phases(stage).get(name) == "Running", f"{name} runs")
        lose(stage)
        if name == "first":
            stage.typed(stage.up)
    refused = stage.run(f"{stage.up} --adopt")
    assert refused.code != 0 and "Pods of 2 other servers are on this cluster" in refused.said
    first = re.search(r"objects: (\S+), ", refused.said)[1]
    (cure,) = re.findall(r"kubectl (delete .*)NAME\.", refused.said)
    cluster.kubectl(*shlex.split(f"{cure}{first}"))
    for pod in cluster.request("GET", f"{TEAM_A}?labelSelector=pliant/cluster={first}")["items"]:
        cluster.request("PATCH", f"{TEAM_A}/{pod['metadata']['name']}", FINALIZERS)
    until(lambda: len(cluster.request("GET", TEAM_A)["items"]) == 1, "one server's are left")
    stage.typed(f"{stage.up} --adopt")
    left = {"first", "second"} & phases(stage).keys()
    assert len(left) == 1
    until(lambda: phases(stage) == dict.fromkeys(left, "Running"), "it is known")
