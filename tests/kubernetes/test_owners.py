"""A workload's object owns all that is made for it: with the real garbage collector, and in races."""

import json
import os
import re
import shlex
import signal
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from pliant.engines.kube.apiserver.cluster import Cluster
from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.resources.kinds import FINALIZER
from pliant.engines.kube.resources.owners import Owners
from tests.house.gaps import gap
from tests.kubernetes.control_plane import ROOT, SETUP, pieces, shared, until
from tests.kubernetes.test_controllers import Typing
from tests.kubernetes.test_resources import CRDS

PLACE = "namespaces/runai-team-a"
GUIDE = ROOT / "docs" / "guide" / "kubernetes.md"


# ---- one object, requested by several threads at once ----


@pytest.fixture(scope="module")
def defined(tmp_path_factory):
    with shared(tmp_path_factory.mktemp("owners")) as plane:
        plane.kubectl("apply", "-f", str(CRDS))
        until(lambda: plane.get("/apis/pliant.dev/v1alpha1"), "the definitions are known")
        yield plane


@pytest.fixture
def place(defined, request):
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:60].strip("-")
    return SimpleNamespace(name=name, path=f"/apis/pliant.dev/v1alpha1/namespaces/{name}/workloads")


@pytest.fixture
def owners(defined):
    """Makes one as in a server of that name."""
    connections = []

    def made(plane=defined, server="mine"):
        connections.append(Connection(plane.kubeconfig))
        return Owners(Cluster(connections[-1].client, server))

    yield made
    for each in connections:
        each.close()


def row(name="train", *, applied=False):
    return SimpleNamespace(name=name, id=f"id-{name}", origin=object() if applied else None)


def put(plane, place, name="train", *, spec=None, labels=None, finalizers=()):
    if plane.get(f"/api/v1/namespaces/{place.name}") is None:
        plane.add_namespace(place.name)
    metadata = {"name": name, "labels": labels or {}, "finalizers": [*finalizers]}
    body = {"apiVersion": "pliant.dev/v1alpha1", "kind": "Workload", "metadata": metadata}
    return plane.request("POST", place.path, body | ({"spec": spec} if spec else {}))


MINE = {"pliant/cluster": "mine"}


def test_it_is_made_once_with_its_namespace_and_kept_by_the_finalizer(defined, owners, place):
    found, threads = [], []
    for each in (owners(), owners(), owners()):
        threads.append(threading.Thread(target=lambda it=each: found.append(it.of(row(), place.name))))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (body,) = defined.request("GET", place.path)["items"]
    assert [it["uid"] for it in found] == [body["metadata"]["uid"]] * 3
    assert found[0] == {
        "apiVersion": "pliant.dev/v1alpha1",
        "kind": "Workload",
        "name": "train",
        "uid": body["metadata"]["uid"],
        "controller": True,
    }
    assert body["metadata"]["finalizers"] == [FINALIZER] and "spec" not in body
    assert body["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "pliant",
        "pliant/cluster": "mine",
        "pliant/workload": "id-train",
    }


def test_an_object_that_is_going_owns_nothing(defined, owners, place):
    put(defined, place, labels=MINE, finalizers=[FINALIZER])
    defined.request("DELETE", f"{place.path}/train")
    assert owners().of(row(), place.name) is None


def test_an_object_of_another_server_or_of_a_person_owns_nothing(defined, owners, place):
    put(defined, place, labels={"pliant/cluster": "another"})
    put(defined, place, "plain")
    assert owners().of(row(), place.name) is None and owners().of(row("plain"), place.name) is None


def test_a_spec_is_another_owner_than_none(defined, owners, place):
    uid = put(defined, place, spec={"image": "forever"})["metadata"]["uid"]
    ours = put(defined, place, "shown", labels=MINE)["metadata"]["uid"]
    one = owners()
    assert one.of(row(), place.name) is None
    assert one.of(row(applied=True), place.name)["uid"] == uid
    assert one.of(row("shown"), place.name)["uid"] == ours
    assert one.of(row("shown", applied=True), place.name) is None
    assert one.of(row("gone", applied=True), place.name) is None, "kubectl alone makes it"
    assert {it["metadata"]["name"] for it in defined.request("GET", place.path)["items"]} == {
        "train",
        "shown",
    }


def test_one_that_was_made_again_has_another_uid_and_old_news_change_nothing(defined, owners, place):
    one = owners()
    first = one.of(row(), place.name)["uid"]
    old = defined.request("GET", f"{place.path}/train")
    defined.request("PATCH", f"{place.path}/train", {"metadata": {"finalizers": None}})
    defined.request("DELETE", f"{place.path}/train")
    gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(10**9)}}
    one.changed(False, gone)
    second = one.of(row(), place.name)["uid"]
    assert second != first
    new = defined.request("GET", f"{place.path}/train")
    one.changed(True, old)
    assert one.of(row(), place.name)["uid"] == second
    one.listed([])
    assert one.of(row(), place.name)["uid"] == second, "it is asked for again"
    one.listed([new])
    assert one.of(row(), place.name)["uid"] == second


def test_a_name_that_no_object_can_have(defined, owners, place):
    assert owners().of(row("Not_a_name"), place.name) is None


def test_a_namespace_that_is_going(defined, owners, place):
    defined.add_namespace(place.name)
    defined.request("DELETE", f"/api/v1/namespaces/{place.name}")
    assert owners().of(row(), place.name) is None


def test_where_the_definition_is_not_installed_it_is_asked_for_once(plane, owners):
    one, asked = owners(plane), []
    make = one._make
    one._make = lambda *words, **more: (asked.append(words), make(*words, **more))[1]
    assert one.of(row(), "default") is None and one.of(row("other"), "default") is None
    assert len(asked) == 1


# ---- a whole server, beside the garbage collector ----


@pytest.fixture
def cluster(tmp_path):
    if not (pieces() / "kube-controller-manager").exists():
        gap("no Kubernetes", f"the pieces that were given have no kube-controller-manager: run {SETUP}")
    with shared(tmp_path / "cluster", "controllers", "audit") as plane:
        plane.add_node("n1", gpus=4)
        plane.kubectl("apply", "-f", str(CRDS))
        yield plane


@pytest.fixture
def stage(cluster, tmp_path):
    stage = Typing(tmp_path / "stage")
    stage.env |= {"KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{cluster.pieces}:{stage.env['PATH']}"}
    stage.typed(f"pliant up --kubeconfig {cluster.kubeconfig}")
    stage.typed("pliant project create team-a --quota 2")
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


def found(cluster, kinds, place=PLACE):
    return cluster.request("GET", f"/api/v1/{place}/{kinds}")["items"]


def left(cluster):
    """The existing objects of workloads: (kind, name)."""
    kinds = ("pods", "services", "secrets")
    names = [f"{kind}/{it['metadata']['name']}" for kind in kinds for it in found(cluster, kind)]
    objects = cluster.request("GET", f"/apis/pliant.dev/v1alpha1/{PLACE}/workloads")["items"]
    return names + [f"workloads/{it['metadata']['name']}" for it in objects]


def workload(cluster, name):
    return cluster.get(f"/apis/pliant.dev/v1alpha1/{PLACE}/workloads/{name}")


def owner(body):
    """(kind, name, uid) of its owner."""
    (one,) = body["metadata"]["ownerReferences"]
    assert one["controller"] and not one.get("blockOwnerDeletion")
    return one["kind"], one["name"], one["uid"]


def runs(cluster, name):
    until(lambda: (workload(cluster, name) or {}).get("status", {}).get("phase") == "Running", f"{name} runs")
    return workload(cluster, name)


def test_what_was_made_for_a_workload_goes_with_it_whoever_deletes_it(cluster, stage):
    typed, kubectl = stage.typed, cluster.kubectl
    pair = "runai training pytorch submit {} --workers 1 -i forever -g 0 -e A=1 -p team-a -c -- sleep 9"

    # pods, service and secrets have an owner that was made before them
    for way in ((), ("--cascade=foreground",), ("--cascade=orphan",)):
        typed(pair.format("d1"))
        body = runs(cluster, "d1")
        assert body["metadata"]["finalizers"] == [FINALIZER] and "spec" not in body
        made = [it for kind in ("pods", "services", "secrets") for it in found(cluster, kind)]
        assert len(made) >= 5, "two pods, their service, its secret, and one with variables"
        assert {owner(it) for it in made} == {("Workload", "d1", body["metadata"]["uid"])}
        assert made[0]["metadata"]["creationTimestamp"] >= body["metadata"]["creationTimestamp"]
        kubectl("delete", "workloads.pliant.dev", "d1", "--namespace=runai-team-a", "--wait=true", *way)
        assert not found(cluster, "pods"), "it is gone once its pods are"
        until(lambda: left(cluster) == [], f"nothing is left {way}")
        told = typed(f"python -c {shlex.quote(TOLD)} {body['status']['id']}")
        assert "kubectl deleted d1." in told.splitlines()

    # as with pliant itself
    typed(pair.format("d1"))
    runs(cluster, "d1")
    typed("runai delete d1 -p team-a")
    until(lambda: left(cluster) == [], "nothing is left")

    # an object with a spec
    spec = {"image": "forever", "gpus": 1}
    body = {"apiVersion": "pliant.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "w1"}, "spec": spec}
    cluster.request("POST", f"/apis/pliant.dev/v1alpha1/{PLACE}/workloads", body)
    uid = runs(cluster, "w1")["metadata"]["uid"]
    (pod,) = found(cluster, "pods")
    assert owner(pod) == ("Workload", "w1", uid)
    kubectl("delete", "workloads.pliant.dev", "w1", "--namespace=runai-team-a", "--wait=true")
    assert left(cluster) == []

    # a name that is reused at once is not mistaken for the workload that ends
    typed("runai submit again -i stubborn -g 2 -p team-a")
    first = runs(cluster, "again")
    kubectl("delete", "workloads.pliant.dev", "again", "--namespace=runai-team-a", "--wait=false")
    submit = "runai submit again -i forever -g 4 -p team-a"
    until(lambda: stage.run(submit).code == 0, "its name is free")
    assert workload(cluster, "again")["metadata"].get("deletionTimestamp") and found(cluster, "pods")
    assert workload(cluster, "again")["metadata"]["uid"] == first["metadata"]["uid"]
    until(
        lambda: (workload(cluster, "again") or first)["metadata"]["uid"] != first["metadata"]["uid"],
        "another one shows it",
    )
    runs(cluster, "again")
    assert len(found(cluster, "pods")) == 1, "GPUs are free when containers are gone, and no sooner"

    typed("runai delete again -p team-a")
    until(lambda: left(cluster) == [], "nothing is left")

    # an object that was deleted while no server ran is made again, and its pods with it
    typed("runai submit kept -i forever -g 1 -p team-a")
    runs(cluster, "kept")
    end(stage)
    old = workload(cluster, "kept")["metadata"]["uid"]
    kubectl(
        *["patch", "workloads.pliant.dev", "kept", "--namespace=runai-team-a", "--type=merge", "-p"], UNKEPT
    )
    kubectl("delete", "workloads.pliant.dev", "kept", "--namespace=runai-team-a")
    typed("pliant up")
    until(lambda: (workload(cluster, "kept") or {"metadata": {"uid": old}})["metadata"]["uid"] != old, "made")
    new = workload(cluster, "kept")["metadata"]["uid"]
    until(
        lambda: {owner(it) for it in found(cluster, "pods")} == {("Workload", "kept", new)},
        "the garbage collector took its pods, and it has new ones",
    )
    runs(cluster, "kept")

    # pods of others keep their owner: the object is made again, and owns nothing
    container = {"name": "main", "image": "forever"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}}
    body["spec"] = {"schedulerName": "pliant", "containers": [container]}
    cluster.request("POST", f"/api/v1/{PLACE}/pods", body)
    shown = runs(cluster, "bare")["metadata"]
    assert "finalizers" not in shown
    kubectl("delete", "workloads.pliant.dev", "bare", "--namespace=runai-team-a")
    until(
        lambda: (workload(cluster, "bare") or {"metadata": shown})["metadata"]["uid"] != shown["uid"], "made"
    )
    assert "ownerReferences" not in cluster.get(f"/api/v1/{PLACE}/pods/bare")["metadata"]
    cluster.request("DELETE", f"/api/v1/{PLACE}/pods/bare?gracePeriodSeconds=0")

    # another server's object is left alone
    metadata = {"name": "theirs", "labels": {"pliant/cluster": "another"}}
    body = {"apiVersion": "pliant.dev/v1alpha1", "kind": "Workload", "metadata": metadata}
    cluster.request("POST", f"/apis/pliant.dev/v1alpha1/{PLACE}/workloads", body)
    typed("runai submit theirs -i forever -g 1 -p team-a")
    typed("pliant wait theirs --for running -p team-a --timeout 60")
    (pod,) = (it for it in found(cluster, "pods") if it["metadata"]["name"].startswith("theirs"))
    assert "ownerReferences" not in pod["metadata"]
    log, told = (
        stage.state / "server.log",
        "workloads.pliant.dev theirs --namespace runai-team-a is of server another",
    )
    until(lambda: told in log.read_text(), "the log says so")
    typed("runai delete theirs -p team-a")
    until(lambda: len(found(cluster, "pods")) == 1, "its pod is gone")
    assert "status" not in workload(cluster, "theirs")

    # the deletion of a namespace deletes no workload
    kubectl("delete", "namespace", "runai-team-a", "--wait=true")
    until(lambda: (workload(cluster, "kept") or {"metadata": {"uid": new}})["metadata"]["uid"] != new, "made")
    runs(cluster, "kept")

    lines = (cluster.folder / "audit.log").read_text().splitlines()
    made = Counter(it["objectRef"]["name"] for it in map(json.loads, lines) if created(it))
    assert made["d1"] == 4, "one write for each workload, whoever was first"


TOLD = """
import sys
from pliant.client import Client
print(*(it["message"] for it in Client.connect().events(sys.argv[1])), sep="\\n")
"""
UNKEPT = '{"metadata":{"finalizers":null}}'


def created(event):
    about = event.get("objectRef") or {}
    made = event.get("responseStatus", {}).get("code") == 201
    return made and event["verb"] == "create" and about.get("apiGroup") == "pliant.dev" and "name" in about


def test_the_guide_removes_all_of_it_when_the_server_is_gone(cluster, stage):
    section = re.search(r"^## Remove Pliant from a cluster\n(.*?)^## ", GUIDE.read_text(), re.M | re.S)[1]
    _, without, rest = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    stage.typed("runai training pytorch submit d1 --workers 1 -i forever -g 0 -e A=1 -p team-a -c -- sleep 9")
    runs(cluster, "d1")
    spec = {"image": "forever", "gpus": 1}
    body = {"apiVersion": "pliant.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "w1"}, "spec": spec}
    cluster.request("POST", f"/apis/pliant.dev/v1alpha1/{PLACE}/workloads", body)
    body = {
        "apiVersion": "pliant.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": "team-b"},
        "spec": {},
    }
    cluster.request("POST", "/apis/pliant.dev/v1alpha1/projects", body)
    runs(cluster, "w1")
    until(lambda: "finalizers" in project(cluster, "team-b"), "its finalizer keeps it")
    end(stage)

    stage.typed(without)
    until(lambda: left(cluster) == [], "the garbage collector took all of it")
    stage.typed(rest)
    words = ("get", "--all-namespaces", "--output=name", "--selector=pliant/cluster")
    assert cluster.kubectl(*words, "pods,services,secrets") == ""
    until(lambda: cluster.get("/apis/pliant.dev/v1alpha1") is None, "the definitions are gone")
    stage.run("pliant down --yes")


def end(stage):
    """Kills its server with SIGKILL."""
    os.kill(int(json.loads((stage.state / "server.json").read_text())["pid"]), signal.SIGKILL)


def project(cluster, name):
    return cluster.request("GET", f"/apis/pliant.dev/v1alpha1/projects/{name}")["metadata"]
