"""Reads the truth while a page is played from /proc and the attempts' logs instead of from a table."""

import http.client
import math
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from examples.walkthrough import Stage
from pliant.client.client import Client
from pliant.client.errors import PliantError
from tests.house.waiting import until

QUICKSTART = "pliant.engines.local.images.quickstart"
_STEP = re.compile(r"^step=(\d+) loss=(\d+\.\d+)", re.M)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The truth at one state of a page: workload's name -> value."""

    items: dict[str, Any] = field(default_factory=dict)  # entries of the API's list
    workers: dict[str, list[str]] = field(default_factory=dict)  # the quickstart's: 1/2, 2/2
    events: dict[str, list[Any]] = field(default_factory=dict)  # history, oldest first
    pods: dict[str, list[Any]] = field(default_factory=dict)
    losses: dict[str, list[list[tuple[int, float]]]] = field(default_factory=dict)  # per attempt: step, loss

    def gpus(self, name: str) -> float:
        return float(self.items[name]["allocatedResources"]["gpu"])


def client(stage: Stage) -> Client:
    return Client.connect(state=str(stage.state))


def statuses(stage: Stage) -> dict[str, str]:
    """Workload's name -> status. The list's header has the words Running and Pending, too."""
    with client(stage) as api:
        return {item["name"]: item["status"] for item in api.workloads()}


def workers(stage: Stage) -> dict[str, list[str]]:
    """Workload id -> names of the quickstart's live worker processes."""
    mark = f"PLIANT_ATTEMPT_DIR={stage.state}/".encode()
    found: dict[str, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended while we looked
            if b"--worker" in words and any(word.startswith(mark) for word in variables):
                attempt = next(word for word in variables if word.startswith(b"PLIANT_ATTEMPT="))
                workload = attempt.partition(b"=")[2].decode().partition("/")[0]
                found.setdefault(workload, []).append(words[words.index(b"--worker") + 1].decode())
    return {workload: sorted(names) for workload, names in found.items()}


def losses(stage: Stage, workload: str) -> list[list[tuple[int, float]]]:
    """(step, loss) of each printed step, for each attempt in order."""
    folders = (stage.state / "attempts" / workload).glob("*/*/")
    logs = [folder / "log" for folder in sorted(folders, key=lambda folder: int(folder.name))]
    texts = [log.read_text(errors="replace") if log.exists() else "" for log in logs]
    return [[(int(step), float(loss)) for step, loss in _STEP.findall(text)] for text in texts]


def observe(stage: Stage) -> Snapshot:
    """Waits until every quickstart training has as many workers as GPUs and has done a step; then looks."""
    with client(stage) as api:
        snapshot = Snapshot()

        def settled() -> bool:
            living = workers(stage)
            for item in api.workloads():
                name, identity = item["name"], item["id"]
                snapshot.items[name] = item
                snapshot.workers[name] = living.get(identity, [])
                if any(image.endswith("/quickstart") for image in item["images"]):
                    number = math.ceil(snapshot.gpus(name))
                    wanted = [f"{rank}/{number}" for rank in range(1, number + 1)]
                    snapshot.losses[name] = losses(stage, identity)
                    trained = snapshot.losses[name] and snapshot.losses[name][-1]
                    if snapshot.workers[name] != wanted or (item["phase"] == "Running" and not trained):
                        return False
            return True

        until(settled, f"workers to equal the GPUs: {snapshot.workers}")
        for name, item in snapshot.items.items():
            snapshot.events[name] = list(api.events(item["id"]))
            snapshot.pods[name] = list(api.pods(item["id"]))
        return snapshot


_reference: dict[int, float] = {}


def reference(steps: int) -> dict[int, float]:
    """Step -> loss of an uninterrupted run of the same training, for at least so many steps."""
    if len(_reference) < steps:
        wanted = max(steps, 200)
        variables = {"QUICKSTART_STEPS": str(wanted), "QUICKSTART_STEP_SECONDS": "0.001"}
        done = subprocess.run(
            [sys.executable, "-P", "-m", QUICKSTART],
            check=False,
            env={**variables, "QUICKSTART_PRINT_EVERY": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        _reference.update((int(step), float(loss)) for step, loss in _STEP.findall(done.stdout))
    return _reference


def _standing_still(project: Any) -> Any:
    """A project without its past use, which grows while its jobs run."""
    for use in project["status"]["nodePoolQuotaStatuses"]:
        use["pastUseGpuHours"] = use["pastUseShare"] = None
    return project


def comparable(stage: Stage) -> dict[str, Any]:
    """All that a refused command must not change."""
    moving = {"totalPendingTimeSeconds", "totalRunningTimeSeconds"}
    try:
        with client(stage) as api:
            items = [
                {key: value for key, value in item.items() if key not in moving} for item in api.workloads()
            ]
            return {
                "workloads": items,
                "projects": [_standing_still(unit) for unit in api.projects()],
                "departments": list(api.departments()),
                "pools": list(api.node_pools()),
                "events": {item["id"]: len(api.events(item["id"])) for item in items},
            }
    except PliantError as error:
        raise AssertionError(f"the server does not answer any more: {error.message}") from error


def jupyter_status(address: str) -> int:
    """The status of a GET of Jupyter's API with the token of that address; 0 if nothing answers."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.request("GET", f"/api/status?{parts.query}")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
