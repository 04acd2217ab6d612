"""Jobs as objects, over a client with answers set by the test."""

from typing import Any

import pytest

from pliant.client import jobs
from pliant.client.errors import Unreachable
from pliant.client.jobs import Job, Jobs


class Answers:
    """Outcomes in turn, as a server gives them, and the submitted bodies."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.bodies: list[Any] = []

    def outcome(self, identity: str) -> Any:
        found = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(found, Exception):
            raise found
        return {"exitCode": found}

    def submit(self, kind: str, body: Any) -> Any:
        self.bodies.append((kind, body))
        return {"workloadId": "w-1"}

    def workload(self, identity: str) -> Any:
        return {"id": identity, "name": "job", "phase": "Pending"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PAUSE", 0.0)


def job(*outcomes: Any) -> Job:
    return Job(Answers(*outcomes), {"id": "w-1", "name": "job", "phase": "Running"})  # type: ignore[arg-type,typeddict-item]


def test_wait_bears_a_server_that_restarts() -> None:
    assert job(None, Unreachable("gone"), Unreachable("gone"), None, 3).wait()["exitCode"] == 3


def test_wait_gives_up_when_its_time_is_up() -> None:
    with pytest.raises(TimeoutError, match="job has not ended within 0 s"):
        job(None).wait(timeout=0)


def test_wait_gives_up_on_a_server_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PATIENCE", 0.0)
    with pytest.raises(Unreachable):
        job(Unreachable("gone")).wait()


@pytest.mark.parametrize(
    ("gpus", "compute"),
    [
        (2, {"gpuDevicesRequest": 2}),
        (0, {"gpuDevicesRequest": 0}),
        (0.5, {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5}),
    ],
)
def test_a_submission_says_what_was_asked_for(gpus: float, compute: dict[str, Any]) -> None:
    server = Answers(0)
    made = Jobs(server, "team-a").submit(  # type: ignore[arg-type]
        "job", ["python", "x.py"], gpus=gpus, environment={"A": "1"}, backoffLimit=2
    )
    assert made.id == "w-1"
    [(kind, body)] = server.bodies
    assert (kind, body["name"], body["projectName"]) == ("Training", "job", "team-a")
    assert body["spec"] == {
        "commandArgv": ["python", "x.py"],
        "compute": compute,
        "backoffLimit": 2,
        "environmentVariables": [{"name": "A", "value": "1"}],
    }
