"""Installs the chart with Helm and runs its servers: each is a process with the command, arguments, variables
and volumes of its pod, as a kubelet would give them, and with a token of the chart's service account.
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.house.gaps import gap
from tests.kubernetes.control_plane import ROOT, ControlPlane, helm
from tests.kubernetes.keeper import die_with_parent, free_ports

CHART = ROOT / "deploy" / "helm" / "pliant"
NAME = "pliant"  # of the release and of its namespace
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
BUSY = ("/tmp",)  # no volume here: the checkout and the database's socket may be below it
HOUR = 3600

Json = dict[str, Any]


def run(*words: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs Helm with these words: (exit code, all its output)."""
    done = subprocess.run(
        [helm(), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )
    return done.returncode, done.stdout + done.stderr


class Release:
    def __init__(self, plane: ControlPlane, folder: Path, database: str) -> None:
        """`database` is the address of PostgreSQL, with a host."""
        self.plane, self.folder, self.database = plane, folder, database
        folder.mkdir()
        self.values = folder / "values.json"
        values = {
            "image": {"repository": "registry.example/pliant"},
            "database": {"url": database},
            "lease": 1,
        }
        self.values.write_text(json.dumps(values))
        self.servers: dict[str, Server] = {}

    def helm(self, *words: str) -> str:
        """Runs Helm with the plane's kubeconfig and with folders of its own; returns its output."""
        places = {f"HELM_{name}_HOME": str(self.folder / name) for name in ("CACHE", "CONFIG", "DATA")}
        code, said = run(*words, f"--namespace={NAME}", f"--kubeconfig={self.plane.kubeconfig}", env=places)
        assert code == 0, said
        return said

    def install(self, *more: str) -> str:
        chart = (NAME, str(CHART), f"--values={self.values}")
        return self.helm("install", *chart, "--create-namespace", *more)

    def object(self, kind: str, name: str = NAME) -> Json:
        api = "apis/apps/v1" if kind in ("deployments", "daemonsets") else "api/v1"
        return self.plane.request("GET", f"/{api}/namespaces/{NAME}/{kind}/{name}")

    def secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.object("secrets", name)["data"].items()}

    def account(self, name: str = "") -> str:
        """A token of that account; by default of the servers' account."""
        spec = self.object("deployments")["spec"]["template"]["spec"]
        path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{name or spec['serviceAccountName']}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": HOUR},
        }
        return str(self.plane.request("POST", path, body)["status"]["token"])

    def begin(self, name: str) -> "Server":
        """Makes a pod of the deployment, as its controller would, unless it exists; starts its process."""
        if self.plane.get(f"/api/v1/namespaces/{NAME}/pods/{name}") is None:
            template = self.object("deployments")["spec"]["template"]
            metadata = {**template["metadata"], "name": name, "annotations": {}}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            self.plane.request("POST", f"/api/v1/namespaces/{NAME}/pods", body)
        self.servers[name] = Server(self, name, self.object("pods", name)["spec"])
        return self.servers[name]

    def leading(self) -> list[str]:
        """The pods that the service selects."""
        selector = self.object("services")["spec"]["selector"]
        words = "%2C".join(f"{key.replace('/', '%2F')}%3D{value}" for key, value in selector.items())
        pods = self.plane.request("GET", f"/api/v1/namespaces/{NAME}/pods?labelSelector={words}")["items"]
        return [pod["metadata"]["name"] for pod in pods]

    def env(self, server: "Server") -> dict[str, str]:
        """The environment in which commands reach that server: certificate and first token from secrets."""
        authority = self.folder / "ca.crt"
        authority.write_bytes(self.secret(f"{NAME}-tls")["ca.crt"])
        token = self.secret(f"{NAME}-auth")["token"].decode()
        return {
            "PLIANT_SERVER": f"https://localhost:{server.port}",
            "PLIANT_CA": str(authority),
            "PLIANT_TOKEN": token,
        }

    def empty_database(self) -> None:
        """Empties the database, as if it were a new one."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            schema = connection.execute("SELECT current_schema()").fetchone()[0]
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
            connection.execute(f"CREATE SCHEMA {schema}")

    def end(self) -> None:
        for server in self.servers.values():
            server.end()


class Server:
    """The processes of one pod: runs its init containers to their end, then its container."""

    def __init__(self, release: Release, name: str, spec: Json) -> None:
        if os.geteuid() != 0:
            gap("no kubelet", "run the tests as root")
        self.release, self.name, self.spec = release, name, spec
        (self.port,) = free_ports(1)  # pods have addresses of their own; here they share one
        self.folder = release.folder / name
        self.log = self.folder / "log"
        self._volumes = {each["name"]: self._volume(each) for each in spec["volumes"]}
        for container in spec["initContainers"]:
            self._start(container).wait(60)
        (container,) = spec["containers"]
        self.process = self._start(container)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def _volume(self, volume: Json) -> Path:
        place = self.folder / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            for key, value in self.release.secret(volume["secret"]["secretName"]).items():
                (place / key).write_bytes(value)
        else:
            assert volume == {"name": volume["name"], "emptyDir": {}}
            place.chmod(0o2777)  # the mode that a kubelet sets
        return place

    def _start(self, container: Json) -> subprocess.Popen[bytes]:
        """Starts a container's process, which sees the machine with the volumes in their places. If the
        container asks for it, all else that is not below /tmp, /proc, /dev and /sys is read-only.
        """
        account = self.folder / "account"
        account.mkdir(exist_ok=True)
        (account / "token").write_text(self.release.account())
        (account / "namespace").write_text(NAME)
        (account / "ca.crt").write_bytes(
            (self.release.plane.folder / "certificates" / "apiserver.crt").read_bytes()
        )
        closed = container["securityContext"]["readOnlyRootFilesystem"]
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        mounts = {
            each["mountPath"]: each for each in container["volumeMounts"] if each["mountPath"] not in BUSY
        }
        script = ["set -e", "mount --make-rprivate /", f"mount -t tmpfs tmpfs {root}"]
        for entry in sorted(Path("/").iterdir()):
            inside = f"{root}{entry}"
            if entry.is_symlink():
                script.append(f"cp -a {entry} {inside}")
            elif entry.is_dir() and str(entry) not in ("/run", *mounts):
                script.append(f"mkdir {inside} && mount --rbind {entry} {inside}")
                if closed and str(entry) not in ("/tmp", "/proc", "/dev", "/sys"):
                    script.append(f"mount -o remount,bind,ro {inside}")
        script += [f"mkdir -p {root}{ACCOUNT} && mount --bind {account} {root}{ACCOUNT}"]
        for path, mount in mounts.items():
            script.append(
                f"mkdir -p {root}{path} && mount --bind"
                f" {self._volumes[mount['name']] / mount.get('subPath', '')} {root}{path}"
            )
            if mount.get("readOnly"):
                script.append(f"mount -o remount,bind,ro {root}{path}")
        if closed:
            script.append(f"mount -o remount,ro {root}")
        script.append('exec chroot "$ROOT" "$@"')
        words = [*container["command"], *(self._own(word) for word in container.get("args", ()))]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", "\n".join(script), "sh", *words],
                env={**self._variables(container.get("env", ())), "ROOT": str(root)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it only makes a system call
            )

    def _own(self, word: str) -> str:
        return re.sub(r"^--port=8443$", f"--port={self.port}", word)

    def _variables(self, told: Sequence[Json]) -> dict[str, str]:
        """The variables that a cluster gives every container, the manifest's, and this Python's path."""
        host, _, port = self.release.plane.url.removeprefix("https://").partition(":")
        found = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        found["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        fields = {"metadata.name": self.name, "metadata.namespace": NAME}
        for each in told:
            if "value" in each:
                found[each["name"]] = each["value"]
            elif "fieldRef" in each["valueFrom"]:
                found[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                ref = each["valueFrom"]["secretKeyRef"]
                found[each["name"]] = self.release.secret(ref["name"])[ref["key"]].decode()
        return found
