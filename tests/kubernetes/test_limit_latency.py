"""Measures how soon a running process sees a changed limit, on a real kubelet with the simulated driver.

Twenty changes of a pod's annotation, from the request until the process sees another size of its GPU; the
server is stopped meanwhile, so that nothing else changes them. `-s` shows the figures.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import time
from datetime import datetime

import pytest

from tests.kubernetes.control_plane import until
from tests.kubernetes.test_node_agent import GIB, JOBS, REST, SUBMIT, agent, cluster, typed

__all__ = ["agent", "cluster", "typed"]
CHANGES, ASKS = 20, 0.02  # s between two queries of the process
PROBE = f"""\
ops=$(i=0; while [ $i -lt 6000 ]; do printf "ready total "; i=$((i+1)); done)
(while :; do echo; sleep {ASKS}; done) | /bin/probe soname init ctx total $ops"""


def told(cluster, name):
    """(time in seconds, bytes) of each query of the process for its GPU's size."""
    words = [cluster.pieces / "kubectl", f"--kubeconfig={cluster.kubeconfig}", "-n", "runai-team-a"]
    done = subprocess.run([*words, "logs", "--timestamps", name], check=False, capture_output=True, text=True)
    assert done.returncode == 0 or "waiting to start" in done.stderr, done.stderr
    found = re.findall(r"^(\S+) total \S+ (\d+)", done.stdout, re.MULTILINE)
    return [(datetime.fromisoformat(at[:26] + "+00:00").timestamp(), int(size)) for at, size in found]


def changed(cluster, path, name):
    """The seconds that each change took."""
    for number in range(CHANGES):
        before = cluster.request("GET", path)["metadata"]["annotations"]["pliant/gpu-conf"]
        size = (8 if number % 2 == 0 else 12) * GIB
        text = re.sub(r" limit=\d+", f" limit={size}", before)
        text = re.sub(r"epoch (\d+)", lambda found: f"epoch {int(found[1]) + 1}", text)
        assert text != before
        asked = time.time()
        cluster.request("PATCH", path, {"metadata": {"annotations": {"pliant/gpu-conf": text}}})
        until(lambda size=size: told(cluster, name)[-1][1] == size, f"it has {size}", least=0.5)
        yield next(at for at, has in told(cluster, name) if at >= asked and has == size) - asked


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["agent", "annotation"])
def test_a_changed_limit_holds_soon(cluster, agent, typed, tmp_path, way):
    if way == "agent":
        agent.begin("agent-1")
        agent.until_ready("agent-1")
    part = "--gpu-portion-request 0.25 --gpu-portion-limit 0.75"
    typed(f"{SUBMIT} lender {part} {REST} sh -c '{PROBE}'")
    (pod,) = until(lambda: cluster.request("GET", f"{JOBS}/pods")["items"], "its pod is there")
    name = pod["metadata"]["name"]
    path = f"{JOBS}/pods/{name}"

    def notes():
        return cluster.request("GET", path)["metadata"]["annotations"]

    until(lambda: f"limit={12 * GIB}" in notes()["pliant/gpu-conf"], "all is lent to it")
    assert ("pliant/node-agent" in notes()) == (way == "agent")
    until(lambda: told(cluster, name)[-1:] and told(cluster, name)[-1][1] == 12 * GIB, "it has it")
    server = json.loads((tmp_path / "stage" / "state" / "server.json").read_text())["pid"]
    os.kill(server, signal.SIGSTOP)
    try:
        took = list(changed(cluster, path, name))
    finally:
        os.kill(server, signal.SIGCONT)
    print(
        f"\nby {way}: {CHANGES} changes, median {statistics.median(took):.3f} s, largest {max(took):.3f} s",
        json.dumps([round(each, 3) for each in took]),
    )
    status = cluster.request("GET", path)["status"]["containerStatuses"]
    assert [each["restartCount"] for each in status] == [0]
    assert max(took) < 5.0 if way == "agent" else max(took) < 120
