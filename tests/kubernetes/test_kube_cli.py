"""A cluster used by the command line: lend, reclaim, kill the server, delete; checked in the API server."""

import json
import os
import random
import re
import signal

import pytest

from examples.walkthrough import Stage
from pliant.devices.config import parse
from pliant.engines.kube.apiserver.names import namespace_of
from tests.kubernetes.control_plane import shared, until
from tests.kubernetes.gate import Gate
from tests.kubernetes.test_origins import define

CONFLICT = 5  # exit code

FOUND = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "found"},
    "spec": {
        "schedulerName": "pliant",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "train", "image": "forever", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    },
}


@pytest.fixture
def cluster(planes):
    """A cluster for this test alone, as its server uses every node."""
    with planes.own("podgroups") as plane:
        plane.add_node(
            "n1", gpus=2, labels={"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"}
        )
        yield plane


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path / "stage")
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


def test_two_projects_share_a_cluster(cluster, stage, tmp_path):
    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def phases(project):
        found = {}
        for pod in cluster.request("GET", f"/api/v1/namespaces/runai-{project}/pods")["items"]:
            name = pod["metadata"].get("annotations", {}).get("pliant/attempt", pod["metadata"]["name"])
            deleted = "deletionTimestamp" in pod["metadata"]
            found[name] = "Terminating" if deleted else pod["status"]["phase"]
        return found

    def running(project):
        return sorted(name for name, phase in phases(project).items() if phase == "Running")

    def statuses():
        return {item["name"]: item["phase"] for item in json.loads(typed("runai list -A -o json"))}

    typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    typed("pliant project create team-a --quota 1")
    typed("pliant project create team-b --quota 1")
    assert "n1" in typed("pliant list nodes")
    typed("runai submit a1 -i forever -g 1 -p team-a -e GREETING=hello")
    typed("runai submit a2 -i forever -g 1 -p team-a")
    until(lambda: len(running("team-a")) == 2, "idle GPUs are lent")
    assert "n1" in typed("runai describe job a1 -p team-a")
    pods = cluster.request("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"pliant"}
    assert all(pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"} for pod in pods)
    assert "hello" not in json.dumps(pods), "values of variables stand in a secret"

    typed("runai submit b1 -i forever -g 1 -p team-b")
    until(lambda: len(running("team-b")) == 1, "what was lent is taken back")
    kept = running("team-a")
    assert len(kept) == 1
    until(lambda: sorted(statuses().values()) == ["Pending", "Running", "Running"], "one waits")

    os.kill(int(json.loads((stage.state / "server.json").read_text())["pid"]), signal.SIGKILL)
    typed("pliant up")
    until(lambda: sorted(statuses().values()) == ["Pending", "Running", "Running"], "it knows them again")
    assert running("team-a") == kept, "it goes on as the same attempt"

    typed("runai delete b1 -p team-b")
    until(lambda: len(running("team-a")) == 2, "the one that waited has its GPU again")
    until(lambda: phases("team-b") == {}, "nothing is left of what was deleted")

    (tmp_path / "pod.json").write_text(json.dumps(FOUND))
    kubectl = cluster.kubectl
    kubectl("apply", "--namespace", "runai-team-b", "-f", str(tmp_path / "pod.json"))
    until(lambda: len(running("team-b")) == 1, "a pod that kubectl made gets what its project deserves")
    assert "found" in typed("runai list -p team-b")
    assert "Pod runai-team-b/found was found on the cluster" in typed("runai describe job found -p team-b")
    refused = stage.run("runai delete found -p team-b")
    assert refused.code == CONFLICT and "kubectl delete --namespace runai-team-b pod/found" in refused.said
    kubectl("delete", "pod", "--namespace", "runai-team-b", "found", "--wait=true")
    until(lambda: len(running("team-a")) == 2, "what it took is lent again")
    until(lambda: "found" not in typed("runai list -A"), "it is no workload any more")
    typed("pliant down --yes")
    until(lambda: running("team-a") == [], "nothing runs any more")


def test_a_box_moves_to_a_cluster(cluster, stage, tmp_path):
    """Projects, quotas, users and history move; running jobs do not, and the box's nodes are gone."""

    def typed(at, command):
        done = at.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def rows():
        return {item["name"]: item["phase"] for item in json.loads(typed(stage, "runai list -A -o json"))}

    box = Stage(tmp_path / "box")
    try:
        typed(box, "pliant up --simulate 1x4")
        typed(box, "pliant department create research --quota 3")
        typed(box, "pliant project create team-a --department research --quota 2")
        typed(box, "pliant user create anna")
        typed(box, "runai submit past -g 1 -p team-a --wait -- true")
        typed(box, "runai submit present -g 1 -p team-a -- sleep 1000")
        typed(box, f"pliant backup {tmp_path}/box.db")
    finally:
        box.run("pliant down --yes")
        assert box.close() == {}
    typed(stage, f"pliant restore {tmp_path}/box.db --yes")
    typed(stage, f"pliant up --kubeconfig {cluster.kubeconfig}")
    projects = {it["name"]: it for it in json.loads(typed(stage, "pliant list projects -o json"))}
    assert projects["team-a"]["departmentName"] == "research", projects
    assert projects["team-a"]["totalResources"]["gpuQuota"] == 2
    assert "anna" in typed(stage, "pliant user list")
    assert "past" in typed(stage, "pliant history -p team-a")
    until(lambda: rows().get("present") != "Running", "what ran on the box does not run here")
    until(lambda: "n1" in typed(stage, "pliant list nodes"), "the node of the cluster is there")
    typed(stage, "runai submit next -i forever -g 2 -p team-a")
    until(lambda: rows()["next"] == "Running", "it runs on the cluster")
    (pod,) = cluster.request("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
    assert pod["spec"]["nodeName"] == "n1"
    typed(stage, "pliant down --yes")


def test_workers_come_and_go(cluster, stage):
    """An elastic job has as many pods as fit; a resize leaves the remaining pods alone."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def pods(project):
        path = f"/api/v1/namespaces/runai-{project}/pods"
        found = cluster.request("GET", path)["items"] if cluster.get(path.removesuffix("/pods")) else []
        running = (it for it in found if it["status"]["phase"] == "Running")
        return {it["metadata"]["uid"] for it in running if "deletionTimestamp" not in it["metadata"]}

    cluster.add_node("n2", gpus=2)
    typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    typed("pliant project create team-a --quota 1")
    typed("pliant project create team-b --quota 3")
    elastic = "--workers 1 --min-replicas 1 --max-replicas 4 --no-master -g 1"
    typed(f"runai training pytorch submit stretch {elastic} -i forever -p team-a")
    until(lambda: len(pods("team-a")) == 4, "it grows into what is idle")
    whole = pods("team-a")
    typed("runai submit b1 -i forever -g 2 -p team-b")
    until(lambda: len(pods("team-b")) == 1 and len(pods("team-a")) == 2, "it gives two back")
    assert pods("team-a") < whole, "those that stay go on"
    typed("runai submit b2 -i forever -g 1 -p team-b")
    until(lambda: len(pods("team-b")) == 2 and len(pods("team-a")) == 1, "and one more")
    core = pods("team-a")
    assert core < whole
    typed("runai delete b1 b2 -p team-b")
    until(lambda: len(pods("team-a")) == 4, "it grows again")
    assert core < pods("team-a")
    typed("pliant down --yes")


def test_gangs_that_kubectl_made(cluster, stage):
    """No pod of a gang is bound before all its pods exist and fit."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def add(name, gpus, owner=None, **labels):
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        container = {"name": "train", "image": "forever", "resources": resources}
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner] if owner else []}
        spec = {**FOUND["spec"], "containers": [container]}
        cluster.request("POST", pods, {**FOUND, "metadata": metadata, "spec": spec})

    def running():
        found = cluster.request("GET", pods)["items"]
        return sorted(pod["metadata"]["name"] for pod in found if pod["spec"].get("nodeName"))

    def why(name):
        told = cluster.get(f"{pods}/{name}")["status"].get("conditions", ())
        return next((it.get("message", "") for it in told if it["type"] == "PodScheduled"), "")

    place = "namespaces/runai-team-a"
    pods = f"/api/v1/{place}/pods"
    typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    typed("pliant project create team-a --quota 2")
    typed("runai submit first -i forever -g 1 -p team-a --interactive")  # stays; makes the namespace
    until(lambda: len(running()) == 1, "it runs")

    define(cluster, "kubeflow.org", "v2beta1", "MPIJob")
    spec = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
    body = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "mpi"}, "spec": spec}
    made = cluster.request("POST", f"/apis/kubeflow.org/v2beta1/{place}/mpijobs", body)["metadata"]
    owner = {"apiVersion": body["apiVersion"], "kind": "MPIJob", "name": "mpi", "uid": made["uid"]}
    owner["controller"] = True
    role = "training.kubeflow.org/job-role"
    for index in range(2):
        add(f"mpi-worker-{index}", 1, owner, **{role: "worker"})
    until(lambda: "Waiting for more pods of MPIJob runai-team-a/mpi" in why("mpi-worker-0"), "it is told")
    add("mpi-launcher", 0, owner, **{role: "launcher"})
    until(lambda: "GPU" in why("mpi-launcher"), "all are there, and do not fit")
    assert len(running()) == 1, "not even the launcher is bound, for which there is room"
    typed("runai delete first -p team-a")
    until(lambda: running() == ["mpi-launcher", "mpi-worker-0", "mpi-worker-1"], "all are bound")
    refused = stage.run("runai delete mpi -p team-a")
    assert refused.code == CONFLICT and "kubectl delete --namespace runai-team-a mpijob/mpi" in refused.said

    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "pair"}}
    group["spec"] = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    cluster.request("POST", f"/apis/scheduling.k8s.io/v1alpha2/{place}/podgroups", group)
    cluster.request("DELETE", f"/apis/kubeflow.org/v2beta1/{place}/mpijobs/mpi")
    for name in ("mpi-launcher", "mpi-worker-0", "mpi-worker-1"):
        cluster.request("DELETE", f"{pods}/{name}")
    until(lambda: "mpi" not in typed("runai list -A"), "it is no workload any more")
    in_group = {**FOUND["spec"], "schedulingGroup": {"podGroupName": "pair"}}
    for index, said in enumerate(("Waiting for more pods of PodGroup runai-team-a/pair", "")):
        pod = {**FOUND, "metadata": {"name": f"pair-{index}"}, "spec": in_group}
        cluster.request("POST", pods, pod)
        until(lambda said=said, name=f"pair-{index}": said in why(name), "it is told why it waits")
    until(lambda: running() == ["pair-0", "pair-1"], "both are bound")
    typed("pliant down --yes")


def test_parts_of_a_gpu(cluster, stage, tmp_path):
    """Two halves share one GPU, a third waits for room; the cluster counts one GPU as used."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def pods(namespace):
        found = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [pod for pod in found if pod["spec"].get("nodeName")]

    def running():
        return sorted(pod["metadata"]["labels"]["pliant/workload"] for pod in pods("runai-team-a"))

    def rows():
        return {item["name"]: item for item in json.loads(typed("runai list -A -o json"))}

    def give(holder, gpu):
        """Gives it devices, as NVIDIA's device plugin would."""
        line = f"stdout F devices=GPU-00000000-0000-0000-0000-00000000000{gpu}\n"
        (tmp_path / holder).write_text(f"2026-11-27T07:00:00.000000000Z {line}")
        body = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": {"name": holder}}
        body["spec"] = {"logs": [{"logsFile": str(tmp_path / holder), "follow": False}]}
        cluster.request("POST", "/apis/kwok.x-k8s.io/v1alpha1/namespaces/default/logs", body)

    def limits():
        """Name of the pod's workload -> its limit in MiB."""
        found = {}
        for pod in pods("runai-team-a"):
            conf = parse(pod["metadata"]["annotations"]["pliant/gpu-conf"])
            found[pod["spec"]["containers"][0]["env"][1]["value"]] = conf.grants[0].limit
        return found

    typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    typed("pliant project create team-a --quota 2")
    typed("runai submit early -i forever -g 0.5 -p team-a --backoff-limit 0")
    until(lambda: rows()["early"]["phase"] == "Failed", "without the image there are no parts")
    assert "pliant up --share-image IMAGE" in typed("runai describe job early -p team-a")
    typed("runai delete early -p team-a")
    typed("pliant down --yes")
    typed("pliant up --share-image registry/pliant:1")
    typed("runai submit frac05 -i forever -g 0.5 -p team-a")
    typed("runai submit frac05-2 -i forever -g 0.5 -p team-a")
    (holder,) = until(lambda: pods("default"), "a pod holds the GPU")
    give(holder["metadata"]["name"], 1)
    until(lambda: len(running()) == 2, "both run")
    assert len(pods("default")) == 1, "on the same GPU"
    half = 81559 * 2**20 * 500 // 1000 // 2**21 * 2**21
    assert limits() == {"frac05": half, "frac05-2": half}
    assert "0.50 (0.50)" in typed("runai list jobs -p team-a")
    typed("runai submit whole -i forever -g 1 -p team-a")
    until(lambda: rows()["whole"]["phase"] == "Running", "the other GPU is free")
    typed("runai submit frac06 -i forever -g 0.6 -p team-a")
    until(lambda: rows()["frac06"]["phase"] == "Pending", "no GPU has room for it")
    typed("runai delete whole -p team-a")
    until(lambda: len(pods("default")) == 2, "now there is")
    (second,) = (pod for pod in pods("default") if pod["metadata"]["uid"] != holder["metadata"]["uid"])
    give(second["metadata"]["name"], 2)
    until(lambda: rows()["frac06"]["phase"] == "Running", "it runs")
    typed("runai delete frac06 -p team-a")
    typed("runai submit -i forever --gpu-memory 5G -p team-a")
    name = until(lambda: [each for each in rows() if each.startswith("job-")], "it has a name")[0]
    until(lambda: name in limits(), "it runs")
    assert limits()[name] == 5 * 10**9
    typed("pliant down --yes")


def test_a_pod_of_a_project_that_is_not_there(cluster, stage):
    """It shows what to type, other pods run, and it runs once that is typed."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def add(namespace, name, **labels):
        if cluster.get(f"/api/v1/namespaces/{namespace}") is None:
            cluster.add_namespace(namespace)
        metadata = {"name": name, "labels": {f"pliant/{key}": value for key, value in labels.items()}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": FOUND["spec"]}
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    def said(namespace, name):
        status = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
        conditions = [it for it in status.get("conditions", ()) if it["type"] == "PodScheduled"]
        return conditions[0].get("message", "") if conditions else ""

    def phase(namespace, name):
        return cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"]

    typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    typed("pliant project create a--b --quota 1")
    add("runai-lost", "early")
    add("default", "labelled", project="lost")
    why = "Project lost does not exist. Create it with `pliant project create lost --quota 0`"
    for place, name in (("runai-lost", "early"), ("default", "labelled")):
        until(lambda place=place, name=name: why in said(place, name), f"{name} is told why")
    events = cluster.request("GET", "/api/v1/namespaces/runai-lost/events")["items"]
    assert [why in it["message"] for it in events] == [True]
    space = namespace_of("a--b")
    add(space, "other", project="a--b")
    until(lambda: phase(space, "other") == "Running", "everything else works, whatever its project is called")
    cluster.kubectl("delete", "pod", "other", "--namespace", space)
    typed(re.search(r"`([^`]*)`", said("runai-lost", "early"))[1])
    until(lambda: phase("runai-lost", "early") == "Running", "it runs once its project is there")
    until(lambda: phase("default", "labelled") == "Running", "and so does the other")
    typed("pliant down --yes")


def test_a_cluster_that_is_not_there(stage, tmp_path):
    done = stage.run(f"pliant up --kubeconfig {tmp_path}/none")
    assert done.code == 1
    assert "names no cluster" in done.said and "kubectl config view" in done.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--simulate 1x1 --image elasticdl=other", "are for clusters: add --kubeconfig FILE"),
        ("--simulate 1x1 --share-image other", "are for clusters: add --kubeconfig FILE"),
        ("--kubeconfig {file} --image elasticdl", "--image elasticdl: write NAME=IMAGE, e.g. elasticdl="),
        ("--kubeconfig {file} --image =other", "--image =other: write NAME=IMAGE"),
    ],
)
def test_images_that_mean_nothing(stage, tmp_path, words, said):
    done = stage.run(f"pliant up {words.format(file=tmp_path / 'kubeconfig')}")
    assert done.code != 0 and said in done.said


def test_an_account_without_rights(stage, tmp_path):
    """`up` says so and leaves nothing behind; `doctor --kube` names each right that is missing."""
    with shared(tmp_path / "cluster", "account=default:nobody:no-rights") as plane:
        said = json.loads(plane.kubeconfig.read_text())
        said["users"][0]["user"] = {"token": "no-rights"}
        (tmp_path / "kubeconfig").write_text(json.dumps(said))
        done = stage.run(f"pliant up --kubeconfig {tmp_path}/kubeconfig")
        assert done.code == 1, done.said
        assert "the cluster does not let us in" in done.said and "system:serviceaccount" in done.said
        found = stage.run(f"pliant doctor --kube --kubeconfig {tmp_path}/kubeconfig")
        assert found.code == 1, found.said
        for right in ("may not create pods/binding", "may not list, watch nodes"):
            assert right in found.said, found.said
        assert "pliant cluster crds | kubectl apply -f -" in found.said, "no definition is there either"


@pytest.mark.parametrize(
    ("minor", "good"), [("28", False), ("28+", False), ("29", True), ("36", True)], ids=str
)
def test_an_api_server_of_another_version(plane, stage, tmp_path, minor, good):
    gate = Gate(plane.url, plane.folder / "certificates", random.Random(1))
    gate.claims = {"minor": minor, "gitVersion": f"v1.{minor}.0"}
    said = json.loads(plane.kubeconfig.read_text())
    said["clusters"][0]["cluster"]["server"] = gate.url
    (tmp_path / "kubeconfig").write_text(json.dumps(said))
    try:
        found = stage.run(f"pliant doctor --kube --kubeconfig {tmp_path}/kubeconfig")
    finally:
        gate.close()
    line = next(line.split() for line in found.said.splitlines() if line.startswith("API server"))
    assert line[2:4] == ["yes" if good else "no", f"v1.{minor}.0;"], found.said


def test_a_node_that_says_nothing_of_its_gpus(stage, planes):
    """All its whole GPUs are handed out. (Parts: test_parts.py)"""
    with planes.own() as plane:
        plane.add_node("plain", gpus=2)
        for command in (
            f"pliant up --kubeconfig {plane.kubeconfig}",
            "pliant project create team-a --quota 2",
            "runai submit one -i forever -g 1 -p team-a",
            "runai submit two -i forever -g 1 -p team-a",
            "pliant wait one two --for running -p team-a --timeout 60",
            "pliant down --yes",
        ):
            done = stage.run(command)
            assert done.code == 0, f"{command}: {done.said}"
