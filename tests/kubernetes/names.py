"""The names of a test node's pods: `python -m tests.kubernetes.names NETWORK ADDRESS PLANE`.

Answers at port 53 of ADDRESS, in the network namespace of that file, as a cluster's DNS does: a pod with a
hostname and a subdomain has a name while a headless service of the subdomain's name selects it. It reads pods
and services from the API server that the file PLANE describes.
"""

import ctypes
import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.keeper import die_with_parent

CLONE_NEWNET = 0x40000000
SUFFIX = ["svc", "cluster", "local"]
A = 1
FOUND, NONE = 0x8580, 0x8583  # an answer, recursion available; NXDOMAIN


def listening(network: str, address: str) -> socket.socket:
    """A UDP socket at port 53 in that network: a socket stays in the network in which it was made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(network) as other:
        assert libc.setns(other.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.bind((address, 53))
        assert libc.setns(own.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    return found


def addresses(plane: ControlPlane, name: list[str]) -> list[str] | None:
    """The addresses of that name; None if it does not exist."""
    host, rest = name[0], name[1:]
    if rest[2:] != SUFFIX:
        return None
    service = plane.get(f"/api/v1/namespaces/{rest[1]}/services/{rest[0]}")
    if service is None or service["spec"].get("clusterIP") != "None":
        return None
    early = service["spec"].get("publishNotReadyAddresses", False)
    pods = plane.request("GET", f"/api/v1/namespaces/{rest[1]}/pods")["items"]
    found = [pod for pod in pods if selected(pod, service["spec"].get("selector", {}), host, rest[0])]
    return [pod["status"]["podIP"] for pod in found if early or ready(pod)] or None


def selected(pod: dict, selector: dict[str, str], host: str, service: str) -> bool:
    labels, spec = pod["metadata"].get("labels", {}), pod["spec"]
    return (
        bool(selector)
        and selector.items() <= labels.items()
        and (spec.get("hostname"), spec.get("subdomain")) == (host, service)
        and "podIP" in pod["status"]
        and pod["status"]["phase"] in ("Pending", "Running")
    )


def ready(pod: dict) -> bool:
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod["status"]["conditions"])


def labels(question: bytes) -> Iterator[str]:
    at = 0
    while length := question[at]:
        yield question[at + 1 : at + 1 + length].decode().lower()
        at += length + 1


def answer(plane: ControlPlane, said: bytes) -> bytes:
    name = list(labels(said[12:]))
    end = 12 + sum(len(each) + 1 for each in name) + 5
    (kind,) = struct.unpack("!H", said[end - 4 : end - 2])
    found = addresses(plane, name)
    told = [socket.inet_aton(each) for each in found or ()] if kind == A else []
    head = struct.pack("!2s5H", said[:2], NONE if found is None else FOUND, 1, len(told), 0, 0)
    rows = [struct.pack("!HHHIH", 0xC00C, A, 1, 1, 4) + each for each in told]
    return head + said[12:end] + b"".join(rows)


def main() -> None:
    die_with_parent()
    network, address, told = sys.argv[1:]
    plane = ControlPlane(**json.loads(Path(told).read_text()))
    serving = listening(network, address)
    while True:
        said, asker = serving.recvfrom(512)
        serving.sendto(answer(plane, said), asker)


if __name__ == "__main__":
    main()
