"""Ports: options of the submits, and connections that get through."""

import socket
import threading
from contextlib import contextmanager

import pytest

from pliant.cli.streams import forward
from tests.cli.fake import Answer, Chunks
from tests.cli.items import pending, workload

FIRST = [
    ("-s nodeport --port 8888", {"ports": [{"container": 8888, "serviceType": "NodePort"}]}),
    (
        "--service-type loadbalancer --port 8080:80 --port 81",
        {
            "ports": [
                {"container": 80, "serviceType": "LoadBalancer", "external": 8080},
                {"container": 81, "serviceType": "LoadBalancer"},
            ]
        },
    ),
    ("-s ingress --port 8080", {"exposedUrls": [{"container": 8080}]}),
]
SECOND = [
    (
        "--port service-type=NodePort,container=80,external=8080",
        {"ports": [{"container": 80, "serviceType": "NodePort", "external": 8080}]},
    ),
    ("--port 80", {"ports": [{"container": 80, "serviceType": "NodePort"}]}),
    ("--external-url container=8888", {"exposedUrls": [{"container": 8888}]}),
    ("--external-url container=8888,url=http://x", {"exposedUrls": [{"container": 8888, "url": "http://x"}]}),
]


@pytest.mark.parametrize(("options", "expected"), FIRST)
def test_the_first_edition(options, expected, run, fake):
    assert run(f"pliant submit n -i ubuntu -p team-a {options}").code == 0
    assert fake.last.body["spec"] == {"image": "ubuntu", **expected}


@pytest.mark.parametrize(("options", "expected"), SECOND)
def test_the_second_edition(options, expected, run, fake):
    assert run(f"pliant workspace submit n -i ubuntu -p team-a {options}").code == 0
    assert fake.last.body["spec"] == {"image": "ubuntu", **expected}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "submit n --inference --service-type nodeport --port 8888 -g 1",
            {"compute": {"gpuDevicesRequest": 1}, "ports": [{"container": 8888, "serviceType": "NodePort"}]},
        ),
        (
            "submit n --inference --replicas 4 -g 0.25",
            {
                "compute": {"gpuRequestType": "portion", "gpuPortionRequest": 0.25, "gpuDevicesRequest": 1},
                "autoscaling": {"minReplicas": 4, "maxReplicas": 4},
            },
        ),
        (
            "inference submit n --serving-port container=8000,protocol=http --min-replicas 0"
            " --max-replicas 2",
            {
                "autoscaling": {"minReplicas": 0, "maxReplicas": 2},
                "servingPort": {"container": 8000, "protocol": "http"},
            },
        ),
    ],
)
def test_inferences(words, expected, run, fake):
    assert run(f"pliant {words} -i ubuntu -p team-a").code == 0
    assert fake.last.path == "/api/v1/workloads/inferences"
    assert fake.last.body["spec"] == {"image": "ubuntu", **expected}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("submit n -s nodeport", "--service-type nodeport needs --port"),
        ("submit n --port 80", "--port needs --service-type"),
        ("submit n -s portforward --port x", "--port x: not a port"),
        ("submit n -s portforward --port 80:70000", "not a port"),
        ("submit n -s portforward --port 80 --attach", "both keep the terminal"),
        ("workspace submit n --port contaner=80", "contaner is not one of container, service-type, external"),
        ("workspace submit n --external-url url=x", "container is a port"),
        ("submit n --replicas 2", "--replicas needs --inference"),
        ("submit n --inference --interactive", "--inference and --interactive exclude"),
        ("inference submit n --min-replicas 3 --max-replicas 2", "--min-replicas 3 is more than"),
    ],
)
def test_what_is_refused_before_anything_is_sent(words, said, run, fake):
    result = run(f"pliant -p team-a {words} -i ubuntu")
    assert (result.code, said in result.err, fake.requests) == (2, True, []), result.err


@contextmanager
def echoing():
    """The port of a program that sends its input back in capitals."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    while data := peer.recv(1000):
                        peer.sendall(data.upper())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def forwarding(run, words):
    """Forwards while the block runs; afterwards the list has the printed output."""
    results = []
    thread = threading.Thread(target=lambda: results.append(run(words)), daemon=True)
    thread.start()
    yield results
    thread.join(60)
    assert not thread.is_alive()


def ask(port):
    """A whole conversation over the forwarded port, which may not be open yet."""
    for _ in range(12_000):
        try:
            # From another address: else connecting to an unused port could connect the socket to itself.
            with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) as client:
                client.sendall(b"hello")
                client.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: client.recv(100), b""))
        except ConnectionRefusedError:
            threading.Event().wait(0.005)
    raise AssertionError(f"nothing listens at {port}")


@pytest.mark.parametrize(
    "words",
    [
        "workspace port-forward n1 --port {}:{}",
        "port-forward n1 --port {}:{}",
        "submit n1 -i ubuntu -s portforward --port {}:{}",
    ],
)
def test_connections_get_through_until_the_workload_ends(words, run, fake, monkeypatch):
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.01)
    item = workload("n1", type="Workspace" if "workspace" in words else "Training")
    if "submit" in words:
        answer = {"name": "n1", "workloadId": "id-n1"}
        fake.answers["POST", "/api/v1/workloads/trainings"] = Answer(202, answer)
    fake.workloads = [item]
    with (
        echoing() as target,
        forwarding(run, f"pliant -p team-a {words.format(local := free(), target)}") as results,
    ):
        assert ask(local) == b"HELLO"
        assert ask(local) == b"HELLO"
        item["phase"] = "Completed"
    result = results[0]
    assert (result.code, result.err) == (0, "n1 has ended.\n")
    assert result.out.endswith(
        f"Forwarding from 127.0.0.1:{local} -> {target}\n"
        f"Open access point(s) to service from localhost:{local}\n"
    )


def test_a_task_with_an_address_of_its_own_is_reached_through_the_server(run, fake, monkeypatch):
    """The named port is used, also for the second replica, and also where it equals the local port."""
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.01)
    item = workload("n1", type="Inference")
    fake.workloads, fake.tunnels = [item], True
    fake.chunks["/api/v1/exec/s1/output"] = Chunks([b"HE", b"LLO"])
    words = f"pliant inference port-forward n1 -p team-a --pod n1-replica-1 --port {(local := free())}"
    with forwarding(run, words) as results:
        assert ask(local) == b"HELLO"
        assert ask(local) == b"HELLO"
        item["phase"] = "Stopped"
    assert results[0].code == 0, results[0].err
    opened = fake.sent("POST", "/api/v1/workloads/id-n1/exec/port")
    assert opened == [{"port": local, "pod": "n1-replica-1"}] * 2


def test_a_replica_of_its_own(run, fake, monkeypatch):
    """On one machine the second replica listens on the next port."""
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.01)
    item = workload("n1", type="Inference")
    fake.workloads = [item]
    with echoing() as target:
        ports = f"{(local := free())}:{target - 1}"
        words = f"pliant inference port-forward n1 -p team-a --pod n1-replica-1 --port {ports}"
        with forwarding(run, words):
            assert ask(local) == b"HELLO"
            item["phase"] = "Stopped"


def test_the_same_port_on_the_same_machine_needs_no_forwarding(run, fake, monkeypatch):
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.01)
    item = workload("n1")
    fake.workloads = [item]
    with (
        echoing() as target,
        forwarding(run, f"pliant training port-forward n1 -p team-a --port {target}") as results,
    ):
        assert ask(target) == b"HELLO"
        item["desiredPhase"] = "Deleted"
    assert "n1 runs on this machine" in results[0].out


def test_a_port_that_is_taken(run, fake):
    fake.workloads = [workload("n1")]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run(f"pliant training port-forward n1 -p team-a --port {port}:1")
    assert result.code == 125
    assert f"Cannot listen on 127.0.0.1:{port}" in result.err


def test_what_does_not_run(run, fake):
    fake.workloads = [pending("n1")]
    result = run("pliant training port-forward n1 -p team-a --port 80 --pod-running-timeout 1")
    assert result.code == 7
    assert result.err == (
        "Waiting for pod to start running...\nn1 is not running yet: 1 GPU is free, 2 are needed\n"
    )
    fake.workloads = [workload("n2", phase="Completed", status="Succeeded", runningPods=0)]
    result = run("pliant training port-forward n2 -p team-a --port 80")
    assert "n2 has ended: its status is Succeeded" in result.err
