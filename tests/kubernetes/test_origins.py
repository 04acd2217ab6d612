"""Pods of others that name us as their scheduler: reported, started, ended, left alone."""

import json
import random
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from pliant.engines.kube.apiserver.names import FINALIZER, namespace_of
from pliant.model.fact import NodeLost, NodeSeen, WorkFound, WorkGone, WorkListed
from pliant.model.order import Start, Stop
from pliant.model.workload import Attempt, AttemptId
from tests.engines.contract import GIB
from tests.kubernetes.control_plane import Answered, until
from tests.kubernetes.gate import Gate
from tests.kubernetes.kube_rig import KubeRig


@pytest.fixture
def rig(plane, tmp_path):
    rig = FoundRig(plane, tmp_path)
    plane.add_namespace(f"runai-{rig.name}")
    yield rig
    rig.clean()


class FoundRig(KubeRig):
    """A rig that also keeps facts about found work."""

    def sink(self, fact):
        self.facts.append(fact)

    def add(self, name, *, gpus=1, image="forever", owner=None, labels=None, notes=None, spec=None, grace=1):
        amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        resources = {"requests": {"cpu": "500m", "memory": "1Gi", **amounts}, "limits": amounts}
        metadata = {"name": name, "labels": labels or {}, "annotations": notes or {}}
        if owner is not None:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        body["spec"] = {
            "schedulerName": self.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "train", "image": image, "resources": resources}],
            **(spec or {}),
        }
        return self.plane.request("POST", self.pods, body)["metadata"]["uid"]

    def add_job(self, name, *, parallelism=1, completions=None, owner=None):
        metadata = {"name": name}
        if owner is not None:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        spec = {"parallelism": parallelism, "completions": completions or parallelism, "suspend": False}
        spec["template"] = {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "forever"}]}
        }
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        jobs = f"/apis/batch/v1/namespaces/runai-{self.name}/jobs"
        made = self.plane.request("POST", jobs, body)["metadata"]["uid"]
        return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made}

    def objects(self, version, kind):
        return f"/apis/{version}/namespaces/runai-{self.name}/{kind.lower()}s"

    @property
    def sets(self):
        return self.objects("apps/v1", "StatefulSet")

    def add_owner(self, version, kind, name, spec, owner=None):
        define(self.plane, *version.split("/"), kind)
        metadata = {"name": name}
        if owner is not None:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        made = self.plane.request("POST", self.objects(version, kind), body)["metadata"]["uid"]
        return {"apiVersion": version, "kind": kind, "name": name, "uid": made}

    def add_stateful_set(self, name, replicas, owner, policy="Parallel"):
        metadata, labels = {"name": name}, {"app": name}
        if owner is not None:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        template = {"metadata": {"labels": labels}}
        template["spec"] = {"containers": [{"name": "train", "image": "forever"}]}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        spec |= {"serviceName": name, "podManagementPolicy": policy}
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
        made = self.plane.request("POST", self.sets, body)["metadata"]["uid"]
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": made}

    def fail_job(self, name):
        """Fails a Job as its controller does after too many failures."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        condition |= {
            "reason": "BackoffLimitExceeded",
            "message": "Job has reached the specified backoff limit",
        }
        conditions = [condition | {"type": "FailureTarget"}, condition | {"type": "Failed"}]
        path = f"{self.objects('batch/v1', 'Job')}/{name}/status"
        self.plane.request("PATCH", path, {"status": {"conditions": conditions, "startTime": now}})

    def found(self):
        """The last report of each workload, in the order of their first reports."""
        return {fact.workload.id: fact.workload for fact in list(self.facts) if isinstance(fact, WorkFound)}

    def told(self):
        return [fact.workload for fact in list(self.facts) if isinstance(fact, WorkFound)]

    def gone(self):
        return [fact.workload for fact in list(self.facts) if isinstance(fact, WorkGone)]

    def one(self, ready=1):
        """Waits until so many pods of the only workload can start; returns the workload."""

        def complete():
            rows = list(self.found().values())
            return rows and sum(count for _, count in rows[0].origin.ready) == ready and rows

        rows = until(complete, "it is told")
        assert len(rows) == 1
        return rows[0]

    def begin(self, row, task="task-0", number=1):
        attempt = AttemptId(row.id, task, number)
        self.engine.start(Start(attempt, self.place(0), row, "decision-1", self.epoch))
        return attempt

    def condition(self, name):
        pod = self.plane.get(f"{self.pods}/{name}")
        told = [it for it in pod["status"].get("conditions", ()) if it["type"] == "PodScheduled"]
        return (told[0]["reason"], told[0]["message"]) if told else None

    def foreign(self):
        nodes = [fact.node for fact in self.facts if isinstance(fact, NodeSeen)]
        return sum(gpu.foreign for gpu in nodes[-1].gpus)

    def pods_that(self, phase):
        return [pod for pod in self.listed() if pod["status"]["phase"] == phase]

    def stop_it(self, attempt):
        self.engine.stop(Stop(attempt, self.name, 1000, "decision-2", self.epoch))


def test_a_bare_pod_is_told_bound_and_ended(rig):
    rig.open()
    uid = rig.add("alone", gpus=2, labels={"pliant/priority": "high"})
    row = rig.one()
    assert (row.id, row.name, row.project) == (uid, "alone", rig.name)
    assert str(row.origin) == f"Pod runai-{rig.name}/alone"
    request = row.groups[0].request
    assert (request.devices, request.cpu, request.memory) == (2, 500, GIB)
    assert row.priority_class == "high" and row.backoff_limit == 0
    attempt = rig.begin(row)
    until(lambda: rig.started(attempt), "it runs")
    pod = rig.plane.get(f"{rig.pods}/alone")
    assert pod["spec"]["nodeName"] == rig.name and "finalizers" not in pod["metadata"]
    assert pod["metadata"]["labels"]["pliant/workload"] == row.id
    until(lambda: rig.plane.get(f"{rig.pods}/alone")["status"]["phase"] == "Running", "its node says so")
    assert rig.told() == [row], "its start changes nothing of it: a row is recorded, sent and shown"
    rig.stop_it(attempt)
    assert rig.end(attempt).stopped
    rig.engine.recorded(attempt)
    until(lambda: rig.gone() == [uid], "it is gone for good")


def test_pods_that_are_told_at_once_are_told_oldest_first(rig):
    names = ["zz", "aa", "mm", "bb", "yy", "cc"]
    uids = [rig.add(name) for name in names]
    rig.open()
    until(lambda: any(isinstance(fact, WorkListed) for fact in rig.facts), "all are told")
    assert list(rig.found()) == uids
    assert rig.facts[-1] == WorkListed("kube", frozenset(uids))


def test_pods_of_a_job_are_one_workload_each_pod_for_itself(rig):
    rig.open()
    job = rig.add_job("train", parallelism=2, completions=5)
    for name in ("train-a", "train-b"):
        rig.add(name, owner=job)
    row = rig.one(ready=2)
    group = row.groups[0]
    assert (row.id, row.name, row.origin.kind) == (job["uid"], "train", "Job")
    assert (group.min, group.wanted, group.max, group.at_once) == (0, 5, 5, 2)
    first = rig.begin(row, "task-0")
    until(lambda: rig.started(first), "one runs")
    rig.one(ready=1)
    assert rig.plane.get(f"{rig.pods}/train-a")["metadata"]["finalizers"] == [FINALIZER]
    rig.stop_it(first)
    rig.end(first)
    rig.engine.recorded(first)
    until(lambda: rig.plane.get(f"{rig.pods}/train-a") is None, "the oldest was taken, and is gone")
    assert not rig.gone(), "the Job makes another pod"
    rig.add("train-c", owner=job)
    row = rig.one(ready=2)
    again = rig.begin(row, "task-0", 2)
    until(lambda: rig.started(again), "its successor runs as the next attempt")


def test_a_job_that_has_given_up_is_told(rig):
    """Its last pod changes before the Job reports failure, and none afterwards."""
    rig.open()
    job = rig.add_job("train", parallelism=2)
    for name in ("train-a", "train-b"):
        rig.add(name, owner=job, spec={"nodeName": rig.name})
    until(lambda: len(rig.pods_that("Running")) == 2, "they run")
    for name in ("train-a", "train-b"):
        rig.plane.request("PATCH", f"{rig.pods}/{name}/status", {"status": {"phase": "Failed"}})
    until(lambda: len(rig.pods_that("Failed")) == 2, "they have failed")
    assert not rig.one(ready=0).origin.over
    rig.fail_job("train")
    until(lambda: rig.one(ready=0).origin.over, "it is told")
    said = rig.one(ready=0).origin.failure
    assert said == "BackoffLimitExceeded: Job has reached the specified backoff limit"


def test_pods_of_a_jobset_are_a_gang(rig):
    """A gang of two kinds of pods, as the JobSet declares."""
    rig.open()
    kinds = [
        {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 2}}}
        for name, replicas in (("leader", 1), ("workers", 2))
    ]
    owner = rig.add_owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set", {"replicatedJobs": kinds})
    for index, kind in enumerate(("leader", "workers", "workers")):
        job = rig.add_job(f"set-{index}", parallelism=2, owner=owner)
        for pod in range(2):
            labels = {"jobset.sigs.k8s.io/replicatedjob-name": kind}
            rig.add(f"set-{index}-{pod}", owner=job, labels=labels)
    row = rig.one(ready=6)
    assert (row.id, row.origin.kind) == (owner["uid"], "JobSet")
    assert counts(row) == [("leader", 2, 2), ("workers", 4, 4)]


MPI = ("kubeflow.org/v2beta1", "MPIJob")
RAY = ("ray.io/v1", "RayCluster")
LWS = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")


def add_mpi_job(rig, name="mpi", workers=2, **more):
    """Makes it as the MPI operator does: it owns the workers, a Job owns the launcher."""
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": workers}}
    owner = rig.add_owner(*MPI, name, {"mpiReplicaSpecs": roles, **more})
    for index in range(workers):
        labels = {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/job-name": name}
        rig.add(f"{name}-worker-{index}", owner=owner, labels=labels)
    return owner


def add_launcher(rig, owner):
    job = rig.add_job("mpi-launcher", owner=owner)
    labels = {"training.kubeflow.org/job-role": "launcher", "training.kubeflow.org/job-name": "mpi"}
    return rig.add("mpi-launcher-x", owner=job, labels=labels, gpus=0)


def test_pods_of_an_mpi_job_are_a_gang_that_waits_for_its_launcher(rig):
    rig.open()
    owner = add_mpi_job(rig)
    row = rig.one(ready=2)
    assert (row.id, row.name, row.origin.kind) == (owner["uid"], "mpi", "MPIJob")
    assert counts(row) == [("launcher", 1, 1), ("worker", 2, 2)]
    assert row.origin.ready == (("launcher", 0), ("worker", 2))
    add_launcher(rig, owner)
    row = rig.one(ready=3)
    assert row.origin.ready == (("launcher", 1), ("worker", 2))
    assert {it.name: it.request.devices for it in row.groups} == {"launcher": 0, "worker": 1}
    attempt = rig.begin(row, "launcher-0")
    until(lambda: rig.started(attempt), "the launcher runs")
    assert rig.plane.get(f"{rig.pods}/mpi-launcher-x")["spec"]["nodeName"] == rig.name


def test_workers_do_not_wait_for_a_launcher_that_waits_for_them(rig):
    rig.open()
    owner = add_mpi_job(rig, launcherCreationPolicy="WaitForWorkersReady")
    row = rig.one(ready=2)
    assert counts(row) == [("worker", 2, 2)]
    add_launcher(rig, owner)
    assert counts(rig.one(ready=3)) == [("launcher", 0, 1), ("worker", 2, 2)]


@pytest.mark.parametrize(
    ("condition", "failure"),
    [
        ({"type": "Succeeded", "reason": "MPIJobSucceeded"}, ""),
        (
            {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "the launcher failed"},
            "BackoffLimitExceeded: the launcher failed",
        ),
    ],
)
def test_an_mpi_job_that_is_over_is_told(rig, condition, failure):
    """Its operator deletes the workers and does not make new ones."""
    rig.open()
    add_mpi_job(rig)
    rig.one(ready=2)
    told = [{"type": "Running", "status": "False"}, {**condition, "status": "True"}]
    rig.plane.request("PATCH", f"{rig.objects(*MPI)}/mpi", {"status": {"conditions": told}})
    rig.plane.request("DELETE", f"{rig.pods}/mpi-worker-1?gracePeriodSeconds=0")
    until(lambda: rig.one(ready=1).origin.over, "it is told")
    assert rig.one(ready=1).origin.failure == failure


def test_pods_of_a_ray_cluster_are_a_head_and_groups_of_workers(rig):
    rig.open()
    workers = [
        {"groupName": "Small", "replicas": 2, "minReplicas": 1, "maxReplicas": 4},
        {"groupName": "slices", "replicas": 1, "minReplicas": 0, "maxReplicas": 1, "numOfHosts": 2},
        {"groupName": "idle", "replicas": 3, "suspend": True},
    ]
    owner = rig.add_owner(*RAY, "ray", {"headGroupSpec": {}, "workerGroupSpecs": workers})
    add_ray_pods(rig, owner, headgroup=1, Small=2)
    row = rig.one(ready=3)
    assert (row.id, row.origin.kind) == (owner["uid"], "RayCluster")
    assert counts(row) == [("headgroup", 1, 1), ("idle", 0, 0), ("slices", 2, 2), ("small", 2, 2)]
    assert dict(row.origin.ready)["slices"] == 0, "two pods of the gang are still to come"
    add_ray_pods(rig, owner, slices=2)
    assert dict(rig.one(ready=5).origin.ready) == {"headgroup": 1, "idle": 0, "slices": 2, "small": 2}


def test_an_autoscaled_ray_cluster_starts_with_its_least_and_follows(rig):
    rig.open()
    spec = {"headGroupSpec": {}, "enableInTreeAutoscaling": True}
    group = {"groupName": "gpus", "replicas": 2, "minReplicas": 1, "maxReplicas": 4}
    owner = rig.add_owner(*RAY, "ray", {**spec, "workerGroupSpecs": [group]})
    add_ray_pods(rig, owner, headgroup=1, gpus=2)
    assert counts(rig.one(ready=3)) == [("gpus", 1, 2), ("headgroup", 1, 1)]
    change = {"spec": {"workerGroupSpecs": [{**group, "replicas": 3}]}}
    rig.plane.request("PATCH", f"{rig.objects(*RAY)}/ray", change)
    add_ray_pods(rig, owner, first=2, gpus=1)
    assert counts(rig.one(ready=4)) == [("gpus", 1, 3), ("headgroup", 1, 1)]


def test_a_ray_cluster_of_a_ray_job_is_the_workload(rig):
    """The other pods of its owner are made only once it runs: it must not wait for them."""
    rig.open()
    job = rig.add_owner("ray.io/v1", "RayJob", "job", {"rayClusterSpec": {}})
    owner = rig.add_owner(*RAY, "ray", {"headGroupSpec": {}}, owner=job)
    add_ray_pods(rig, owner, headgroup=1)
    assert (rig.one().id, rig.one().origin.kind) == (owner["uid"], "RayCluster")


def add_ray_pods(rig, owner, *, first=0, **groups):
    for group, count in groups.items():
        kind = "head" if group == "headgroup" else "worker"
        labels = {"ray.io/cluster": "ray", "ray.io/node-type": kind, "ray.io/group": group}
        for index in range(first, first + count):
            rig.add(f"ray-{group.lower()}-{index}", owner=owner, labels=labels)


def test_each_replica_of_a_leader_worker_set_is_a_gang(rig):
    """A gang of a leader and its workers, which a StatefulSet makes that the leader owns."""
    rig.open()
    owner = rig.add_owner(*LWS, "set", {"replicas": 2, "leaderWorkerTemplate": {"size": 3}})
    leaders = rig.add_stateful_set("set", 2, owner)
    uids = [add_leader(rig, leaders, index) for index in range(2)]
    until(lambda: len(rig.found()) == 2, "both are told")
    for index, uid in enumerate(uids):
        add_workers(rig, uid, index, 2)
    rows = until(lambda: len(ready(rig, 3)) == 2 and ready(rig, 3), "all pods are there")
    uid = owner["uid"]
    assert [(it.id, it.name) for it in rows] == [(f"{uid}-0", "set-0"), (f"{uid}-1", "set-1")]
    for row in rows:
        assert str(row.origin) == f"LeaderWorkerSet runai-{rig.name}/set"
        assert counts(row) == [("leader", 1, 1), ("worker", 2, 2)]
    attempt = rig.begin(rows[1], "worker-0")
    until(lambda: rig.started(attempt), "a worker of the second replica runs")
    nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in rig.listed()}
    assert {name for name, node in nodes.items() if node} == {"set-1-1"}


def test_a_replica_of_a_leader_worker_set_that_is_scaled_away_is_gone(rig):
    rig.open()
    owner = rig.add_owner(*LWS, "set", {"replicas": 2, "leaderWorkerTemplate": {"size": 1}})
    leaders = rig.add_stateful_set("set", 2, owner)
    for index in range(2):
        add_leader(rig, leaders, index)
    until(lambda: len(ready(rig, 1)) == 2, "both are told")
    for index in range(2):
        rig.plane.request("DELETE", f"{rig.pods}/set-{index}?gracePeriodSeconds=0")
    rig.plane.request("PATCH", f"{rig.objects(*LWS)}/set", {"spec": {"replicas": 1}})
    until(lambda: rig.gone() == [f"{owner['uid']}-1"], "the second is gone")
    add_leader(rig, leaders, 0)
    until(lambda: len(ready(rig, 1)) == 2, "the first goes on")
    assert rig.gone() == [f"{owner['uid']}-1"]


def test_a_leader_does_not_wait_for_workers_that_wait_for_it(rig):
    rig.open()
    spec = {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 2}}
    owner = rig.add_owner(*LWS, "set", spec)
    uid = add_leader(rig, rig.add_stateful_set("set", 1, owner), 0)
    assert counts(rig.one(ready=1)) == [("leader", 1, 1)]
    add_workers(rig, uid, 0, 1)
    assert counts(rig.one(ready=2)) == [("leader", 1, 1), ("worker", 0, 1)]


def test_a_group_that_is_made_anew_is_told_anew(rig):
    """Its pods then come from another StatefulSet; those of the old one do not count."""
    rig.open()
    owner = rig.add_owner(*LWS, "set", {"replicas": 1, "leaderWorkerTemplate": {"size": 2}})
    leaders = rig.add_stateful_set("set", 1, owner)
    add_workers(rig, add_leader(rig, leaders, 0), 0, 1)
    rig.one(ready=2)
    rig.plane.request("DELETE", f"{rig.pods}/set-0-1?gracePeriodSeconds=0")
    row = rig.one(ready=1)
    assert row.origin.ready == (("leader", 1), ("worker", 0))
    rig.plane.request("DELETE", f"{rig.pods}/set-0?gracePeriodSeconds=0")
    rig.plane.request("DELETE", f"{rig.sets}/set-0")
    add_workers(rig, add_leader(rig, leaders, 0), 0, 1)
    assert rig.one(ready=2).id == f"{owner['uid']}-0"
    assert not rig.gone()


def add_leader(rig, leaders, index):
    return rig.add(f"set-{index}", owner=leaders, labels=place_in_set(index, 0))


def add_workers(rig, leader, index, count):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"set-{index}", "uid": leader}
    workers = rig.add_stateful_set(f"set-{index}", count, owner)
    for worker in range(1, count + 1):
        rig.add(f"set-{index}-{worker}", owner=workers, labels=place_in_set(index, worker))


def place_in_set(group, worker):
    start = "leaderworkerset.sigs.k8s.io"
    return {f"{start}/name": "set", f"{start}/group-index": str(group), f"{start}/worker-index": str(worker)}


def ready(rig, count):
    rows = sorted(rig.found().values(), key=lambda row: row.id)
    return [row for row in rows if sum(number for _, number in row.origin.ready) == count]


def test_pods_of_a_stateful_set_that_come_one_by_one_are_not_waited_for(rig):
    rig.open()
    owner = rig.add_stateful_set("web", 3, None, policy="OrderedReady")
    rig.add("web-0", owner=owner)
    assert counts(rig.one(ready=1)) == [("task", 1, 1)]


PLUGIN = ("scheduling.x-k8s.io/v1alpha1", {"minMember": 3})
UPSTREAM = ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 3}}})


def add_pod_group(rig, api=PLUGIN, spec=None):
    version, own = api
    if version.startswith("scheduling.x-k8s.io"):
        define(rig.plane, *version.split("/"), "PodGroup")
    body = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "pair"}, "spec": spec or own}
    return rig.plane.request("POST", rig.objects(version, "PodGroup"), body)["metadata"]["uid"]


def add_to_group(rig, name, api=PLUGIN, **more):
    if api is PLUGIN:
        return rig.add(name, labels={"scheduling.x-k8s.io/pod-group": "pair"}, **more)
    return rig.add(name, spec={"schedulingGroup": {"podGroupName": "pair"}}, **more)


@pytest.mark.parametrize("api", [PLUGIN, UPSTREAM], ids=["plugins", "upstream"])
def test_pods_of_a_pod_group_are_a_gang(rig, api):
    """The oldest pods are its core; pods with another request are another group."""
    rig.open()
    uid = add_pod_group(rig, api)
    add_to_group(rig, "driver", api, gpus=0)
    row = rig.one()
    assert (row.id, row.name, str(row.origin)) == (uid, "pair", f"PodGroup runai-{rig.name}/pair")
    driver, worker = "gpu0-cpu500m-memory1024mi", "gpu1-cpu500m-memory1024mi"
    assert counts(row) == [(driver, 3, 3)], "two are missing"
    for index in range(3):
        add_to_group(rig, f"worker-{index}", api)
    row = rig.one(ready=4)
    assert counts(row) == [(driver, 1, 1), (worker, 2, 3)]
    attempt = rig.begin(row, f"{worker}-0")
    until(lambda: rig.started(attempt), "the first worker runs")
    bound = [pod["metadata"]["name"] for pod in rig.listed() if pod["spec"].get("nodeName")]
    assert bound == ["worker-0"]


def test_a_pod_group_that_is_not_there_is_told_and_waited_for(rig):
    rig.open()
    add_to_group(rig, "first")
    add_to_group(rig, "second", UPSTREAM)
    for name, said in (("first", "of scheduling.x-k8s.io is not"), ("second", "of scheduling.k8s.io is not")):
        reason, message = until(lambda name=name: rig.condition(name), "it is told why")
        assert reason == "PliantRefused" and said in message
    rig.add("good")
    assert rig.one().name == "good", "everything else goes on"
    uid = add_pod_group(rig)
    until(lambda: uid in rig.found(), "it is taken in")


def test_a_pod_group_without_pods_is_gone_and_can_be_used_again(rig):
    rig.open()
    uid = add_pod_group(rig)
    add_to_group(rig, "a")
    rig.one()
    rig.plane.request("DELETE", f"{rig.pods}/a?gracePeriodSeconds=0")
    until(lambda: rig.gone() == [uid], "nobody makes others")
    rig.facts.clear()
    add_to_group(rig, "b")
    assert rig.one().id == uid


def test_a_pod_group_makes_a_gang_of_a_job(rig):
    """The Job's replacement of a failed pod is no additional task, and its end is reported."""
    rig.open()
    uid = add_pod_group(rig, spec={"minMember": 2})
    job = rig.add_job("train", parallelism=2)
    for name in ("train-a", "train-b"):
        add_to_group(rig, name, owner=job)
    group = "gpu1-cpu500m-memory1024mi"
    row = rig.one(ready=2)
    assert (row.id, counts(row), row.backoff_limit) == (uid, [(group, 2, 2)], 2**31)
    rig.plane.request("PATCH", f"{rig.pods}/train-a/status", {"status": {"phase": "Failed"}})
    assert counts(rig.one(ready=1)) == [(group, 2, 2)], "one is to come"
    add_to_group(rig, "train-c", owner=job)
    assert counts(rig.one(ready=2)) == [(group, 2, 2)]
    rig.fail_job("train")
    rig.plane.request("DELETE", f"{rig.pods}/train-b?gracePeriodSeconds=0")
    until(lambda: rig.one(ready=1).origin.over, "it is told")
    assert rig.one(ready=1).origin.failure.startswith("BackoffLimitExceeded: ")
    rig.plane.request("DELETE", f"{rig.objects('batch/v1', 'Job')}/train?propagationPolicy=Background")
    for name in ("train-a", "train-c"):
        rig.plane.request("DELETE", f"{rig.pods}/{name}?gracePeriodSeconds=0")
    until(lambda: rig.gone() == [uid], "the PodGroup alone makes nothing")


def test_a_pod_group_says_nothing_of_a_kind_that_is_a_gang_itself(rig):
    rig.open()
    add_pod_group(rig)
    owner = rig.add_owner(*RAY, "ray", {"headGroupSpec": {}})
    labels = {"ray.io/group": "headgroup", "scheduling.x-k8s.io/pod-group": "pair"}
    rig.add("ray-head", owner=owner, labels=labels)
    assert (rig.one().id, counts(rig.one())) == (owner["uid"], [("headgroup", 1, 1)])


def counts(row):
    return [(it.name, it.min, it.max) for it in row.groups]


@pytest.mark.parametrize(
    ("notes", "gpus", "said"),
    [
        ({"gpu-fraction": "0.5", "gpu-memory": "2000"}, 0, "contradict each other"),
        ({"gpu-fraction": "0.5"}, 1, "asks for nvidia.com/gpu and"),
        ({"gpu-fraction": "0.5"}, 0, "created without Pliant's webhook"),
        ({"gpu-fraction": "1.5"}, 0, "write a number between 0 and 1"),
        ({"gpu-fraction": "much"}, 0, "write a number between 0 and 1"),
        ({"gpu-memory": "0"}, 0, "MiB or an amount such as 5G"),
    ],
)
def test_annotations_that_cannot_be_meant(rig, notes, gpus, said):
    rig.open()
    rig.add("odd", gpus=gpus, notes=notes)
    reason, message = until(lambda: rig.condition("odd"), "it is told why")
    assert reason == "PliantRefused" and said in message
    rig.add("good")
    assert rig.one().name == "good", "everything else goes on"
    events = rig.plane.request("GET", f"/api/v1/namespaces/runai-{rig.name}/events")["items"]
    assert [event["message"] for event in events] == [message]


APART = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "a"}}}]
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": APART}
SPREAD = {**APART[0], "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"affinity": {"podAffinity": REQUIRED}}, "It requires a podAffinity"),
        ({"affinity": {"podAntiAffinity": REQUIRED}}, "It requires a podAntiAffinity"),
        ({"topologySpreadConstraints": [SPREAD]}, "say ScheduleAnyway"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, "ask for nvidia.com/gpu"),
    ],
)
def test_what_a_pod_may_not_require(rig, spec, said):
    rig.open()
    rig.add("odd", spec=spec)
    reason, message = until(lambda: rig.condition("odd"), "it is told why")
    assert reason == "PliantRefused" and said in message
    rig.add("good")
    assert rig.one().name == "good", "everything else goes on"


def test_a_label_that_contradicts_the_namespace(rig):
    rig.open()
    rig.add("odd", labels={"pliant/project": "another"})
    assert "its namespace belongs to project" in until(lambda: rig.condition("odd"), "it is told why")[1]


def test_a_reason_of_the_server_stands_on_the_pod(rig):
    rig.open()
    rig.add("waits")
    row = rig.one()
    rig.engine.answer(row.id, "Project x does not exist.", taken=False)
    told = until(lambda: rig.condition("waits"), "it is told why it is refused")
    assert told == ("PliantRefused", "Project x does not exist.")
    rig.engine.answer(row.id, "Needs 1 GPU; none is free.", taken=True)
    until(lambda: rig.condition("waits") == ("Unschedulable", "Needs 1 GPU; none is free."), "why it waits")
    attempt = rig.begin(row)
    until(lambda: rig.started(attempt), "a pod that was changed meanwhile is started all the same")


def test_nothing_is_free_before_the_containers_are_gone(rig):
    """A request to end is not an end: a peer scheduler mistook it for one, and placed pods on GPUs in use."""
    rig.open()
    rig.add("alone", image="stubborn", grace=300)
    attempt = rig.begin(rig.one())
    until(lambda: rig.started(attempt), "it runs")
    rig.engine.stop(Stop(attempt, rig.name, 300_000, "decision-2", rig.epoch))
    until(lambda: "deletionTimestamp" in rig.plane.get(f"{rig.pods}/alone")["metadata"], "it is asked to end")
    rig.add("other")
    until(lambda: len(rig.found()) == 2, "the engine goes on")
    assert not rig.ends(attempt) and rig.plane.get(f"{rig.pods}/alone")["status"]["phase"] == "Running"
    rig.plane.request("DELETE", f"{rig.pods}/alone?gracePeriodSeconds=0")
    assert rig.end(attempt).stopped


def test_what_stood_here_before_is_adopted_and_what_went_is_told(rig):
    rig.open()
    uid = rig.add("alone")
    row = rig.one()
    attempt = rig.begin(row)
    rig.known[attempt] = Attempt(attempt, rig.place(0), rig.epoch, "decision-1", 0, started=0)
    until(lambda: rig.started(attempt), "it runs")
    rig.drop()
    rig.open()
    until(lambda: rig.started(attempt), "it is adopted")
    until(lambda: WorkListed("kube", frozenset({uid})) in rig.facts, "it is listed")
    assert set(rig.told()) == {row}, "a server that starts again finds it as it was"
    rig.drop()
    rig.plane.request("DELETE", f"{rig.pods}/alone?gracePeriodSeconds=0")
    rig.open()
    assert rig.end(attempt).lost
    rig.engine.recorded(attempt)
    until(lambda: WorkListed("kube", frozenset()) in rig.facts, "it is gone")


@pytest.mark.parametrize("owned", [False, True])
def test_a_binding_that_a_busy_api_server_refuses_is_tried_again(rig, owned):
    """Also one that was carried out although its answer was an error: the watch then shows it."""
    gate = Gate(rig.plane.url, rig.plane.folder / "certificates", random.Random(3))
    said = json.loads(rig.plane.kubeconfig.read_text())
    said["clusters"][0]["cluster"]["server"] = gate.url
    rig.kubeconfig = rig.folder / "kubeconfig"
    rig.kubeconfig.write_text(json.dumps(said))
    try:
        rig.open()
        owner = rig.add_job("train") if owned else None
        rig.add("busy", owner=owner)
        row = rig.one()
        gate.trouble(1.0)
        attempt = rig.begin(row)
        until(lambda: {409, 429, 500} <= set(gate.injected), "it is refused for each reason")
        gate.trouble(0.0)
        until(lambda: rig.started(attempt), "it runs")
        assert not rig.ends(attempt)
    finally:
        gate.close()


def test_a_pod_of_a_lost_node_is_not_waiting_when_the_scheduler_hears_of_it(rig):
    rig.open()
    rig.add("alone")
    row = rig.one()
    attempt = rig.begin(row)
    until(lambda: rig.started(attempt), "it runs")
    labels = rig.plane.get(f"/api/v1/nodes/{rig.name}")["metadata"]["labels"]
    rig.plane.request("DELETE", f"/api/v1/nodes/{rig.name}")
    until(lambda: NodeLost(rig.name) in rig.facts, "the node is lost")
    before = rig.facts[: rig.facts.index(NodeLost(rig.name))]
    ready = [fact.workload.origin.ready for fact in before if isinstance(fact, WorkFound)]
    assert ready == [(("task", 1),), (("task", 0),)]
    rig.plane.add_node(rig.name, gpus=4, labels=labels)


def test_a_start_whose_pod_has_gone_is_lost(rig):
    rig.open()
    rig.add("alone")
    row = rig.one()
    rig.plane.request("DELETE", f"{rig.pods}/alone?gracePeriodSeconds=0")
    until(lambda: rig.gone() == [row.id], "it is gone")
    begun = time.monotonic()
    assert rig.end(rig.begin(row)).lost
    assert time.monotonic() - begun < 30


def test_a_pod_that_does_not_name_us_is_never_touched(rig):
    rig.open()
    rig.add("theirs", spec={"schedulerName": "another"})
    rig.add("static", spec={"nodeName": rig.name, "schedulerName": "default-scheduler"}, gpus=3)
    rig.add("ours")
    assert rig.one().name == "ours"
    until(lambda: rig.foreign() == 3, "what another scheduler placed counts as used")
    for name in ("theirs", "static"):
        pod = rig.plane.get(f"{rig.pods}/{name}")
        assert "finalizers" not in pod["metadata"]
        assert rig.condition(name) is None


def test_no_two_projects_have_one_namespace():
    assert namespace_of("default") == "default" and namespace_of("team-a") == "runai-team-a"
    long = "x" * 58
    names = ["a-b", "a--b", "a---b", f"{long}1", f"{long}2"]
    names += [namespace_of(name).removeprefix("runai-") for name in names if name != "a-b"]
    names += [namespace_of(name).removeprefix("runai-") for name in names[5:]]
    spaces = {namespace_of(name) for name in names}
    assert len(spaces) == len(names) and all(len(each) <= 63 for each in spaces)


def define(plane, group, version, kind):
    """Defines the minimum of a custom resource that the API server needs to store objects."""
    plural, loose = f"{kind.lower()}s", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": loose}}]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with suppress(Answered):  # another test has defined it already
        plane.request("POST", kinds, {**body, "metadata": {"name": f"{plural}.{group}"}})
    told = f"/apis/{group}/{version}/namespaces/default/{plural}"
    until(lambda: plane.get(told) is not None, f"{kind}s are known")
