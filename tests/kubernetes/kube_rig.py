"""A Kubernetes engine on a node of its own, and the truth about its pods from the API server."""

import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CalledProcessError

from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.apiserver.names import pod_name
from pliant.engines.kube.engine import KubeEngine
from pliant.engines.kube.pods.session import CANNOT_RUN
from pliant.model.machine import Gpu, Node, Placement, Share
from pliant.model.workload import Launch
from tests.engines.contract import GIB, GRACE, Rig
from tests.kubernetes.control_plane import Answered, ControlPlane

SECONDS = 60.0


class KubeRig(Rig):
    execs = True
    resizes = False
    sharing = None  # see engines.kube.parts

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__()
        self.plane, self.folder = plane, folder
        self.kubeconfig = plane.kubeconfig
        self.name = f"t{uuid.uuid4().hex[:10]}"
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "16384", "rig": self.name}
        plane.add_node(self.name, gpus=4, labels=labels)
        gpus = tuple(Gpu(f"{self.name}/gpu-{index}", index, 16 * GIB, "NVIDIA-H100") for index in range(4))
        told = plane.request("GET", f"/api/v1/nodes/{self.name}")["metadata"]["labels"]
        self.node = Node(
            self.name,
            gpus,
            8000,
            64 * GIB,
            tuple(sorted(told.items())),
            engine="kube",
            max_tasks=110,
        )
        self.engines: list[KubeEngine] = []

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/runai-{self.name}/pods"

    def place(self, *indexes):
        shares = tuple(Share(self.node.gpus[index].uuid, 1000, 16 * GIB) for index in indexes)
        return Placement(self.name, shares, 1000, GIB)

    def make(self):
        connection = Connection(self.kubeconfig)
        engine = KubeEngine(
            connection,
            self.name,
            nodes={"rig": self.name},
            project_name=lambda project: self.name,
            scheduler=self.name,
            sharing=self.sharing,
        )
        self.engines.append(engine)
        return engine

    def clean(self):
        for engine in self.engines:
            engine.close()
        for pod in self.listed():
            path = f"{self.pods}/{pod['metadata']['name']}"
            with suppress(Answered):
                self.plane.request("PATCH", path, {"metadata": {"finalizers": None}})
                self.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
        self.plane.request("DELETE", f"/api/v1/nodes/{self.name}")

    def start(self, attempt, launch, placement=None, variables=None):
        """Tells KWOK what a pod of that name prints, and the environment of commands inside it."""
        namespace, name = f"runai-{self.name}", pod_name(self.name, attempt, f"name-{attempt.workload}")
        with suppress(Answered):
            self.plane.add_namespace(namespace)
        file = self.folder / name
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
        lines = (launch.command or ("",))[0].splitlines()
        file.write_text("".join(f"{stamp} stdout F {line}\n" for line in lines))
        env = [{"name": "PLIANT_ATTEMPT", "value": str(attempt)}]
        self._kwok("Exec", "execs", name, {"execs": [{"local": {"envs": env}}]})
        self._kwok("Logs", "logs", name, {"logs": [{"logsFile": str(file), "follow": True}]})
        return super().start(attempt, launch, placement, variables)

    def _kwok(self, kind, plural, name, spec):
        namespace = f"runai-{self.name}"
        body = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self.plane.request("POST", f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{namespace}/{plural}", body)

    def run(self, attempt, launch, placement=None):
        order = super().run(attempt, launch, placement)
        pod = self.pod(attempt)["metadata"]
        if launch.command[:1] not in ((), ("",)):
            self.until(lambda: self._answers("logs", pod["name"]), "KWOK knows what it prints")
        return order

    def executed(self, attempt, output, code):
        """KWOK forwards a command's output, but reports every exit code as an error of its own."""
        first, _, rest = output.partition("\n")
        return first == str(attempt) and "exit status 4" in rest and code == CANNOT_RUN

    def _answers(self, *words):
        try:
            self.plane.kubectl("--namespace", f"runai-{self.name}", *words)
        except CalledProcessError:
            return False
        return True

    # ---- how they behave: tests/kubernetes/stages.yaml ----

    def forever(self, *, output=""):
        return Launch("forever", (output,), grace=GRACE)

    def exits(self, code, *, output=""):
        return Launch("exits", (output, str(code)), grace=GRACE)

    def stubborn(self):
        return Launch("stubborn", grace=GRACE)

    def broken(self):
        return Launch("broken", grace=GRACE)

    # ---- the truth ----

    def listed(self):
        return self.plane.request("GET", self.pods)["items"]

    def pod(self, attempt):
        mine = (
            pod for pod in self.listed() if pod["metadata"]["annotations"]["pliant/attempt"] == str(attempt)
        )
        return next(mine, None)

    def alive(self, attempt):
        pod = self.pod(attempt)
        if pod is None or pod["status"]["phase"] != "Running":
            return False
        return pod["metadata"].get("deletionGracePeriodSeconds") != 0

    def begun(self, attempt):
        """At most 1: a second pod would have the same name, and the first is kept by its finalizer."""
        pod = self.pod(attempt)
        statuses = pod["status"].get("containerStatuses", ()) if pod is not None else ()
        return int(
            any(
                "startedAt" in each["state"].get("running", each["state"].get("terminated", {}))
                for each in statuses
            )
        )

    def finish(self, attempt):
        pod = self.pod(attempt)
        code = int(pod["spec"]["containers"][0]["command"][1])
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": now,
            "finishedAt": now,
        }
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "exits",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": ended},
                }
            ],
        }
        self.plane.request("PATCH", f"{self.pods}/{pod['metadata']['name']}/status", {"status": status})

    def told(self, attempt, status):
        """Sets its status as its node would: KWOK changes nothing once it runs."""
        self.plane.request(
            "PATCH", f"{self.pods}/{self.pod(attempt)['metadata']['name']}/status", {"status": status}
        )

    def asked(self, attempt):
        return self.pod(attempt)["spec"]["containers"][0]["resources"]["requests"]

    def grant(self, attempt):
        before = {"cpu": "1", "memory": str(GIB), "nvidia.com/gpu": "1"}
        self.until(lambda: self.asked(attempt) != before, "the pod asks for something else")
        (main,) = self.pod(attempt)["status"]["containerStatuses"]
        resources = {"requests": self.asked(attempt)}
        self.told(attempt, {"containerStatuses": [{**main, "resources": resources}], "conditions": []})

    def destroy(self, attempt):
        """Deletes it as `kubectl delete --force` does."""
        self.plane.request(
            "DELETE", f"{self.pods}/{self.pod(attempt)['metadata']['name']}?gracePeriodSeconds=0"
        )

    def until(self, condition, what):
        began = time.monotonic()
        while not condition():
            waited = time.monotonic() - began
            assert waited < SECONDS, f"not within {SECONDS:.0f} s: {what}; facts: {self.facts}"
            time.sleep(min(0.5, max(0.02, waited / 10)))
