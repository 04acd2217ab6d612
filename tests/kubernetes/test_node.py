"""A real kubelet under the API server: containers run, print, accept commands and end with their exit codes;
a container with a part of a GPU gets no more of its memory."""

import fcntl
import json
import os
import pty
import re
import shlex
import socket
import struct
import subprocess
import termios
from contextlib import suppress
from functools import partial

import pytest

from examples.walkthrough import Stage
from pliant.devices import cards
from pliant.devices.cards import DRIVERS, Card
from pliant.devices.handout import SHIM
from tests.kubernetes.control_plane import Answered, shared, until
from tests.kubernetes.images import libraries
from tests.kubernetes.node import NAME, image, node, programs
from tests.shim.stage import HERE as PROBES
from tests.shim.stage import compile_c

GIB, STEP = 2**30, 64 * 2**20
UUIDS = ("GPU-00000000-0000-4000-8000-000000000001", "GPU-00000000-0000-4000-8000-000000000002")
PROBE = "/bin/probe soname init ctx total fill:alloc:64M"
PODS = "/api/v1/namespaces/runai-team-a/pods"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A control plane with one node, on which containers really run; it has two simulated GPUs of 16 GiB."""
    programs()
    base = tmp_path_factory.mktemp("node")
    probe = compile_c(base / "probe", PROBES / "probe.c", "-ldl")
    for uuid in UUIDS:
        cards.create(base / uuid, [Card(uuid, "Simulated-GPU", 16 * GIB)])
    drivers = {f"drivers/{path.name}": path for path in DRIVERS.iterdir()}
    needed = {key: path for each in (probe, SHIM) for key, path in libraries(each).items()}
    job = {"bin/probe": probe, **{f"cards/{uuid}": base / uuid for uuid in UUIDS}, **drivers, **needed}
    programs_of_ours = {f"usr/lib/pliant/{it.name}": it for it in (SHIM, SHIM.parent / "pliant-gpu-used")}
    env = ["LD_LIBRARY_PATH=/drivers"]
    images = [
        image("localhost/job:1", job, base / "job.tar", env=env),
        image("localhost/pliant:1", programs_of_ours, base / "pliant.tar"),
    ]
    with shared(base / "cluster") as plane, node(plane, base / "kubelet", images, UUIDS):
        labels = {"nvidia.com/gpu.product": "Simulated-GPU", "nvidia.com/gpu.memory": str(16 * 1024)}
        plane.request("PATCH", f"/api/v1/nodes/{NAME}", {"metadata": {"labels": labels}})
        yield plane


@pytest.fixture
def stage(cluster, tmp_path):
    stage = Stage(tmp_path / "stage")
    yield stage
    assert stage.close() == {}, "these processes outlived `pliant down`"


@pytest.fixture
def typed(cluster, stage, request):
    """Further words of `pliant up`, by indirect parametrization."""

    def typed(command, code=0):
        done = stage.run(command)
        assert done.code == code, f"{command}: {done.said}"
        return done.out

    more = getattr(request, "param", "")
    typed(f"pliant up --kubeconfig {cluster.kubeconfig} --share-image localhost/pliant:1 {more}")
    typed("pliant project create team-a --quota 2")
    yield typed
    names = [item["name"] for item in json.loads(typed("runai list -A -o json"))]
    if names:
        typed(f"runai delete {' '.join(names)} -p team-a")
    until(lambda: not pods(cluster), "nothing of it is left on the cluster")
    typed("pliant down --yes")


def pods(cluster):
    return cluster.request("GET", PODS)["items"] if cluster.get(PODS.removesuffix("/pods")) else []


def phase(typed, name):
    return {item["name"]: item["phase"] for item in json.loads(typed("runai list -A -o json"))}.get(name)


def seen(typed, name):
    """The results of a job's probes, in order: bytes of the card, bytes that could be allocated."""
    lines = [line.split() for line in typed(f"runai logs {name} -p team-a").splitlines()]
    sizes = [int(words[2]) for words in lines if words[0] == "total"]
    taken = [int(words[2]) for words in lines if words[0].startswith("fill")]
    return list(zip(sizes, taken, strict=False))


def at_a_terminal(stage, command, rows, columns):
    """What a terminal of that size shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    process = subprocess.Popen(
        command, shell=True, env=stage.env, cwd=stage.where, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    with suppress(OSError):  # the other side is closed
        while data := os.read(ours, 65536):
            said += data
    os.close(ours)
    assert process.wait(60) == 0, said
    return said.decode()


def test_a_job_prints_is_entered_and_ends_with_its_code(cluster, typed, stage):
    script = "echo begins as $RUNAI_JOB_NAME; while [ ! -e /tmp/end ]; do sleep 0.1; done; echo ends; exit 7"
    words = "-i localhost/job:1 -g 1 -p team-a -e GREETING=hello --backoff-limit 0"
    typed(f"runai submit first {words} --command -- sh -c '{script}'")
    until(lambda: "begins as first" in typed("runai logs first -p team-a"), "it prints")
    assert phase(typed, "first") == "Running"
    assert "GPU-0000" in typed("runai exec first -p team-a -- sh -c 'echo $NVIDIA_VISIBLE_DEVICES'")
    assert "hello" in typed("runai exec first -p team-a -- sh -c 'echo $GREETING'")
    typed("runai exec first -p team-a -- sh -c 'exit 3'", code=3)
    back = "printf 'a\\nb\\n' | runai exec -i first -p team-a -- cat"
    for _ in range(20):  # containerd loses input that ends before the command reads: see HERALD
        assert typed(back) == "a\nb\n"
    assert "nope: not found" in typed("runai exec -i first -p team-a -- nope </dev/null", code=127)
    size = "until busybox stty size | busybox grep 99; do sleep 0.1; done"  # it arrives late
    assert "33 99" in at_a_terminal(stage, f"runai exec -it first -p team-a -- sh -c '{size}'", 33, 99)
    typed("runai exec first -p team-a -- sh -c ': > /tmp/end'")
    until(lambda: phase(typed, "first") == "Failed", "it has ended")
    assert "exit code 7" in typed("runai describe job first -p team-a")
    assert typed("runai logs first -p team-a").splitlines()[-1] == "ends"


def test_a_job_that_is_stopped_begins_again_in_a_new_pod(cluster, typed):
    script = 'trap "echo asked; exit 0" TERM; echo begins; while :; do sleep 0.1; done'
    typed(f"runai submit patient -i localhost/job:1 -g 1 -p team-a --command -- sh -c '{script}'")
    until(lambda: "begins" in typed("runai logs patient -p team-a"), "it prints")
    typed("runai suspend patient -p team-a")
    until(lambda: phase(typed, "patient") == "Stopped", "it has stopped")
    typed("runai resume patient -p team-a")
    until(lambda: phase(typed, "patient") == "Running", "it runs again")
    typed("runai delete patient -p team-a")
    until(lambda: not pods(cluster), "its pod is gone")


def test_a_part_of_a_gpu_is_all_that_a_container_gets(cluster, typed):
    def holders():
        return cluster.request("GET", "/api/v1/namespaces/default/pods")["items"]

    shown = "PLIANT_SIM_CARDS=/cards/$NVIDIA_VISIBLE_DEVICES"  # NVIDIA's runtime shows only that device
    probes = f"{shown} {PROBE}; env -i LD_LIBRARY_PATH=/drivers {shown} {PROBE}"
    script = f'trap "exit 0" TERM; {probes}; while :; do sleep 0.2; done'
    rest = "--cpu 0.1 -p team-a --command"  # the machine may have few cores
    for name, gpus in (("whole", "1"), ("half", "0.5"), ("quarter", "0.25")):
        typed(f"runai submit {name} -i localhost/job:1 -g {gpus} {rest} -- sh -c '{script}'")
    for name, portion in (("whole", 1000), ("half", 500), ("quarter", 250)):
        until(lambda name=name: len(seen(typed, name)) == 2, f"both probes of {name} are done")
        size = 16 * GIB * portion // 1000
        assert seen(typed, name) == [(size, size // STEP * STEP)] * 2, "also without its environment"
    assert len(holders()) == 1, "both parts are of one GPU"
    typed("runai delete half quarter -p team-a")
    until(lambda: not holders(), "it is given back")


RANGE = {"limits": [{"type": "Container", "default": {"memory": "256Mi", "cpu": "800m"}}]}


def test_cores_and_memory_of_a_container_change_without_a_restart(cluster, typed):
    """A limit set by the namespace changes with the request; the container's control group has it."""
    with suppress(Answered):  # another test may have had it
        cluster.add_namespace("runai-team-a")
    name = "/api/v1/namespaces/runai-team-a/limitranges"
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": RANGE}
    cluster.request("POST", name, body)

    def groups():
        script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.shares"
        return [int(line) for line in typed(f"runai exec sized -p team-a -- sh -c '{script}'").split()]

    def why():
        return typed("pliant why sized -p team-a")

    try:
        stays = 'trap "exit 0" TERM; while :; do sleep 0.2; done'
        words = "-i localhost/job:1 --cpu 0.1 --memory 64Mi -p team-a"
        typed(f"runai submit sized {words} --command -- sh -c '{stays}'")
        until(lambda: phase(typed, "sized") == "Running", "it runs")
        until(lambda: groups() == [256 * 2**20, 102], "its group says what it began with")
        typed("pliant resize sized -p team-a --cpu 0.2 --memory 128Mi")
        until(lambda: groups() == [320 * 2**20, 204], "its group says what it has now")
        until(
            lambda: "has 0.2 core and 128Mi of memory now" in typed("runai describe job sized -p team-a"),
            "it is told",
        )
        (pod,) = pods(cluster)
        (main,) = pod["status"]["containerStatuses"]
        assert main["restartCount"] == 0
    finally:
        cluster.request("DELETE", f"{name}/limits")


REFUSED = (
    ({"gpu-fraction": "0.5", "gpu-memory": "2000"}, {}, "contradict each other"),
    ({"gpu-fraction": "0.5"}, {"limits": {"nvidia.com/gpu": "1"}}, "asks for nvidia.com/gpu and"),
    ({"gpu-memory": "some"}, {}, "MiB or an amount"),
)


@pytest.mark.parametrize("typed", ["--tls"], indirect=True)
def test_pods_that_others_make_get_a_part_of_a_gpu(cluster, typed, stage):
    """Pliant's webhook gives them the library, and refuses contradictory requests."""

    def make(name, notes, resources):
        metadata = {"name": name, "annotations": notes}
        asked = {"requests": {"cpu": "100m"}, **resources}
        container = {"name": "train", "image": "localhost/job:1", "resources": asked}
        container["command"] = ["sh", "-c", f'trap "exit 0" TERM; {probes}; while :; do sleep 0.2; done']
        spec = {"schedulerName": "pliant", "restartPolicy": "Never", "containers": [container]}
        spec["terminationGracePeriodSeconds"] = 1
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        cluster.request("POST", PODS, body)

    def shown(name):
        try:
            lines = cluster.kubectl("logs", "--namespace", "runai-team-a", name).splitlines()
        except subprocess.CalledProcessError:
            return []  # its container has not begun
        words = [line.split() for line in lines]
        return [int(it[2]) for it in words if it[0] == "total" or it[0].startswith("fill")]

    url = json.loads((stage.state / "server.json").read_text())["url"]
    ca = next(stage.state.rglob("trusted.pem"))
    configuration = typed(f"pliant cluster webhook --url {url} --ca {ca}")
    (stage.folder / "webhook.yaml").write_text(configuration)
    cluster.kubectl("apply", "-f", str(stage.folder / "webhook.yaml"))
    with suppress(Answered):  # another test may have had it
        cluster.add_namespace("runai-team-a")
    probes = f"PLIANT_SIM_CARDS=/cards/$NVIDIA_VISIBLE_DEVICES {PROBE}"
    try:
        for notes, resources, said in REFUSED:
            with pytest.raises(Answered, match=said):
                make("refused", notes, resources)
        make("half", {"gpu-fraction": "0.5"}, {})
        make("memory", {"gpu-memory": "4096"}, {})
        for name, size in (("half", 8 * GIB), ("memory", 4 * GIB)):
            until(lambda name=name: len(shown(name)) == 2, f"the probe of {name} is done")
            assert shown(name) == [size, size // STEP * STEP]
        (holder,) = cluster.request("GET", "/api/v1/namespaces/default/pods")["items"]
        assert holder["metadata"]["annotations"]["pliant/holds"].startswith(NAME)
        items = {item["name"]: item for item in json.loads(typed("runai list -A -o json"))}
        assert {name: item["phase"] for name, item in items.items()} == dict.fromkeys(
            ("half", "memory"), "Running"
        )
    finally:
        cluster.kubectl("delete", "-f", str(stage.folder / "webhook.yaml"))
        cluster.kubectl(
            "delete", "pod", "--namespace", "runai-team-a", "half", "memory", "--ignore-not-found"
        )
    until(lambda: not json.loads(typed("runai list -A -o json")), "Pliant has nothing of them any more")


WAITS = "go() { until [ -e /tmp/$1 ]; do sleep 0.1; done; echo; }; (go first; go second; go third)"

ENDS = 'trap "exit 0" TERM;'
"""A container's first process ignores unhandled signals: it would be killed after 30 s."""
SUBMIT = "runai training standard submit -i localhost/job:1"
OPS = "soname init ctx total ready total fill:alloc:64M ready total free fill:alloc:64M ready"


def test_memory_is_lent_to_a_running_program_and_taken_back(cluster, typed):
    """One process sees its limit rise and fall; a new pod starts once that process has given memory back."""

    def went_on(name, ops, numbers):
        typed(f"runai exec lender -p team-a -- sh -c ': > /tmp/{name}'")
        until(lambda: shown().count("ready") == numbers, f"it has done {ops}")
        return [int(line.split()[2]) for line in shown().splitlines() if line.split()[0] in ops][-len(ops) :]

    def shown():
        return typed("runai logs lender -p team-a")

    def limit():
        return re.findall(r"limit=(\d+)", typed("runai exec lender -p team-a -- cat /etc/pliant/gpu.conf"))

    rest = "--cpu-core-request 0.1 -p team-a"
    probe = f"PLIANT_SIM_CARDS=/cards/$NVIDIA_VISIBLE_DEVICES /bin/probe {OPS}"
    part = "--gpu-portion-request 0.25 --gpu-portion-limit 0.75"
    typed(f"{SUBMIT} lender {part} {rest} -c -- sh -c '{ENDS} {WAITS} | {probe} & wait $!'")
    until(lambda: shown().count("ready") == 1, "it runs")
    until(lambda: limit() == [str(12 * GIB)], "its file says that more was lent to it")
    assert went_on("first", ("total", "fill"), 2) == [12 * GIB, 12 * GIB], "without a restart"
    stays = 'trap "exit 0" TERM; while :; do sleep 0.2; done'
    for name in ("needy", "other"):  # one of them shares its GPU
        typed(f"{SUBMIT} {name} --gpu-portion-request 0.5 {rest} -c -- sh -c '{stays}'")
    until(lambda: limit() == [str(8 * GIB)], "its file says that it has less")
    assert {phase(typed, name) for name in ("needy", "other")} != {"Running"}, "what it uses is not free yet"
    assert went_on("second", ("total", "fill"), 3) == [8 * GIB, 8 * GIB]
    until(lambda: phase(typed, "needy") == phase(typed, "other") == "Running", "it has given back")
    assert phase(typed, "lender") == "Running"


ECHO = "read size; busybox head -c $size | busybox tr a-z A-Z"
"""A program to which every client can connect: it returns so many bytes in capitals, and ends."""


FORWARDING = r"Forwarding from 127.0.0.1:(\d+) -> (\d+)\n"


def talk(port, said):
    """Everything that the program answers, once it is reached, until it closes."""

    def answer():
        try:
            with socket.create_connection(("127.0.0.1", port), 30) as way:
                way.sendall(said)
                return b"".join(iter(partial(way.recv, 65536), b""))
        except OSError:
            return b""  # not yet

    return until(answer, f"port {port} answers")


def test_a_port_of_a_job_is_forwarded_through_the_cluster(cluster, typed, stage):
    """Only the kubelet reaches the pod's address."""
    job = "-i localhost/job:1 -g 1 --cpu 0.1 -p team-a"
    serves = f"{ENDS} busybox nc -ll -p 8888 -e sh -c {shlex.quote(ECHO)} & wait $!"
    words = shlex.join(["sh", "-c", serves])
    typed(f"runai submit serves {job} --command -- {words}")
    until(lambda: phase(typed, "serves") == "Running", "it runs")
    told = stage.folder / "told"
    with told.open("wb") as file:
        words = ["pliant", "port-forward", "serves", "-p", "team-a", "--port", ":8888", "--port", ":8889"]
        forward = subprocess.Popen(words, env=stage.env, cwd=stage.where, stdout=file, stderr=file)
    try:
        until(lambda: len(re.findall(FORWARDING, told.read_text())) == 2, "both ports are told")
        ports = {int(there): int(here) for here, there in re.findall(FORWARDING, told.read_text())}
        much = b"abcdefg\n" * 40_000  # more than one message
        assert talk(ports[8888], b"%d\n" % len(much) + much) == much.upper()
        assert talk(ports[8888], b"5\nagain") == b"AGAIN", "one connection after the other"
        with socket.create_connection(("127.0.0.1", ports[8889]), 30) as way:
            assert way.recv(10) == b""
        until(lambda: "No program answers on port 8889 of pod serves" in told.read_text(), "it says so")
        typed("runai delete serves -p team-a")
        assert forward.wait(60) == 0, told.read_text()
    finally:
        forward.kill()
        forward.wait()
    assert "serves has ended" in told.read_text()
    until(lambda: phase(typed, "serves") is None, "it is gone")
