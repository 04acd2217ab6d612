"""The control plane itself: a node, a pod, a binding; it does not outlive the tests that use it."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import ROOT, Answered, pieces, until
from tests.kubernetes.planes import etcd, word
from tests.kubernetes.test_resources import CRDS


def pod(name):
    spec = {"containers": [{"name": "main", "image": "any"}], "schedulerName": "pliant"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_pod_is_bound_once_and_runs(plane):
    name = f"test-{uuid.uuid4().hex[:12]}"
    pods = f"/api/v1/namespaces/{name}/pods"
    plane.add_namespace(name)
    node = plane.add_node(name, gpus=4)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    uid = plane.request("POST", pods, pod("a"))["metadata"]["uid"]
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": name}}

    def bind(uid):
        plane.request("POST", f"{pods}/a/binding", {**binding, "metadata": {"name": "a", "uid": uid}})

    with pytest.raises(Answered, match="409"):
        bind(str(uuid.uuid4()))
    bind(uid)
    with pytest.raises(Answered, match="409"):
        bind(uid)
    until(lambda: plane.get(f"{pods}/a")["status"]["phase"] == "Running", "it runs")
    shown = plane.kubectl("get", "pods", "--no-headers", "--namespace", name)
    assert shown.split()[:4] == ["a", "1/1", "Running", "0"]
    plane.request("DELETE", f"{pods}/a")
    until(lambda: plane.get(f"{pods}/a") is None, "it is gone")
    plane.request("DELETE", f"/api/v1/nodes/{name}")


USER = """
import sys, time
from pathlib import Path
from tests.kubernetes.control_plane import shared
with shared(Path(sys.argv[1])):
    print(Path(sys.argv[1], "plane.json").read_text(), flush=True)
    sys.stdin.read()
"""


def processes(folder):
    """Pids that have the folder in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words and b"sys.stdin.read" not in words:
            found.append(int(pid))
    return found


def test_it_is_shared_and_ends_with_its_last_user_even_if_that_is_killed(tmp_path):
    pieces()
    command = [sys.executable, "-c", USER, str(tmp_path)]
    users = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    ]
    told = [user.stdout.readline() for user in users]
    assert told[0] == told[1] != b""
    assert len(processes(tmp_path)) == 4, "keeper, etcd, kube-apiserver, KWOK"
    for user in users:
        user.send_signal(signal.SIGKILL)
        user.communicate()
    until(lambda: not processes(tmp_path), "all of them are gone")


def test_one_of_its_own_is_as_new_whatever_was_made_there_before(planes):
    with planes.own() as plane:
        url = plane.url
        plane.add_node("n1", gpus=2)
        plane.add_namespace("left")
        labels = {"metadata": {"labels": {"left": "true"}}}
        plane.request("PATCH", "/api/v1/namespaces/default", labels)
        plane.kubectl("apply", "-f", str(CRDS))
        until(lambda: plane.get("/apis/pliant.dev/v1alpha1"), "the definitions are known")
    with planes.own() as plane:
        assert plane.url == url
        assert plane.request("GET", "/api/v1/nodes")["items"] == []
        assert plane.get("/api/v1/namespaces/left") is None
        assert plane.get("/apis/pliant.dev/v1alpha1") is None
        assert "left" not in plane.request("GET", "/api/v1/namespaces/default")["metadata"]["labels"]
        plane.add_node("n1", gpus=2)
        with planes.own() as another:
            assert another.url != url


def test_what_an_api_server_keeps_of_itself_stays(planes):
    """Without this key it panics at its next compaction, 5 minutes later: too late for this test to see."""
    key = {"key": word("compact_rev_key")}
    with planes.own() as plane:
        if "kvs" not in etcd(plane, "kv/range", key):
            etcd(plane, "kv/put", {**key, "value": word("7")})
        before = etcd(plane, "kv/range", key)["kvs"]
    assert etcd(plane, "kv/range", key)["kvs"] == before


def test_one_whose_api_server_ended_after_its_test_is_lent_no_more(planes):
    with planes.own() as plane:
        url, folder = plane.url, plane.folder
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes(folder)}
    os.kill(*(pid for pid, words in commands.items() if b"/kube-apiserver\0" in words), signal.SIGKILL)
    until(plane.ended, "it takes no connections")
    until(lambda: "kube-apiserver ended with -9" in plane.last_words(), "its keeper says so")
    with pytest.raises(ConnectionError) as refused:
        plane.request("GET", "/api/v1/nodes")
    assert plane.last_words() in refused.value.__notes__
    with planes.own() as plane:
        assert plane.url != url
        assert plane.request("GET", "/api/v1/nodes")["items"] == []
