"""Runs pages of docs/walkthroughs and ElasticDL's guide as printed, on a cluster."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from examples.walkthrough import PAGES, Stage, parse, play
from tests.kubernetes.control_plane import ROOT, shared, until
from tests.kubernetes.node import NAME, image, node, programs
from tests.kubernetes.test_elasticdl_guide import FIRST

BASH = Path("/bin/bash").resolve()
SIMULATED = re.compile(r"pliant up --simulate (\d+)x(\d+)$")
UUIDS = ("GPU-00000000-0000-4000-8000-00000000000a", "GPU-00000000-0000-4000-8000-00000000000b")
IMAGES = {
    "gcr.io/run-ai-demo/quickstart": ["python", "-m", "pliant.engines.local.images.quickstart"],
    "elasticdl": ["python", "-m", "pliant.train.elasticdl"],
    "python": ["python"],
    "ubuntu": ["sh"],
}
"""The images that the pages run -> their entry points."""


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path / "stage")
    yield stage
    assert stage.close() == {}, "the page's last command is to leave nothing behind"


def played(page, edition, stage, up, until_line=10**6):
    """Plays the page on the cluster instead of simulated nodes."""
    commands = parse((PAGES / f"{page}.md").read_text("utf-8"), edition)
    assert SIMULATED.match(commands[0].text)
    commands[0] = replace(commands[0], text=up)
    commands = [each for each in commands if each.line < until_line or each.text == "pliant down --yes"]
    for seen in play(commands, stage):
        assert not seen.problem, f"{page}, line {seen.command.line}: {seen.command.text}\n{seen.problem}"


@pytest.mark.parametrize(
    ("page", "edition", "nodes"),
    [
        ("elasticity", "2021", 1),
        pytest.param("elasticity", "2020", 1, marks=pytest.mark.long),
        ("over-quota", "v2", 2),
        pytest.param("over-quota", "v1", 2, marks=pytest.mark.long),
        pytest.param("queue-fairness", "", 2, marks=pytest.mark.long),
    ],
)
def test_page(page, edition, nodes, stage, planes):
    """KWOK simulates the nodes: decisions are as on the page, the pods are in a real API server."""
    with planes.own() as plane:
        for number in range(nodes):
            plane.add_node(f"sim-{number}", gpus=2, labels={"nvidia.com/gpu.memory": "16384"})
        played(page, edition, stage, f"pliant up --kubeconfig {plane.kubeconfig}")


def test_a_gang_starts_as_a_whole(stage, planes):
    """The page of distributed training up to the launcher's output: KWOK's nodes run nothing."""
    with planes.own() as plane:
        plane.add_node("sim-0", gpus=2)
        end = line_of("distributed", "$ runai logs dist")
        played("distributed", "v1", stage, f"pliant up --kubeconfig {plane.kubeconfig}", end)


# ---- on a node that runs containers ----


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One node with two GPUs that lends Python, torch and this repository: an image of them has 6 GB."""
    programs()
    base = tmp_path_factory.mktemp("walk")
    path = f"PATH={Path(sys.executable).parent}:/bin"
    images = [
        image(pulled(name), {"bin/bash": BASH}, base / f"{place}.tar", entry=entry, env=[path])
        for place, (name, entry) in enumerate(IMAGES.items())
    ]
    folders = {Path(sys.base_prefix), Path(sys.prefix), ROOT, base, Path("/usr/lib")}
    folders |= {path for path in (Path("/lib"), Path("/lib64")) if path.exists()}
    with shared(base / "cluster") as plane, node(plane, base / "kubelet", images, UUIDS, sorted(folders)):
        labels = {"nvidia.com/gpu.product": "Simulated-GPU", "nvidia.com/gpu.memory": str(16 * 1024)}
        plane.request("PATCH", f"/api/v1/nodes/{NAME}", {"metadata": {"labels": labels}})
        plane.base = base
        yield plane


def pulled(name):
    return f"localhost/{name.rpartition('/')[2]}:1"


def up(plane):
    images = " ".join(f"--image {name}={pulled(name)}" for name in IMAGES)
    return f"pliant up --kubeconfig {plane.kubeconfig} {images}"


@pytest.mark.parametrize(("page", "edition"), [("train", "v1"), ("build", "")])
def test_page_in_containers(page, edition, cluster, stage):
    played(page, edition, stage, up(cluster))


def test_a_job_is_suspended_and_resumed(cluster, stage):
    """Its page without the last line: a pod's files are gone with the pod."""
    played("suspend-resume", "v1", stage, up(cluster), line_of("suspend-resume", "It continues from"))


def line_of(page, text):
    lines = (PAGES / f"{page}.md").read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(text))


MEET = """trap "exit 0" TERM
if [ "$RANK" = 0 ]; then busybox nc -ll -p $MASTER_PORT -e echo master $WORLD_SIZE & wait $!; fi
until said=$(busybox nc $MASTER_ADDR $MASTER_PORT </dev/null) && [ "$said" ]; do sleep 0.2; done
echo rank $RANK heard $said on $(hostname); sleep 1000 & wait"""


def test_pods_of_one_workload_find_one_another(cluster, stage):
    """By PyTorch's variables, over a network of pods, through a name in the cluster's DNS."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def tasks(name):
        file = f"runai exec pair --pod pair-{name} -p team-a -- cat /pliant/told/allocation.json"
        return [task["id"] for task in json.loads(typed(file))["tasks"] if task["state"] == "active"]

    typed(up(cluster))
    typed("pliant project create team-a --quota 2")
    script = stage.home / "meet.sh"
    script.write_text(MEET)
    words = "--workers 2 -g 0 --cpu-core-request 0.1 -i ubuntu -p team-a"
    typed(f'runai training pytorch submit pair {words} -c -- sh -c "$(cat {script})"')
    for rank, pod in ((1, "pair-worker-0"), (2, "pair-worker-1")):
        heard = f"rank {rank} heard master 3 on worker-{rank - 1}"
        until(lambda pod=pod, heard=heard: heard in typed(f"runai logs pair --pod {pod} -p team-a"), heard)
    assert tasks("worker-1") == ["master-0", "worker-0", "worker-1"]
    services = cluster.request("GET", "/api/v1/namespaces/runai-team-a/services")["items"]
    assert [each["spec"]["clusterIP"] for each in services] == ["None"]
    typed("runai delete pair -p team-a")
    many = "--workers 2 --min-replicas 1 --max-replicas 2 --no-master -g 1 --cpu-core-request 0.1"
    stays = "sh -c 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'"
    typed(f"runai training pytorch submit pair {many} -i ubuntu -p team-a -c -- {stays}")
    until(lambda: "2/1-2" in typed("runai training list -p team-a"), "both run")
    assert tasks("worker-0") == ["worker-0", "worker-1"]
    typed("runai submit urgent -i ubuntu -g 1 --cpu 0.1 --interactive -p team-a --command -- sleep 1000")
    until(lambda: tasks("worker-0") == ["worker-0"], "the one that stays sees that the other one goes")
    typed("runai delete pair urgent -p team-a")
    path = "/api/v1/namespaces/runai-team-a"
    until(lambda: not cluster.request("GET", f"{path}/pods")["items"], "its pods are gone")
    until(lambda: not cluster.request("GET", f"{path}/services")["items"], "and their name")
    typed("pliant down --yes")


TELLS = """import time
from pliant.train.agent.link import Link
link, step = Link.from_environment(), 0
link.start()
while True:
    step += 1
    link.progress({"state": "training", "step": step, "steps_total": 1000, "world": 2, "loss": 0.5})
    time.sleep(1)
"""


def test_a_job_tells_how_far_it_is(cluster, stage):
    """Its library writes a file in the pod, as no pod reaches the server. Its other task reports nothing."""

    def typed(command):
        done = stage.run(command)
        assert done.code == 0, f"{command}: {done.said}"
        return done.out

    def progress():
        item = json.loads(typed("pliant describe job tells -p team-a -o json"))
        return (item.get("progress") or {}).get("step", 0)

    typed(up(cluster))
    typed("pliant project create team-a --quota 2")
    script = cluster.base / "tells.sh"
    first = f"case $RANK in 1) python -c '{TELLS}' & wait $!;; esac"
    script.write_text(f'trap "exit 0" TERM\n{first}\nsleep 1000 & wait\n')
    words = "--workers 1 -g 0 --cpu-core-request 0.1 -i python -p team-a"
    typed(f"runai training pytorch submit tells {words} --command -c -- sh {script}")
    before = until(progress, "its report is there")
    until(lambda: progress() > before, "and is renewed")
    assert "1000" in typed("pliant describe job tells -p team-a")
    typed("runai delete tells -p team-a")
    typed("pliant down --yes")


def test_elasticdl_trains_to_its_end(cluster, stage):
    """The guide's first job, with requests divided by ten."""
    folder = cluster.base / "elasticdl"
    shutil.copytree(ROOT / "examples" / "elasticdl", folder)

    def typed(command):
        done = subprocess.run(
            ["bash", "-c", command],
            check=False,
            cwd=folder,
            env=stage.env,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    typed(f"make data RECORDS=600 DATA={cluster.base}/mnist")
    typed(up(cluster))
    job = FIRST.replace("/data/mnist", f"{cluster.base}/mnist")
    for amount, tenth in (("1000m", "100m"), ("3000m", "300m"), ("1024Mi", "102Mi"), ("4096Mi", "410Mi")):
        job = job.replace(amount, tenth)
    job = re.sub(r"    --(master|worker)_pod_priority=\S+ \\\n", "", job)
    typed(job)
    until(lambda: "Succeeded" in typed("pliant list") or "Failed" in typed("pliant list"), "it is over")
    said = typed("pliant logs low-prio-job")
    assert "low-prio-job: done, 30 steps, loss" in said, said
    typed("pliant down --yes")
