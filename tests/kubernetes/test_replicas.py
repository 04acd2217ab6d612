"""Two servers as the chart runs them: a state folder each, one database, one cluster; one is killed."""

import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import until
from tests.kubernetes.replica import Replica
from tests.store.postgres import server


@pytest.fixture
def plane(planes):
    with planes.own() as plane:
        plane.add_node("n1", gpus=2)
        plane.add_namespace("pliant")
        for name in ("a", "b"):
            container = {"name": "server", "image": "forever"}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
            body["spec"] = {"containers": [container]}
            plane.request("POST", "/api/v1/namespaces/pliant/pods", body)
        yield plane


@pytest.fixture
def address():
    with tempfile.TemporaryDirectory(prefix="pliant-pg-") as folder, server(Path(folder)) as running:
        yield running.place()


def test_the_second_one_leads_when_the_first_is_killed(plane, address, tmp_path):
    made = []

    def begin(name):
        made.append(Replica(name, tmp_path, address, plane.kubeconfig))
        return made[-1]

    def leading():
        pods = plane.request("GET", "/api/v1/namespaces/pliant/pods")["items"]
        return [
            it["metadata"]["name"] for it in pods if it["metadata"].get("labels", {}).get("pliant.dev/leads")
        ]

    def running():
        pods = plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return sorted((it["metadata"]["uid"], it["status"]["phase"]) for it in pods)

    try:
        first = begin("a")
        until(first.leads, "one server leads")
        second = begin("b")
        until(lambda: second.ask("/readyz")[0] == 200, "the other one can be asked whether it lives")
        assert second.ask("/api/v1/clusters")[0] == 503, "and answers nothing else"
        until(lambda: leading() == ["a"], "the service leads to the first")
        spec = {"image": "forever", "compute": {"gpuDevicesRequest": 1}}
        projects = first.ask("/api/v1/org-unit/projects")[1]["projects"]
        job = {"name": "train", "projectId": projects[0]["id"], "clusterId": "", "spec": spec}
        clusters = first.ask("/api/v1/clusters")[1]
        job["clusterId"] = clusters[0]["uuid"]
        assert first.ask("/api/v1/workloads/trainings", job)[0] in (200, 201, 202)
        until(lambda: [phase for _, phase in running()] == ["Running"], "it runs")
        before = running()
        first.end()
        killed = time.monotonic()
        until(second.leads, "the other one leads")
        assert time.monotonic() - killed < 30
        until(lambda: leading() == ["b"], "the service leads to it")
        until(lambda: len(second.ask("/api/v1/workloads")[1]["workloads"]) == 1, "it knows the work")
        assert running() == before, "which did not notice"
        again = dict(job, name="second")
        assert second.ask("/api/v1/workloads/trainings", again)[0] in (200, 201, 202)
        until(lambda: [phase for _, phase in running()] == ["Running", "Running"], "it takes work")
    finally:
        for replica in made:
            if replica.process.poll() is None:
                replica.end(signal.SIGTERM)
