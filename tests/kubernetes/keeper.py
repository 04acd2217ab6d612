"""Keeps etcd, kube-apiserver and KWOK alive for as long as any process holds the lock on the file `users`.

`python -m tests.kubernetes.keeper FOLDER OWN PIECES` writes FOLDER/plane.json once the API server is ready;
its other files are in OWN. Each user holds a shared lock on FOLDER/users; when the last one is gone, even
killed, the keeper ends everything.

More words: `podgroups` enables Kubernetes' own, and with them a second kind Workload; `older` starts
an API server of Kubernetes 1.33; `audit` writes all requests to OWN/audit.log; `controllers` runs
CONTROLLERS, which other tests imitate by hand; `account=NAMESPACE:NAME:TOKEN` admits that service account.
"""

import ctypes
import fcntl
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

SECONDS = 120.0  # a start takes 5 s; more on a busy machine
HERE = Path(__file__).parent
PR_SET_PDEATHSIG = 1
GARBAGE = "400"
"""GOGC: percent of growth after which Go collects garbage. A start takes an eighth less processor time, and
100 MB more memory, than with 100."""

CONTROLLERS = (
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
)
"""Of kube-controller-manager; KWOK's nodes need no controller that taints nodes or makes service accounts."""


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(number: int) -> list[int]:
    """Ports that are free now. Another process may take them: the caller then starts again with others."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Plane:
    """One try to start the control plane."""

    def __init__(self, folder: Path, pieces: Path, words: Sequence[str]) -> None:
        self.folder, self.pieces, self.words = folder, pieces, words
        self.processes: list[subprocess.Popen[bytes]] = []
        self.started: dict[str, tuple[subprocess.Popen[bytes], tuple[str, ...]]] = {}
        self.token = secrets.token_hex(16)

    def start(self) -> None:
        etcd, peer, port, kwok = free_ports(4)
        self.url, self.kwok_url = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{kwok}"
        self.etcd_url, peer_url = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        folder = self.folder
        users = [f'{self.token},admin,admin,"system:masters"\n']
        for word in self.words:
            if word.startswith("account="):
                namespace, name, token = word.removeprefix("account=").split(":")
                who = f"system:serviceaccount:{namespace}:{name}"
                users.append(f'{token},{who},{who},"system:serviceaccounts"\n')
        (folder / "tokens.csv").write_text("".join(users))
        self.run(
            "etcd",
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer_url}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        key = folder / "service-accounts.key"
        key.write_bytes(
            rsa.generate_private_key(65537, 2048).private_bytes(
                Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
            )
        )
        self.run(
            "kube-apiserver",
            f"--etcd-servers={self.etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}/certificates",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=Hostname,InternalIP",
            *self.features(),
            # The controllers that make service accounts and untaint new nodes do not run.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            *self.audit(),
        )
        self.wait()
        self.write_kubeconfig()
        self.define("Logs", "logs")
        self.define("Exec", "execs")
        self.run(
            "kwok",
            f"--kubeconfig={folder}/kubeconfig",
            f"--config={HERE}/stages.yaml",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            "--node-ip=127.0.0.1",
            f"--node-port={kwok}",
            f"--server-address=127.0.0.1:{kwok}",
            "--enable-crds=Logs,Exec",  # the output of pods, and of commands inside them
            f"--tls-cert-file={folder}/certificates/apiserver.crt",  # clients do not check it
            f"--tls-private-key-file={folder}/certificates/apiserver.key",
        )
        if "controllers" in self.words:
            self.run(
                "kube-controller-manager",
                f"--kubeconfig={folder}/kubeconfig",
                f"--controllers={','.join(CONTROLLERS)}",
                "--leader-elect=false",
                "--secure-port=0",
            )

    def features(self) -> list[str]:
        # PyPI's etcd sends no progress of watches: clients that list by a watch would pause and try again.
        if "older" in self.words:
            return ["--emulated-version=1.33", "--feature-gates=WatchList=false"]
        groups = "true" if "podgroups" in self.words else "false"
        return [
            f"--feature-gates=WatchList=false,SizeBasedListCostEstimate=false,GenericWorkload={groups}",
            f"--runtime-config=scheduling.k8s.io/v1alpha2={groups}",  # 1.36 has them as alpha
        ]

    def audit(self) -> list[str]:
        if "audit" not in self.words:
            return []
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
        (self.folder / "audit.json").write_text(json.dumps({**policy, "omitStages": ["RequestReceived"]}))
        path = self.folder / "audit"
        return [f"--audit-policy-file={path}.json", f"--audit-log-path={path}.log"]

    def run(self, name: str, *words: str) -> None:
        command = [str(self.pieces / name), *words]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "KUBE_FEATURE_WatchListClient": "false", "GOGC": GARBAGE},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it only makes a system call
            )
        self.processes.append(process)
        self.started[name] = (process, words)

    def kill(self, name: str) -> None:
        process, _ = self.started[name]
        process.kill()
        process.wait()
        self.processes.remove(process)

    def restart(self, name: str) -> None:
        """Starts a killed program again with the same words."""
        self.run(name, *self.started[name][1])

    def wait(self) -> None:
        """Waits until the API server is ready. Raises OSError if a program ends or it takes too long."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            ended = [each.args for each in self.processes if each.poll() is not None]
            if ended:
                raise OSError(f"{ended[0][0]} ended")  # type: ignore[index]
            try:
                self.ask("/readyz")
                return
            except OSError:
                time.sleep(0.1)
        raise OSError("the API server is not ready")

    def ask(self, path: str, body: object = None) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        context = ssl.create_default_context(cafile=self.folder / "certificates" / "apiserver.crt")
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=30, context=context):
            return

    def define(self, kind: str, plural: str) -> None:
        """Defines a custom resource of KWOK."""
        group, loose = "kwok.x-k8s.io", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": loose},
            "subresources": {"status": {}},
        }
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": spec,
        }
        self.ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)

    def write_kubeconfig(self) -> None:
        cluster = {
            "server": self.url,
            "certificate-authority": str(self.folder / "certificates" / "apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))

    def tell(self, *_: object) -> None:
        """Handles SIGCHLD: prints which child has ended, and its status."""
        for name, (process, _words) in self.started.items():
            if process.poll() is not None:
                print(f"{name} ended with {process.returncode}", file=sys.stderr, flush=True)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def main(folder: Path, place: Path, pieces: Path, words: Sequence[str]) -> None:
    for number in range(5):
        own = place / f"try-{number}"
        own.mkdir()
        plane = Plane(own, pieces, words)
        try:
            plane.start()
            break
        except OSError as error:
            print(f"try {number}: {error}", file=sys.stderr, flush=True)
            plane.end()
    else:
        sys.exit(f"no control plane: the logs are in {place}")
    signal.signal(signal.SIGCHLD, plane.tell)
    told = folder / "plane.json"
    said = {"url": plane.url, "token": plane.token, "folder": str(own), "pieces": str(pieces)}
    told.with_suffix(".new").write_text(json.dumps({**said, "etcd": plane.etcd_url}))
    told.with_suffix(".new").rename(told)
    with (folder / "users").open("wb") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        told.unlink()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        plane.end()


if __name__ == "__main__":
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(*map(Path, sys.argv[1:4]), sys.argv[4:])
