"""The control plane that tests share: its programs, and a client that uses no code of Pliant."""

import fcntl
import hashlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.house.gaps import gap
from tests.house.waiting import until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SETUP = "`tests/kubernetes/setup` (8 minutes)"
MADE_FROM = ("setup", "go.mod", "go.sum", "plugin/main.go")
SECONDS = 60.0
LINES = 60  # of a log, shown with an error
Json = dict[str, Any]


def pieces() -> Path:
    """The folder with kube-apiserver, etcd, kwok and kubectl; a gap if it does not exist."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    made = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in MADE_FROM))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given) if given else cache / "pliant" / "kubernetes" / made.hexdigest()[:16]
    if any(not (folder / name).exists() for name in ("kube-apiserver", "etcd", "kwok", "kubectl")):
        gap("no Kubernetes", f"run {SETUP}")
    return folder


def helm() -> str:
    """The helm program; a gap if the folder of pieces has none."""
    found = pieces() / "helm"
    if not found.exists():
        gap("no Helm", f"run {SETUP}")
    return str(found)


class Answered(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ControlPlane:
    """Speaks HTTP with the API server, as an administrator."""

    def __init__(self, url: str, token: str, folder: str, pieces: str, etcd: str) -> None:
        self.url, self.token, self.folder, self.pieces = url, token, Path(folder), Path(pieces)
        self.etcd = etcd  # its URL
        self.kubeconfig = self.folder / "kubeconfig"
        self._context = ssl.create_default_context(cafile=self.folder / "certificates" / "apiserver.crt")

    def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """`path` starts with /api or /apis. Raises Answered."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection = http.client.HTTPSConnection(
            self.url.removeprefix("https://"), context=self._context, timeout=SECONDS
        )
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            said = response.read()
        except ConnectionError as error:
            error.add_note(self.last_words())
            raise
        finally:
            connection.close()
        told = "json" in response.getheader("Content-Type", "")  # answers to unknown paths are plain text
        answer: Json = json.loads(said) if told else {"message": said.decode()}
        if response.status >= 400:
            raise Answered(response.status, answer.get("message", ""))
        return answer

    def ended(self) -> bool:
        """True if the API server no longer accepts connections."""
        try:
            self.get("/version")
        except ConnectionError:
            return True
        return False

    def last_words(self) -> str:
        """The last output of its keeper and its API server."""
        logs = (self.folder.parents[1] / "keeper.log", self.folder / "kube-apiserver.log")
        return "\n".join(
            line for log in logs if log.exists() for line in log.read_text().splitlines()[-LINES:]
        )

    def get(self, path: str) -> Json | None:
        """The object; None if it does not exist."""
        try:
            return self.request("GET", path)
        except Answered as error:
            if error.status == 404:
                return None
            raise

    def kubectl(self, *words: str) -> str:
        command = [str(self.pieces / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout

    def add_node(self, name: str, *, gpus: int = 0, labels: Json | None = None, **status: str) -> Json:
        """Adds a node that KWOK simulates: 8 cores, 64 GiB, 110 pods, unless `status` says otherwise."""
        can = {"cpu": "8", "memory": "64Gi", "pods": "110", **status}
        if gpus:
            can["nvidia.com/gpu"] = str(gpus)
        metadata = {"name": name, "labels": labels or {}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        node["status"] = {"capacity": can, "allocatable": can}
        self.request("POST", "/api/v1/nodes", node)
        return until(lambda: self._ready(name), f"node {name} is ready")

    def _ready(self, name: str) -> Json | None:
        node = self.request("GET", f"/api/v1/nodes/{name}")
        conditions = node["status"].get("conditions", ())
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return node if ready else None

    def add_namespace(self, name: str) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.request("POST", "/api/v1/namespaces", namespace)


@contextmanager
def shared(folder: Path, *words: str) -> Iterator[ControlPlane]:
    """The control plane of that folder, shared by all processes that ask for it. The first one starts it,
    with its words for the keeper.
    """
    binaries = pieces()
    folder.mkdir(exist_ok=True)
    told = folder / "plane.json"
    with (folder / "users").open("ab") as users:
        with (folder / "starting").open("ab") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)  # waits for a plane that is ending
            if not told.exists():
                _start(folder, binaries, told, words)
        yield ControlPlane(**json.loads(told.read_text()))


def _start(folder: Path, binaries: Path, told: Path, words: Sequence[str]) -> None:
    """Starts its keeper, which outlives this process while others use it, and waits until it is ready."""
    own, log = tempfile.mkdtemp(dir=folder), folder / "keeper.log"
    command = [sys.executable, "-m", "tests.kubernetes.keeper", str(folder), own, str(binaries), *words]
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    keeper = os.posix_spawn(sys.executable, command, environment, file_actions=files, setsid=True)
    while not told.exists():
        if os.waitpid(keeper, os.WNOHANG)[0]:
            raise OSError(f"no control plane: {log.read_text()}")
        time.sleep(0.05)
